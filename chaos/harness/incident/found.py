"""A piece of an incident: a command, a fault with its span, or a remark about what no line of a plan can say.

What always holds: times are seconds since 1970, by the clock of the site whose log or journal has them.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Found(msgspec.Struct, frozen=True):
    """A line of a plan to be. `to_s` None: nothing ends it. `sources`: what says so."""

    from_s: float
    kind: str
    target: str
    sources: tuple[str, ...]
    to_s: float | None = None
    how: str = ""

    @property
    def names(self) -> tuple[str, str, str]:
        return self.kind, self.target, self.how

    def overlaps(self, from_s: float, to_s: float) -> bool:
        """True when it lasts at some moment between the two."""
        return self.from_s <= to_s and (self.to_s is None or from_s <= self.to_s)


class Remark(msgspec.Struct, frozen=True):
    at_s: float
    text: str


def together(faults: Iterable[Found], apart_s: float = 1.0) -> list[Found]:
    """Faults of one kind, target and `how` that overlap, or nearly, as one."""
    joined: list[Found] = []
    for each in sorted(faults, key=lambda one: one.from_s):
        same = next((one for one in reversed(joined) if one.names == each.names), None)
        if same is None or not same.overlaps(each.from_s - apart_s, each.to_s or each.from_s):
            joined.append(each)
            continue
        joined[joined.index(same)] = msgspec.structs.replace(
            same, to_s=max(same.to_s or 0, each.to_s or 0), sources=tuple(dict.fromkeys((*same.sources, *each.sources)))
        )
    return joined
