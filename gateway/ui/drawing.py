"""Shares what the event streams of pages show: each live part is drawn once a look for all who may see the same.

What always holds: an event has the parts that changed since a look, and only streams that have seen that very look get it as it
is, the same bytes for all of them; what nobody asked for during the last looks is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple

import msgspec

from gateway.api.routes.streams import frame_of
from gateway.ui.watch import PairSeen

Key = tuple[Hashable, ...]  # whatever the drawing depends on, but for the look: also what the caller may see
EVENT = "page"  # its name in the stream
FORGOTTEN_LOOKS = 50


class Drawn(NamedTuple):
    """The parts of a view at look `number`, and the frame for those who have seen look `before`; empty: nothing changed."""

    number: int
    parts: Mapping[str, str]
    before: int
    frame: bytes


class Shared:
    """Keeps what was drawn last, for each key."""

    def __init__(self) -> None:
        self._drawn: dict[Key, Drawn] = {}

    def draw(self, key: Key, seen: PairSeen, make: Callable[[PairSeen], Mapping[str, str]]) -> Drawn:
        last = self._drawn.get(key)
        if last is not None and last.number == seen.number:
            return last
        for other, one in list(self._drawn.items()):
            if seen.number - one.number > FORGOTTEN_LOOKS:
                del self._drawn[other]
        parts = make(seen)
        known: Mapping[str, str] = {} if last is None else last.parts
        drawn = Drawn(seen.number, parts, -1 if last is None else last.number, frame_between(known, parts))
        self._drawn[key] = drawn
        return drawn


def frame_between(before: Mapping[str, str], now: Mapping[str, str]) -> bytes:
    """Returns the event of the parts that changed, as a stream sends it; empty: none did."""
    changed = {name: text for name, text in now.items() if before.get(name) != text}
    return frame_of(EVENT, msgspec.json.encode(changed)) if changed else b""
