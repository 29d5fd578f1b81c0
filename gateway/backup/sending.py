"""An active gives a backup all its rows at one point, and its log behind a point.

What always holds: the rows are a snapshot of what is applied, so of what is committed; the log ends at what was committed when
it was asked for; whoever asks says up to where it has the log, and from there on it is kept for the next time, for at most
TARGETS_MAX targets, and as long as the WAL is not too long for it (`wal.backup_bytes_max`). One reader of rows at a time: it
holds a snapshot of the storage.
Source: docs/decisions/2026-11-28-backup.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from gateway.epoch.active_epoch import BACKUP_HOLDER, ActiveEpoch
from gateway.service.serving import Serving
from remote_log.replication.base_sender import BaseSettings, base_parts
from remote_log.replication.epoch_history import contains
from remote_log.replication.messages import BaseProgress
from storage.backup.stream import BackupHead, End, Frames, Message, ReachedPoint, RowsMessage, encode_message, rows_of
from storage.engine import EngineState, Snapshot, StorageEngine
from storage.log.cursors import CursorRegistry
from storage.log.wal import Wal
from twinlog.errors import Conflict, LogGap, Overloaded

LOG_BYTES = 1 << 20  # of frames in a message, about
TARGETS_MAX = 4
PART = BaseSettings()


class BackupService:
    def __init__(
        self, serving: Serving, *, pair: str, site: str, engine: StorageEngine, wal: Wal, cursors: CursorRegistry,
        encrypted: bool,
    ) -> None:
        self._serving, self._pair, self._site = serving, pair, site
        self._engine, self._wal, self._cursors, self._encrypted = engine, wal, cursors, encrypted
        self._reading = asyncio.Lock()

    async def base(self, target: str) -> AsyncGenerator[bytes, None]:
        """All rows, as messages. Raises NotActive, Unavailable, Overloaded before the first one."""
        if self._reading.locked():
            raise Overloaded("another backup reads the rows of this site now: wait until it has ended", retry_after_s=10)
        async with self._reading:
            epoch = self._serving.for_reads()
            await self._hold(epoch, target, self._engine.applied.seq)
            snapshot = await self._engine.snapshot()
            try:
                state = await snapshot.state()
                yield encode_message(self._head(state, of_base=True))
                parts = 0
                async with aclosing(_rows(snapshot, state)) as messages:
                    async for message in messages:
                        yield encode_message(message)
                        parts += 1
                yield encode_message(End(parts))
            finally:
                snapshot.close()

    async def log(self, target: str, after_epoch: int, after_seq: int) -> AsyncGenerator[bytes, None]:
        """The log behind a point, as messages. Raises NotActive, Unavailable, Conflict before the first one."""
        epoch = self._serving.for_reads()
        upto = epoch.core.committed
        state = self._engine.applied
        if after_seq > upto or not contains(state.epochs, after_epoch, after_seq):
            raise Conflict(
                f"this log does not hold sequence {after_seq} of epoch {after_epoch}: it left the log of the backup before "
                "that; begin a new base (--new-base)", epoch=after_epoch, seq=after_seq,
            )
        await self._hold(epoch, target, after_seq)
        yield encode_message(self._head(state, of_base=False))
        at, parts = after_seq, 0
        while at < upto:
            try:
                frames = await self._wal.read(at, upto, LOG_BYTES)
            except LogGap as error:
                raise Conflict(
                    f"the log behind sequence {at} was trimmed, since it was not kept for this backup: begin a new base "
                    "(--new-base)", seq=at,
                ) from error
            yield encode_message(Frames(b"".join(frame.data for frame in frames)))
            at, parts = frames[-1].last_seq, parts + 1
        yield encode_message(End(parts))

    def _head(self, state: EngineState, *, of_base: bool) -> BackupHead:
        point = ReachedPoint(state.epoch, state.seq, state.timestamp)
        schemas, epochs = (state.schemas(), list(state.epochs)) if of_base else ({}, [])
        return BackupHead(self._pair, self._wal.pair, self._site, point, self._encrypted, schemas, epochs)

    async def _hold(self, epoch: ActiveEpoch, target: str, seq: int) -> None:
        name = f"{BACKUP_HOLDER}-{target}"
        held = [one for one in self._cursors.positions(epoch.epoch) if one.startswith(f"{BACKUP_HOLDER}-")]
        if name not in held and len(held) >= TARGETS_MAX:
            await self._cursors.remove(held[0])
        await self._cursors.register(BACKUP_HOLDER, name)
        self._cursors.advance(name, epoch.epoch, seq)


async def _rows(snapshot: Snapshot, state: EngineState) -> AsyncGenerator[Message, None]:
    begin = BaseProgress(state.epoch, 0, 0, state.seq, state.epoch, state.seq, state.epoch)
    bounds = {"entries_max": PART.part_entries, "bytes_max": PART.part_bytes}
    async with aclosing(base_parts(snapshot, sorted(state.schemas()), begin, **bounds)) as parts:
        async for part in parts:
            yield RowsMessage(rows_of(part.rows), part.outcomes)
