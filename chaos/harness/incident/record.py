"""The record of an incident: lines of logs, and what somebody asked for, as sources.py reads them.

What always holds: each names its place, so that every line of a plan can.
This module is pure.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Event(msgspec.Struct, frozen=True):
    """A line of a log. `at_s`: seconds since 1970, by that site's clock. `name`: `started` for the begin of a process, else as
    the gateway has it. `source`: file, line and time."""

    at_s: float
    site: str
    name: str
    fields: dict[str, Any]
    source: str


class Asked(msgspec.Struct, frozen=True):
    """Somebody asked for something at `site`. `event`: started, resumed or abort asked. `ended`: how the operation ended."""

    at_s: float
    site: str
    kind: str
    to: str | None
    actor: str
    event: str
    ended: str
    loses: bool
    source: str

    @property
    def by_itself(self) -> bool:
        """The site began it without anybody who asked."""
        return self.actor.startswith("site ")


class Record(msgspec.Struct, frozen=True):
    """All that was read, each in the order of time. `unread`: lines that are no events."""

    events: list[Event]
    asked: list[Asked]
    unread: int
