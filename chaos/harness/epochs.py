"""The epoch in which each answer was given, which no read of the API names: the last one that its site had opened by then.

What always holds: an answer that a site repeats under its idempotency key bears the epoch of the first answer, and is judged
by the epoch in which it was repeated. A site that was fenced and does not know it answers in the last epoch that it opened; an
acknowledgement of a later one shows that it opened that.
This module is pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

import msgspec

from chaos.history.history import Call, History

SEEN_LATE_S = 0.1  # an opening is seen so much later than it happens, at most, unless its mode was recorded before that


def with_epochs(history: History, since: Mapping[int, float] | None = None) -> History:
    """`since`: epoch -> the earliest moment at which it can have opened, where that is known otherwise than by SEEN_LATE_S."""
    recorded: dict[int, float] = {}
    for mode in history.modes:
        recorded[mode.epoch] = min(mode.at_s, recorded.get(mode.epoch, mode.at_s))
    known = since or {}
    opened: dict[str, list[tuple[float, int]]] = {}
    for each in sorted(history.opened, key=lambda each: each.at_s):
        seen_s = min(each.at_s - SEEN_LATE_S, recorded.get(each.epoch, each.at_s))
        opened.setdefault(each.site, []).append((known.get(each.epoch, seen_s), each.epoch))
    return replace(history, calls=tuple(_with_epoch(call, opened) for call in history.calls))


def _with_epoch(call: Call, opened: dict[str, list[tuple[float, int]]]) -> Call:
    outcome = call.outcome
    if outcome is None or call.returned_s is None or outcome.site not in opened:
        return call
    here = opened[outcome.site]
    at = bisect_right(here, (call.returned_s, 1 << 62)) - 1
    if at < 0:
        return call
    epoch = max(here[at][1], outcome.ack.epoch if outcome.ack is not None else 0)
    return msgspec.structs.replace(call, outcome=msgspec.structs.replace(outcome, epoch=epoch))
