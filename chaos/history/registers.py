"""The meaning of the files of a register on two DFSs (switchover/register/two_dfs.py), for somebody who watches both.

What always holds: a value is decided by the first file that holds it as the newest of its folder: further ones are copies, and
one that a late author makes below the newest counts for nobody (switchover/register/dfs_folder.py); a command has begun a line
of its own where a value names the home at which it was decided, by force.
This module is pure.
Source: docs/decisions/2026-11-21-a-register-on-two-dfs.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from switchover.register.homes import rank
from switchover.register.port import PairState


class Met(msgspec.Struct, frozen=True):
    """The meaning of a new newest file. `before`: the value in the file before it. `is_new`: it is the first that holds its
    value. `is_forced`: that value begins a line of its own. `is_whole`: both DFSs hold the same again."""

    before: PairState | None
    is_new: bool
    is_forced: bool
    is_whole: bool


@dataclass
class TwoRegisters:
    """`newest`: the number and the value of the newest file, by site."""

    newest: dict[str, tuple[int, PairState]] = field(default_factory=dict)
    is_apart: bool = False
    _known: set[PairState] = field(default_factory=set)
    _lines: set[tuple[int, str | None]] = field(default_factory=set)

    @property
    def value(self) -> PairState | None:
        return max((value for _, value in self.newest.values()), key=rank, default=None)

    @property
    def agrees(self) -> bool:
        return len(self.newest) == 2 and len({value for _, value in self.newest.values()}) == 1

    def made(self, site: str, number: int, value: PairState) -> Met | None:
        """The file `number` is on the DFS of `site`. None: it counts for nobody."""
        there = self.newest.get(site)
        if there is not None and number <= there[0]:
            return None
        self.newest[site] = number, value
        is_new = value not in self._known
        is_forced = is_new and self._begins_a_line(site, value)
        is_whole = self.is_apart and self.agrees
        self.is_apart = self.is_apart and not is_whole
        return Met(there[1] if there is not None else None, is_new, is_forced, is_whole)

    def lost(self, site: str) -> bool:
        """Nothing is on that DFS any more. Returns whether nothing is left at all that was there before."""
        return self.newest.pop(site, None) is not None and not self.newest

    def _begins_a_line(self, site: str, value: PairState) -> bool:
        """A new line is decided where its values name their home; else a home is named at the one before it."""
        self._known.add(value)
        line = value.home_forced, value.home
        begins = line not in self._lines and bool(value.home_forced) and value.home == site
        self._lines.add(line)
        self.is_apart = self.is_apart or begins
        return begins
