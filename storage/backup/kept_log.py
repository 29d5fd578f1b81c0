"""The log of a site that was the active: kept beside its WAL for backups that have not read all of it yet.

A rejoin empties the WAL. Where a backup holds the log, the segments move here instead, and the backup's next call reads here
what the new active never had. What always holds: nothing here is ever part of the WAL again, so no plan reads it; it is kept
only while a holder of the kind "backup" is registered, and never more than `wal.backup_bytes_max` of it, the oldest goes
first; what cannot be read is given up, for a new base replaces it. Each rejoin has a slot of its own: between two of them is
the log of another site.
Source: docs/decisions/2026-11-28-backup.md.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from storage.disk.port import Files
from storage.log.cursors import CursorRegistry
from storage.log.frame import Frame
from storage.log.wal import Wal
from twinlog.errors import DamagedLog, KeyUnavailable, LogError, LogGap

FOLDER = "wal-for-backups"
SLOTS = tuple(f"{FOLDER}/{number}" for number in range(8))
BACKUP_HOLDER = "backup"


class KeptLog:
    """Keeps what `wal` held until each of the last rejoins. `cursors`: who still needs it."""

    def __init__(self, files: Files, wal: Wal, cursors: CursorRegistry) -> None:
        self._files, self._wal, self._cursors = files, wal, cursors
        self._changing = asyncio.Lock()
        self._logs: dict[str, Wal] = {}  # by slot, as they were opened last

    async def take(self) -> None:
        """Empties the WAL, and keeps its segments here where a backup may come for them. Again after a crash: the rest."""
        async with self._changing:
            if not self._cursors.of_kind(BACKUP_HOLDER):
                await self._wal.clear()
                return
            self._logs.clear()
            held = await self._held()
            slots = {path.rpartition("/")[0] for path in held}
            with suppress(LogError):  # a disk that cannot move them stops no rejoin
                if len(slots) == len(SLOTS):
                    oldest = held[0].rpartition("/")[0]
                    await self._delete([path for path in held if path.startswith(f"{oldest}/")])
                    slots.discard(oldest)
                await self._wal.clear(into=next(slot for slot in SLOTS if slot not in slots))
            await self._wal.clear()
            held = await self._held()
            sizes = [await self._files.size(path) for path in held]
            over = 0
            while sum(sizes[over:]) > self._wal.backup_bytes_max:
                over += 1
            await self._delete(held[:over])

    async def read(self, after_seq: int, upto_seq: int, bytes_max: int) -> tuple[list[Frame], str]:
        """As Wal.read, and the identity of the pair whose log it is; nothing where it does not reach back."""
        async with self._changing:
            for log in await self._opened():
                with suppress(LogGap):
                    frames = await log.read(after_seq, min(upto_seq, log.last_seq), bytes_max)
                    if frames:
                        return frames, log.pair
            return [], ""

    async def release(self, epoch: int) -> None:
        """Deletes what every backup has, as it said following `epoch`; all of it when there is none."""
        async with self._changing:
            held = await self._held()
            if not held:
                return
            positions = self._cursors.positions(epoch)
            needed = min((positions[name] or 0 for name in self._cursors.of_kind(BACKUP_HOLDER)), default=None)
            slots = {path.rpartition("/")[0] for path in held}
            if needed is not None:
                await self._opened()
                for slot, log in self._logs.items():
                    if needed < log.last_seq:
                        await log.trim(needed + 1)
                        slots.discard(slot)
            self._logs = {slot: log for slot, log in self._logs.items() if slot not in slots}
            await self._delete([path for path in held if path.rpartition("/")[0] in slots])

    async def _held(self) -> list[str]:
        """The files of all slots, the oldest first."""
        found = [(name, f"{slot}/{name}") for slot in SLOTS for name in await self._files.list(slot)]
        return [path for _, path in sorted(found)]

    async def _delete(self, paths: list[str]) -> None:
        for path in paths:
            await self._files.delete(path)

    async def _opened(self) -> list[Wal]:
        """The logs that can be read."""
        for slot in SLOTS:
            if slot not in self._logs and await self._files.list(slot):
                with suppress(DamagedLog, KeyUnavailable):
                    self._logs[slot] = await self._wal.beside(slot)
        return [log for log in self._logs.values() if log.first_previous is not None]
