"""The cursor registry: who still needs the log, and from where.

Holders are the own engine, the peer, later sinks, readers and leases. What always holds: nothing is trimmed before every
blocking holder has it durably; a position that is unknown, or known from another epoch than the current one, counts as
0; who is registered outlives a restart, unless it is passing; positions do not; nobody is registered while the WAL is being
trimmed.
Source: protocol.md section 7 and P9.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from storage.disk.port import Files
from storage.disk.sealed_json import seal, unseal
from storage.invariants import InvariantBroken


class Holder(msgspec.Struct, frozen=True):
    """`kind`: "engine", "peer", ...; `name` is unique. One that is not `blocking` is listed, but nothing waits for it."""

    kind: str
    name: str
    blocking: bool = True


class HolderPosition(msgspec.Struct, frozen=True):
    """`durable_seq`: everything up to here is durable at the holder, as it says following `epoch`."""

    epoch: int
    durable_seq: int


_REMEDY = (
    "it lists who still needs the log: delete it and start the gateway again; the active then registers both sites' "
    "storages anew, and trims nothing before both have reported what they hold"
)


class CursorRegistry:
    def __init__(self, files: Files, path: str, holders: list[Holder]) -> None:
        self._files, self._path = files, path
        self._holders = {holder.name: holder for holder in holders}
        self._passing: dict[str, Holder] = {}  # in no file; no name is in both
        self._positions: dict[str, HolderPosition] = {}
        self._lock = asyncio.Lock()

    @classmethod
    async def open(cls, files: Files, path: str = "cursors/holders.json") -> CursorRegistry:
        """The holders of the last run, with unknown positions. Raises DamagedLog when the file cannot be understood."""
        folder, _, name = path.rpartition("/")
        holders: list[Holder] = []
        if name in await files.list(folder):
            holders = unseal(await files.read(path), list[Holder], path, _REMEDY)
        return cls(files, path, holders)

    async def register(self, kind: str, name: str, *, blocking: bool = True) -> None:
        """Durable when it returns. Again with the same values: nothing changes, the position stays; else it is unknown."""
        holder = Holder(kind, name, blocking)
        async with self._lock:
            if self._holders.get(name) == holder:
                return
            await self._save({**self._holders, name: holder})
            if self._passing.pop(name, None) != holder:
                self._positions.pop(name, None)
            self.check()

    async def register_passing(self, kind: str, name: str) -> bool:
        """A blocking holder for a while: until `let_go`, or the end of this process. `register` makes it one for good, with the
        position that it has. False: it is registered already, and nothing changes."""
        async with self._lock:
            if name in self._all():
                return False
            self._passing[name] = Holder(kind, name)
            return True

    def let_go(self, name: str) -> None:
        """Nothing is kept for the passing holder `name` any more. Any other name stays as it is."""
        if self._passing.pop(name, None) is not None:
            self._positions.pop(name, None)
            self.check()

    async def remove(self, name: str) -> None:
        """Nothing is kept for `name` any more; durable when it returns. Unknown names are fine."""
        async with self._lock:
            self.let_go(name)
            if name in self._holders:
                await self._save({key: holder for key, holder in self._holders.items() if key != name})
                self._positions.pop(name, None)
                self.check()

    def of_kind(self, kind: str) -> list[str]:
        """The names of the holders of this kind."""
        return sorted(holder.name for holder in self._all().values() if holder.kind == kind)

    def advance(self, name: str, epoch: int, durable_seq: int) -> None:
        """Takes the position that a holder reports. It may go back, e.g. when an engine was replaced. Ignores unknown names."""
        if name in self._all():
            self._positions[name] = HolderPosition(epoch, durable_seq)
            self.check()

    def safepoint(self, current_epoch: int) -> int:
        """Every record up to this sequence is durable at all blocking holders: what is kept begins after it.

        0 as long as nobody is registered: a log without any holder is one whose holders have not come yet.
        """
        return min((self._counted(holder, current_epoch) for holder in self._all().values() if holder.blocking), default=0)

    def positions(self, current_epoch: int) -> dict[str, int | None]:
        """The position of each holder, by name; None: not known, which counts as 0."""
        known = {name: one.durable_seq for name, one in self._positions.items() if one.epoch == current_epoch}
        return {name: known.get(name) for name in sorted(self._all())}

    @asynccontextmanager
    async def trimming(self, current_epoch: int) -> AsyncIterator[int]:
        """`async with registry.trimming(epoch) as safepoint`: nobody registers until the block has been left, in which
        nothing may wait for another machine: a holder that has registered may rely on what the log holds then."""
        async with self._lock:
            holders, names, safepoint = self._holders, self._all().keys(), self.safepoint(current_epoch)
            self.check(safepoint, current_epoch)
            yield safepoint
            if self._holders is not holders or not self._passing.keys() <= names:
                raise InvariantBroken(f"cursors: nobody registers while the WAL is trimmed up to {safepoint}")

    def check(self, safepoint: int = 0, current_epoch: int = 0) -> None:
        """Raises InvariantBroken. `safepoint`: what is about to be trimmed, in `current_epoch`. A few comparisons."""
        if not self._positions.keys() <= self._all().keys():
            raise InvariantBroken(f"cursors: only who is registered has a position; {self._all()!r}, {self._positions!r}")
        if any(position.durable_seq < 0 for position in self._positions.values()):
            raise InvariantBroken(f"cursors: nothing is durable below sequence 0: {self._positions!r}")
        for name, holder in self._all().items() if safepoint else ():
            position = self._positions.get(name)
            holds = position is not None and position.epoch == current_epoch and position.durable_seq >= safepoint
            if holder.blocking and not holds:
                raise InvariantBroken(f"cursors: {holder!r} needs what is about to be trimmed up to {safepoint}: {position!r}")

    def _all(self) -> dict[str, Holder]:
        return {**self._holders, **self._passing} if self._passing else self._holders

    def _counted(self, holder: Holder, current_epoch: int) -> int:
        position = self._positions.get(holder.name)
        return position.durable_seq if position is not None and position.epoch == current_epoch else 0

    async def _save(self, holders: dict[str, Holder]) -> None:
        """The file first: a registration that did not become durable has not happened."""
        await self._files.write_new(self._path, seal([holders[name] for name in sorted(holders)]))
        self._holders = holders
