"""Counts of durations by upper bounds, for Prometheus.

This module is pure.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

BOUNDS_S = (0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)


class Exemplar(NamedTuple):
    """One of the durations of a bucket, and the trace that shows what it was."""

    duration_s: float
    trace_id: str


_NONE = (None,) * (len(BOUNDS_S) + 1)


class Histogram:
    """`BOUNDS_S` are upper bounds, inclusive; what is longer than the last is counted behind it."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.exemplars: tuple[Exemplar | None, ...] = _NONE  # the newest of each bucket; there are none without traces

    def observe(self, duration_s: float) -> None:
        self._counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s

    def exemplify(self, duration_s: float, trace_id: str) -> None:
        """Notes the trace of a duration that is counted."""
        at = bisect_left(BOUNDS_S, duration_s)
        self.exemplars = (*self.exemplars[:at], Exemplar(duration_s, trace_id), *self.exemplars[at + 1 :])

    @property
    def count(self) -> int:
        return sum(self._counts)

    def counts(self) -> tuple[int, ...]:
        """Returns how many fell behind the bound before and up to each bound, then how many were
        longer than the last."""
        return tuple(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound in seconds as text, how many took at most so long), the last bound is +Inf."""
        return list(zip([*map(str, BOUNDS_S), "+Inf"], map(float, accumulate(self._counts)), strict=True))
