"""The times that a simulated run allows: how long what is true, or was, may be said and kept at most.

Source: the deadlines of the product's parts, and what a plan's faults keep from a site.
"""

from __future__ import annotations

from chaos.history.history import Limits
from chaos.simulate.plan import SeedPlan
from gateway.site.metrics import SAMPLE_OLD_S

RECOVERY_S = 90.0
TRIM_SLACK_S = 16.0  # the trimmer's round under way and two more, each ended by the deadline of a call without an answer
MODE_SLACK_S = 4.0  # a degrade of which the register has been told takes effect, or is taken back, once the site is answered
# a site that is stopped, or is not told what became of its change of the register, does so later
DEAF = ("pause", "cut", "isolate", "witness-down", "dfs-down", "hang-dfs")
RISK_SLACK = 1.3  # clocks drift, and looks are a second apart
HEARD_SLACK_S = 2.0  # its newest word may be of just before the loss


def limits_of(plan: SeedPlan) -> Limits:
    knobs = plan.knobs
    return Limits(
        lease_s=knobs.lease_s / (1 + min(knobs.drift_a, knobs.drift_b)),
        answer_slack_s=0.5, recovery_s=RECOVERY_S, trim_slack_s=TRIM_SLACK_S,
        mode_slack_s=MODE_SLACK_S + max((fault.for_s for fault in plan.faults if fault.kind in DEAF), default=0.0),
        risk_slack_s=max(SAMPLE_OLD_S, knobs.lease_s) * RISK_SLACK, heard_slack_s=HEARD_SLACK_S,
    )
