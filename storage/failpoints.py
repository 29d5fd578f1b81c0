"""Named points at which a process may die, so that every interruption of a role change can be tested.

What always holds: outside tests and chaos runs a hit does nothing. Names read `plan.<kind>.<step>.before|after|journaled`
for the steps of a plan, and `<module>.<moment>` inside one.
"""

from __future__ import annotations

from collections.abc import Callable


class Crash(BaseException):
    """Stands for the death of the process. Not an Exception: nothing between the point and the test may catch it."""


class Failpoints:
    """The harmless ones."""

    def hit(self, name: str) -> None:
        """A place where a crash is interesting has been reached."""


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
