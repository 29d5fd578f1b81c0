"""One file and one folder of the model: what of them is durable, and what only the page cache has.

What always holds: a change is in `changes` from its beginning until a sync that began after its end; a sector of 512 bytes
holds what stood there after some number of its changes, and so do the length of a file and a name in a folder, each by itself:
so writes may be missing, torn between sectors, and in another order than they were made. A file never shows what was cut off.
This module is pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

SECTOR_BYTES = 512


@dataclass(slots=True, eq=False)
class Change:
    """Bytes for a sector, or a new length (`sector` None). `order`: later ones are larger. `done`: when its call had ended."""

    order: int
    sector: int | None
    offset: int
    data: bytes
    length: int = 0
    done: int | None = None


@dataclass(slots=True, eq=False)
class NameChange:
    """`name` leads to the inode `target`; None: it is gone. `rename` joins both halves of one rename."""

    order: int
    name: str
    target: int | None
    done: int
    rename: int | None = None


@dataclass(slots=True)
class ModelFile:
    durable: bytearray = field(default_factory=bytearray)
    durable_length: int = 0
    length: int = 0
    changes: list[Change] = field(default_factory=list)

    def write(self, order: int, data: bytes, offset: int) -> list[Change]:
        """Returns the changes that this write is made of: one for each sector, and one where the file grows."""
        made, end = [], offset + len(data)
        at = offset
        while at < end:
            upto = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
            made.append(Change(order, at // SECTOR_BYTES, at, data[at - offset : upto - offset]))
            at = upto
        if end > self.length:
            made.append(Change(order, None, 0, b"", end))
            self.length = end
        self.changes += made
        return made

    def set_length(self, order: int, length: int) -> list[Change]:
        change = Change(order, None, 0, b"", length)
        self.length = length
        self.changes.append(change)
        return [change]

    def sync(self, covers: Callable[[Change], bool]) -> None:
        """Makes durable what it covers, with what stood in the same places before it."""
        last: dict[int | None, int] = {}
        for place, change in enumerate(self.changes):
            if covers(change):
                last[change.sector] = place
        self.durable, self.durable_length = self._applied(
            change for place, change in enumerate(self.changes) if place <= last.get(change.sector, -1)
        )
        self.changes = [change for place, change in enumerate(self.changes) if place > last.get(change.sector, -1)]

    def counts(self) -> Counter[int | None]:
        """Counts the changes that each place waits for. None: the length."""
        return Counter(change.sector for change in self.changes)

    def content(self, taken: Mapping[int | None, int]) -> bytes:
        """The bytes when each place has as many of its changes as `taken` says."""
        seen: Counter[int | None] = Counter()
        chosen = []
        for change in self.changes:
            seen[change.sector] += 1
            if seen[change.sector] <= taken.get(change.sector, 0):
                chosen.append(change)
        data, length = self._applied(chosen)
        return bytes(data[:length]).ljust(length, b"\0")

    def _applied(self, changes: Iterable[Change]) -> tuple[bytearray, int]:
        data, length = bytearray(self.durable), self.durable_length
        for change in changes:
            if change.sector is None:
                if change.length < length:
                    del data[change.length :]
                length = change.length
                continue
            if len(data) < change.offset:
                data.extend(bytes(change.offset - len(data)))
            data[change.offset : change.offset + len(change.data)] = change.data
        return data, length


@dataclass(slots=True)
class ModelFolder:
    durable: dict[str, int] = field(default_factory=dict)
    changes: list[NameChange] = field(default_factory=list)

    def names(self, taken: Mapping[str, int] | None = None) -> dict[str, int]:
        """The names when each has as many of its changes as `taken` says; None: all of them, as a program sees it."""
        names, seen = dict(self.durable), Counter[str]()
        for change in self.changes:
            seen[change.name] += 1
            if taken is not None and seen[change.name] > taken.get(change.name, 0):
                continue
            if change.target is None:
                names.pop(change.name, None)
            else:
                names[change.name] = change.target
        return names

    def counts(self) -> Counter[str]:
        return Counter(change.name for change in self.changes)

    def fold(self, covers: Callable[[NameChange], bool]) -> list[NameChange]:
        """Makes durable what it covers, with what the same names were before. Returns these changes."""
        last: dict[str, int] = {}
        for place, change in enumerate(self.changes):
            if covers(change):
                last[change.name] = place
        folded = [change for place, change in enumerate(self.changes) if place <= last.get(change.name, -1)]
        kept = [change for place, change in enumerate(self.changes) if place > last.get(change.name, -1)]
        self.changes = folded
        self.durable, self.changes = self.names(), kept
        return folded
