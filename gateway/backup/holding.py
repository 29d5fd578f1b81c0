"""Keeps who backs this pair up: for whom this site keeps its log, and when each backup was last complete.

What always holds: both sites know each backup, so that the one that becomes the active keeps its log from its first frame on;
at most TARGETS_MAX are known, the one that was silent for longest goes; a position counts only if this site's history holds it;
what is kept for a backup goes forward only when the backup has what lies before it, and a first base that breaks keeps nothing.
Source: docs/decisions/2026-11-28-backup.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from remote_log.replication.epoch_history import contains
from storage.backup.kept_log import BACKUP_HOLDER, KeptLog
from storage.clock import Clock
from storage.engine import StorageEngine
from storage.log.cursors import CursorRegistry
from storage.settings import RUN_TIME, Within
from twinlog.decoding import or_none

TARGETS_MAX = 4
BACKUPS = "backups"  # in the storage: when each was complete
_decode = msgspec.json.Decoder(dict[str, int]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupSettings:
    """`old_after_s`: a last backup that is older is old, which an alert says; 0: none is."""

    old_after_s: Annotated[float, Within(0, 31_536_000), RUN_TIME] = 86_400.0


class BackupHolds:
    """`now_epoch`: the epoch that this site leads or follows."""

    def __init__(
        self, engine: StorageEngine, cursors: CursorRegistry, kept: KeptLog, clock: Clock, now_epoch: Callable[[], int]
    ) -> None:
        self._engine, self._cursors, self._kept, self._clock, self._now_epoch = engine, cursors, kept, clock, now_epoch

    async def register(self, target: str) -> None:
        """Durable when it returns: the log is kept for `target`, from wherever it begins until a position is known."""
        await self._make_place(target)
        await self._cursors.register(BACKUP_HOLDER, _holder(target))

    async def begin_base(self, target: str, epoch: int, seq: int) -> bool:
        """All rows of a moment behind this point are about to be read. True: nobody knew `target`, and the log is kept from
        this point on, until `base_broke` or a restart, unless `complete` comes first. False: it is kept as before, because the
        backup continues its last base if this one breaks."""
        await self._make_place(target)
        is_first = await self._cursors.register_passing(BACKUP_HOLDER, _holder(target))
        if is_first:
            self.advance(target, epoch, seq)
        return is_first

    def base_broke(self, target: str) -> None:
        """The first base of `target` did not end: nobody continues it."""
        self._cursors.let_go(_holder(target))

    async def _make_place(self, target: str) -> None:
        held = self._cursors.of_kind(BACKUP_HOLDER)
        if _holder(target) not in held and len(held) >= TARGETS_MAX:
            at_ms = self._complete_ms()
            await self._cursors.remove(min(held, key=lambda one: at_ms.get(one.removeprefix(_holder("")), 0)))

    def advance(self, target: str, epoch: int, seq: int) -> None:
        """The backup has the log up to this point of `epoch` durably."""
        state = self._engine.applied
        if seq <= state.seq and contains(state.epochs, epoch, seq):
            self._cursors.advance(_holder(target), self._now_epoch(), seq)

    async def complete(self, target: str, epoch: int, seq: int) -> None:
        """A call of the backup has ended well: it has everything up to this point."""
        await self.register(target)
        self.advance(target, epoch, seq)
        held = {one.removeprefix(_holder("")) for one in self._cursors.of_kind(BACKUP_HOLDER)}
        noted = {one: at_ms for one, at_ms in self._complete_ms().items() if one in held}
        await self._engine.set_meta(BACKUPS, msgspec.json.encode({**noted, target: self._clock.wall_ms()}))
        await self._kept.release(self._now_epoch())

    async def release(self, target: str) -> None:
        """Nothing is kept for `target` any more. An unknown one is fine."""
        await self._cursors.remove(_holder(target))
        noted = {one: at_ms for one, at_ms in self._complete_ms().items() if one != target}
        await self._engine.set_meta(BACKUPS, msgspec.json.encode(noted))
        await self._kept.release(self._now_epoch())

    def figures(self, settings: BackupSettings) -> dict[str, float]:
        """Returns figures for metrics; nothing where no backup is known."""
        last_ms = max(self._complete_ms().values(), default=None)
        if last_ms is None:
            return {}
        age_s = max(0.0, (self._clock.wall_ms() - last_ms) / 1000)
        found = {"last_backup_timestamp_seconds": last_ms / 1000, "last_backup_age_seconds": age_s}
        if settings.old_after_s:
            found["last_backup_age_max_seconds"] = settings.old_after_s
        return found

    def _complete_ms(self) -> dict[str, int]:
        noted = self._engine.meta(BACKUPS)
        found = None if noted is None else or_none(_decode, noted)  # a damaged note says nothing; the next one replaces it
        return found or {}


def _holder(target: str) -> str:
    return f"{BACKUP_HOLDER}-{target}"
