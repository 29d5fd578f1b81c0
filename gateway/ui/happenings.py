"""Keeps the changes of a site's role and mode, and its alerts, since its process began, for the view *History*.

What always holds: it is bounded, and the oldest go first; it is for people, and nothing is decided by it; whoever needs it for
longer has the log (docs/events.md), the audit trail and the metrics.
"""

from __future__ import annotations

from collections import deque

from msgspec import Struct

from gateway.service.documents import ServingDocument, SiteTrouble
from storage.clock import Clock

KEPT = 200


class Happening(Struct, frozen=True):
    """`kind`: role, alert, or over, where an alert with this `what` is no more. `why`: empty where there is no more to say."""

    at_ms: int
    kind: str
    what: str
    why: str = ""


class Happened(Struct, frozen=True):
    """The newest first. `since_ms`: when the process began, by its clock."""

    since_ms: int
    happenings: list[Happening]


class Happenings:
    def __init__(self, clock: Clock) -> None:
        self._clock, self._since_ms = clock, clock.wall_ms()
        self._kept: deque[Happening] = deque(maxlen=KEPT)

    def role(self, role: str, why: str) -> None:
        self._note("role", role, why)

    def mode(self, mode: str, why: str) -> None:
        self._note("role", f"mode {mode}", why)

    def trouble(self, one: SiteTrouble) -> None:
        more = f" ({one.error})" if one.error else ""
        self._note("alert", one.about, f"{one.seen}{more}: {one.do}")

    def serving(self, serving: ServingDocument) -> None:
        """Notes that the site serves less than it did."""
        self._note("alert", "serving", f"{serving.why}: {serving.do}")

    def over(self, about: str) -> None:
        self._note("over", about)

    def all(self) -> Happened:
        return Happened(self._since_ms, list(reversed(self._kept)))

    def _note(self, kind: str, what: str, why: str = "") -> None:
        self._kept.append(Happening(self._clock.wall_ms(), kind, what, why))
