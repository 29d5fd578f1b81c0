"""Marks of the log of an epoch: when it was committed how far, and how many bytes that was, for lags in seconds and bytes.

What always holds: what is said of a lag is never less than what is so; the marks are at most MARKS_MAX, and grow coarser, not
more, the longer the other site lags.
This module is pure.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

MARKS_MAX = 512
APART_S = 0.1


class Behind(NamedTuple):
    """The most by which a site lags that holds a log up to some sequence."""

    seconds: float
    bytes: int


class _LagMark(NamedTuple):
    seq: int
    at_s: float
    bytes: int


class LagMarks:
    """The marks of an epoch that begins behind `seq`, at `now_s` of a monotonic clock."""

    def __init__(self, seq: int, now_s: float) -> None:
        self._marks = [_LagMark(seq, now_s, 0)]
        self._apart_s = APART_S
        self._seq, self._bytes = seq, 0

    def committed(self, seq: int, size_bytes: int, now_s: float) -> None:
        """`size_bytes` more of the log are committed, up to `seq`."""
        self._seq, self._bytes = seq, self._bytes + size_bytes
        if now_s - self._marks[-1].at_s < self._apart_s:
            return
        self._marks.append(_LagMark(seq, now_s, self._bytes))
        if len(self._marks) > MARKS_MAX:
            del self._marks[1:-1:2]
            self._apart_s *= 2

    def behind(self, held_seq: int, now_s: float) -> Behind | None:
        """Returns how far a site lags that holds everything up to `held_seq`. None: it lacks what was committed before this
        epoch, and nobody noted when."""
        if held_seq >= self._seq:
            return Behind(0.0, 0)
        found = bisect_right(self._marks, held_seq, key=lambda mark: mark.seq)
        if not found:
            return None
        mark = self._marks[found - 1]
        return Behind(max(0.0, now_s - mark.at_s), self._bytes - mark.bytes)

    def forget_before(self, held_seq: int) -> None:
        """Nobody will ask about less than `held_seq`. Marks that were far apart may be close again."""
        found = bisect_right(self._marks, held_seq, key=lambda mark: mark.seq)
        if found > 1:
            del self._marks[: found - 1]
            if len(self._marks) < MARKS_MAX // 2:
                self._apart_s = APART_S
