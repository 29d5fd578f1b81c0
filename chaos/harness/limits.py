"""The figures that a run on real processes is held to: how long what is true, or was, may be said at most."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.fault_lines import Fault
from chaos.harness.faults.disks import KINDS as DISKS
from chaos.harness.faults.links import CUTTING, LINGERING, links_of
from chaos.harness.honesty.lacking import HEARD_SLACK_S, RISK_SLACK_S
from chaos.harness.honesty.needless import TRIM_SLACK_S
from chaos.harness.pair.monitors import MONITORS
from chaos.harness.pair.parts import COORDINATOR_SERVER, TOXIPROXY
from chaos.harness.pair.recovery import WITHIN_S
from chaos.history.history import Limits

START_S = 180.0
ANSWER_SLACK_S = 2.0  # this machine is shared, and so is the loop of the clients
TRAVEL_S = 1.0  # an answer's way through the proxy and that loop, when nothing is done to its link
MODE_SLACK_S = 4.0
STOPPING = ("pause", "pause-at", "wait-at", "stand-at")
_ENDING = ("crash", "terminate")
_OF_DISKS = frozenset(kind.name for kind in DISKS)


def _holds_up(fault: Fault) -> bool:
    """Says whether a site may learn of a change of the register, its own included, only when this is over; and it acts on the
    register's value once it has made it durable."""
    if fault.target in MONITORS:
        return False
    if fault.kind in _ENDING:
        return fault.target in (TOXIPROXY, COORDINATOR_SERVER)
    return fault.kind in (*STOPPING, *CUTTING) or (fault.kind in _OF_DISKS and fault.how.partition("/")[0] == "disk")


def limits_of(faults: Sequence[Fault], recovery_s: float = WITHIN_S) -> Limits:
    """The limits of a run with these faults."""
    onto_clients = [
        fault.for_s for fault in faults
        if fault.kind in LINGERING and any(link.startswith("c") for link in links_of(fault))
    ]
    stopped = [fault.for_s for fault in faults if _holds_up(fault)]
    return Limits(
        answer_slack_s=ANSWER_SLACK_S, recovery_s=recovery_s, travel_slack_s=TRAVEL_S + max(onto_clients, default=0.0),
        mode_slack_s=MODE_SLACK_S + max(stopped, default=0.0), risk_slack_s=RISK_SLACK_S, heard_slack_s=HEARD_SLACK_S,
        trim_slack_s=TRIM_SLACK_S,
    )
