"""Refused attempts on their way into the trail: the first of a kind at once, those after it as a number.

What always holds: of each kind (which refusal, whose identity, which address) at most two lines are made in INTERVAL_S: one for
the first, and at the end of the interval one that counts the rest; at most KINDS_MAX kinds are kept apart, and all others share
one. So a flood of refusals takes a bounded part of the disk, and none goes uncounted.
This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.trail.entry import Who

INTERVAL_S = 60.0
KINDS_MAX = 16
OTHERS = Who("others", "several")


@dataclass(slots=True)
class _Counted:
    who: Who
    what: dict[str, Any]  # the newest
    more: int = 0  # behind the first


class RefusalCounts:
    def __init__(self) -> None:
        self._kinds: dict[tuple[str, Who], _Counted] = {}
        self._began_s: float | None = None

    def note(self, now_s: float, who: Who, code: str, what: dict[str, Any]) -> tuple[Who, dict[str, Any]] | None:
        """Returns a line to write now, or None where this one is only counted."""
        if self._began_s is None:
            self._began_s = now_s
        kind = (code, Who(who.name, who.kind, who.address))
        if kind not in self._kinds and len(self._kinds) >= KINDS_MAX:
            kind = ("", OTHERS)
        counted = self._kinds.get(kind)
        if counted is not None:
            counted.more += 1
            counted.what = what
            return None
        shown = OTHERS if kind[1] is OTHERS else who
        self._kinds[kind] = _Counted(shown, what)
        return shown, {"code": code, **what}

    def due(self, now_s: float, *, anyhow: bool = False) -> list[tuple[Who, dict[str, Any]]]:
        """Returns the lines that count what an interval had behind its first ones. `anyhow`: also of one that is not over."""
        if self._began_s is None or not (anyhow or now_s - self._began_s >= INTERVAL_S):
            return []
        lines = [
            (counted.who, {"code": code or "several", "more": counted.more, "last": counted.what})
            for (code, _), counted in self._kinds.items() if counted.more
        ]
        self._kinds.clear()
        self._began_s = None
        return lines
