"""The author, epoch and time of each answer, and the answers that a later epoch had outranked already.

What always holds: an answer is forgiven only where a command had the register of a pair without a coordinator decided apart
(Apart) before the later epoch opened, or at the site that answers, and they had not seen each other again when that opening
was asked for; and only if it is of an asynchronous epoch of the other site, no later than `mode_slack_s` after they did.
Source: docs/decisions/2026-11-21-a-register-on-two-dfs.md ("What it costs").
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from math import inf

from chaos.history.history import Call, History, Opened


def answered_by(call: Call, opened: Sequence[Opened], times: Sequence[float]) -> tuple[str, int | None]:
    """`opened` in the order of `times`, when they opened. An answer repeated under its idempotency key bears the epoch of the
    first: then its site's epoch counts."""
    assert call.outcome is not None
    assert call.returned_s is not None
    outcome = call.outcome
    ack = outcome.ack
    site = ack.site if ack is not None else outcome.site
    if outcome.epoch is not None:
        return site, outcome.epoch
    if not site:
        return site, ack.epoch if ack is not None else None
    for at in range(bisect_right(times, call.returned_s) - 1, -1, -1):
        if opened[at].site == site:
            return site, opened[at].epoch
    return site, ack.epoch if ack is not None else None


def answered_s(call: Call, history: History) -> float:
    """Returns when the site sent the answer, where that is known, else when it reached the client."""
    assert call.returned_s is not None
    served_s = call.outcome.served_s if call.outcome is not None else None
    return served_s if served_s is not None else call.returned_s - history.limits.travel_slack_s


def decided_s(history: History, opened: Opened) -> float:
    """Returns when a blind opening was asked for: its own last look begins then, and both may see each other while it lasts."""
    asked = [
        each.from_s for each in history.blind if each.site == opened.site and each.from_s <= opened.at_s <= each.to_s
    ]
    return max(asked, default=opened.at_s)


def met_s(history: History, site: str, later_s: float, now_s: float) -> float | None:
    """Returns when both DFSs held the same again, if an opening elsewhere at `later_s` is out of sight of `site` at `now_s`."""
    met = sorted(moment.at_s for moment in history.moments if moment.name == "met")
    ends = [(each, next((at_s for at_s in met if at_s >= each.at_s), inf)) for each in history.apart]
    out_of_sight = [
        to_s for each, to_s in ends
        if each.at_s <= now_s and later_s <= to_s and (each.at_s <= later_s or each.site == site)
    ]
    return max(out_of_sight, default=None)


@lru_cache(maxsize=2)
def forgiven(history: History) -> frozenset[int]:
    """Ids of the calls that an asynchronous active answered after a later epoch had opened where it could not know of it."""
    if not history.apart:
        return frozenset()
    opened = sorted(history.opened, key=lambda each: each.at_s)
    times = [each.at_s for each in opened]
    found: set[int] = set()
    for call in history.calls:
        outcome = call.outcome
        if outcome is None or call.returned_s is None or (outcome.ack is not None and outcome.ack.mode == "sync"):
            continue
        site, epoch = answered_by(call, opened, times)
        at_s = answered_s(call, history)
        if epoch is None or not _was_async(history, epoch, at_s):
            continue
        later = [each for each in opened if each.epoch > epoch and each.at_s < at_s]
        if not later or any(each.site == site for each in later):
            continue
        until_s = met_s(history, site, decided_s(history, later[0]), at_s)
        if until_s is not None and at_s <= until_s + history.limits.mode_slack_s:
            found.add(call.id)
    return frozenset(found)


def _was_async(history: History, epoch: int, at_s: float) -> bool:
    told = [(each.at_s, each.mode) for each in history.modes if each.epoch == epoch and each.at_s <= at_s]
    return bool(told) and max(told)[1] == "async"
