"""The facts by which the word of a site at one moment is judged afterwards: the active, the acknowledgements that clients had
by then, and the modes of the register.

What always holds: an acknowledgement counts from when its client had it, and an opening from when it was seen, so that a site
is held only to what was so before it was asked.
This module is pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from chaos.history.history import History, ModeRecorded

LATE_S = 0.1  # a change of the register is seen so much later than it happens, at most


class Known:
    def __init__(self, history: History) -> None:
        self.history = history
        self._opened = sorted(history.opened, key=lambda each: each.at_s)
        self._acked = {True: _highest(history, sync_only=True), False: _highest(history, sync_only=False)}
        self._modes = sorted(history.modes, key=lambda each: each.at_s)

    def is_active(self, site: str, epoch: int, from_s: float, to_s: float) -> bool:
        """It had opened `epoch` by `from_s`, and no other epoch was open by `to_s`."""
        before = [each for each in self._opened if each.at_s <= to_s + LATE_S]
        return bool(before) and before[-1].at_s <= from_s and (before[-1].site, before[-1].epoch) == (site, epoch)

    def acknowledged(self, epoch: int, by_s: float, *, sync_only: bool = False) -> int:
        """The highest sequence of `epoch` that a client had an acknowledgement of by then; 0: none."""
        times, highest = self._acked[sync_only].get(epoch, ([], []))
        at = bisect_right(times, by_s) - 1
        return highest[at] if at >= 0 else 0

    def modes(self, epoch: int | None, from_s: float, to_s: float) -> set[str]:
        """The modes that the register held at some moment of that time, for `epoch`; None: for whatever epoch it named."""
        told = [each for each in self._modes if epoch is None or each.epoch == epoch]
        return {each.mode for each in _in_force(told, from_s, to_s + LATE_S)}


def _in_force(told: list[ModeRecorded], from_s: float, to_s: float) -> Iterable[ModeRecorded]:
    first = max(0, bisect_right([each.at_s for each in told], from_s) - 1)
    return (each for each in told[first:] if each.at_s <= to_s)


def _highest(history: History, *, sync_only: bool) -> dict[int, tuple[list[float], list[int]]]:
    by_epoch: dict[int, list[tuple[float, int]]] = {}
    for call in history.calls:
        ack = call.outcome.ack if call.outcome is not None else None
        if ack is not None and call.returned_s is not None and (ack.mode == "sync" or not sync_only):
            by_epoch.setdefault(ack.epoch, []).append((call.returned_s, ack.seq))
    found = {}
    for epoch, acked in by_epoch.items():
        acked.sort()
        found[epoch] = ([at_s for at_s, _ in acked], list(accumulate((seq for _, seq in acked), max)))
    return found
