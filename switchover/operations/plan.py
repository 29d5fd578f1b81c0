"""A role change as a plan: named, idempotent steps; some can be undone.

What always holds: a step may be run again after a crash in the middle of it; one that cannot be taken back is not abortable.
Source: protocol.md section 8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from storage.clock import Clock
from switchover.operations.document import Json


@dataclass(frozen=True)
class Step:
    """One idempotent step. `run` returns what is worth knowing of it, as JSON."""

    name: str
    run: Callable[[], Awaitable[Json | None]]
    what: str  # in words, for people
    abortable: bool = False  # may be cancelled while it runs, and the operation given up after it
    undo: Callable[[], Awaitable[object]] | None = None  # takes the effect back, whole or half; absent: it left none
    waits: bool = False  # it only waits for what is done already: it begins also when the request has expired
    dry: bool = False  # changes nothing: a dry run runs it too, and a resume runs it again
    progress: Callable[[], Json] | None = None  # asked from time to time while it runs; empty: nothing to show


@dataclass(frozen=True)
class Plan:
    """The steps of one role change, in order. Made anew for each attempt: it may keep what its steps hand to each other."""

    kind: str
    steps: Sequence[Step]


class Progress:
    """The progress of a long part of a step, for the step's document. Rates are per second of `clock`'s monotonic time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.clear()

    def clear(self) -> None:
        """Nothing long is under way."""
        self._unit, self._done, self._total, self._begun_s = "", 0, 0, 0.0

    def begin(self, unit: str, total: int = 0) -> None:
        """`unit`: what is counted, as it reads behind a number ("frames applied"). `total` 0: not known yet."""
        self._unit, self._done, self._total, self._begun_s = unit, 0, total, self._clock.monotonic_s()

    def reach(self, done: int, total: int | None = None) -> None:
        self._done, self._total = done, self._total if total is None else total

    def document(self) -> Json:
        if not self._total:
            return {}
        shown: Json = {"done": self._done, "total": self._total, "unit": self._unit}
        took_s = self._clock.monotonic_s() - self._begun_s
        if self._done and took_s > 0:
            rate = self._done / took_s
            shown |= {"rate": round(rate, 1), "eta_s": round((self._total - self._done) / rate, 1)}
        return shown


PlanMaker = Callable[[str, "str | None", Json], Plan]
