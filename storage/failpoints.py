"""Named points at which a process may die, so that every interruption of a role change can be tested.

What always holds: outside tests and chaos runs a hit does nothing. Names read `plan.<kind>.<step>.before|after|journaled`
for the steps of a plan, and `<module>.<moment>` inside one.
"""

from __future__ import annotations


class Failpoints:
    """The harmless ones; tests arm theirs (tests/armed_failpoints.py)."""

    def hit(self, name: str) -> None:
        """A place where a crash is interesting has been reached."""
