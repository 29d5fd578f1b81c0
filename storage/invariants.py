"""Invariants that the code checks itself after each step, and the one exception that reports a broken one.

What always holds:
- a broken invariant is a mistake in this program, so no handler of TwinlogError takes it: the driver's last handler logs it
  with its traceback and closes what it drives;
- `watched` collects each one that was raised, so that no handler can hide it from a test or from the simulator.
Cheap checks, a few comparisons, always run. Those that walk a whole state run while `costly` is true.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

costly = False  # read as `invariants.costly`: a name that was imported would keep its first value
_watchers: list[list[InvariantBroken]] = []


class InvariantBroken(AssertionError):
    """A state that the protocol excludes. The message names the object, the rule and the values that break it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        if _watchers:
            _watchers[-1].append(self)


@contextmanager
def watched(*, costly_too: bool = True) -> Iterator[list[InvariantBroken]]:
    """Yields the list of the invariants that break inside, the costly ones included unless `costly_too` is false.

    An inner `watched` keeps what breaks inside it from the outer one: so a test plants a mistake.
    """
    global costly
    before, broken = costly, list[InvariantBroken]()
    costly = costly_too
    _watchers.append(broken)
    try:
        yield broken
    finally:
        _watchers.pop()
        costly = before
