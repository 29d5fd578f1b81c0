"""Failpoints at which a process dies, raising Crash or ending for real, so that a test can interrupt a change anywhere."""

from __future__ import annotations

from collections.abc import Callable

from storage.failpoints import Failpoints


class Crash(BaseException):
    """Stands for the death of the process. Not an Exception: nothing between the point and the test may catch it."""


def _crash(name: str) -> None:
    raise Crash(name)


class ArmedFailpoints(Failpoints):
    """Dies at the `nth` hit of `name` (None: never), by `die`: raising Crash, or ending a real process.

    `seen` are the names hit so far, in order: a test that wants every interruption runs once unarmed and reads them.
    """

    def __init__(self, name: str | None = None, nth: int = 1, die: Callable[[str], None] = _crash) -> None:
        self.seen: list[str] = []
        self._name, self._nth, self._die = name, nth, die

    def hit(self, name: str) -> None:
        self.seen.append(name)
        if name == self._name and self.seen.count(name) == self._nth:
            self._die(name)
