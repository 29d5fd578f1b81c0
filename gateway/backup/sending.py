"""An active gives a backup all its rows at one point, and its log behind a point.

What always holds: the rows are a snapshot of what is applied, so of what is committed; the log ends at what was committed when
it was asked for; whoever asks says up to where it has the log, and from there on it is kept for the next time (holding.py), as
long as the WAL is not too long for it (`wal.backup_bytes_max`). One reader of rows at a time: it holds a snapshot.
A site gives what it kept of an earlier time as the active, as far as its history contains it.
Source: docs/decisions/2026-11-28-backup.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from gateway.backup.holding import BackupHolds
from gateway.service.serving import Serving
from gateway.table_figures.sizes import TableSizes
from remote_log.replication.base_sender import BaseSettings, base_parts
from remote_log.replication.epoch_history import contains
from remote_log.replication.messages import BaseProgress
from storage.backup.kept_log import KeptLog
from storage.backup.stream import BackupHead, End, Frames, Message, ReachedPoint, RowsMessage, encode_message, rows_of
from storage.engine import EngineState, Snapshot, StorageEngine
from storage.log.frame import Frame
from storage.log.wal import Wal
from twinlog.errors import Conflict, LogGap, Overloaded, Refused, Unavailable

LOG_BYTES = 1 << 20  # of frames in a message, about
PART = BaseSettings()


class BackupService:
    def __init__(
        self, serving: Serving, holds: BackupHolds, *, pair: str, site: str, engine: StorageEngine, wal: Wal, kept: KeptLog,
        encrypted: bool, identity: Callable[[], str], sizes: TableSizes,
    ) -> None:
        self._serving, self._holds, self._pair, self._site = serving, holds, pair, site
        self._engine, self._wal, self._kept, self._encrypted = engine, wal, kept, encrypted
        self._identity = identity  # of the pair, as far as this site has met it
        self._sizes = sizes
        self._reading = asyncio.Lock()

    async def base(self, target: str) -> AsyncGenerator[bytes, None]:
        """All rows, as messages. Raises NotActive, Unavailable, Overloaded before the first one."""
        if self._reading.locked():
            raise Overloaded("another backup reads the rows of this site now: wait until it has ended", retry_after_s=10)
        async with self._reading:
            self._serving.for_reads()
            at = self._engine.applied
            is_first, is_whole = await self._holds.begin_base(target, at.epoch, at.seq), False
            try:
                async with aclosing(self._base(at)) as messages:
                    async for message in messages:
                        is_whole = isinstance(message, End)  # before it is sent: whoever has it may need the log
                        yield encode_message(message)
            finally:
                if is_first and not is_whole:
                    self._holds.base_broke(target)

    async def _base(self, at: EngineState) -> AsyncGenerator[Message, None]:
        rows_about = await self._rows_about(sorted(at.schemas()))
        snapshot = await self._engine.snapshot()
        try:
            state = await snapshot.state()
            yield replace(self._head(state, self._wal.pair, of_base=True), rows_about=rows_about)
            parts = 0
            async with aclosing(_rows(snapshot, state)) as messages:
                async for message in messages:
                    yield message
                    parts += 1
            yield End(parts)
        finally:
            snapshot.close()

    async def _rows_about(self, tables: Sequence[int]) -> int | None:
        """The progress of a base needs a total, and waits for none."""
        sizes = await self._sizes.of(tables)
        rows = [sizes[table].rows if table in sizes else None for table in tables]
        return None if None in rows else sum(one or 0 for one in rows)

    async def log(self, target: str, identity: str, after_epoch: int, after_seq: int) -> AsyncGenerator[bytes, None]:
        """The log behind a point, as messages. Raises NotActive, Unavailable, Refused, Conflict before the first one."""
        epoch = self._serving.for_reads()
        self._check(identity, self._wal.pair)
        upto = epoch.core.committed
        state = self._engine.applied
        if after_seq > upto or not contains(state.epochs, after_epoch, after_seq):
            raise Conflict(
                f"the log of site {self._site} does not hold sequence {after_seq} of epoch {after_epoch}: it left the log of "
                "the backup before that; begin a new base (--new-base)", epoch=after_epoch, seq=after_seq,
            )
        await self._holds.register(target)
        self._holds.advance(target, after_epoch, after_seq)
        frames = await self._next(after_seq, upto)  # before the first message: whoever asks hears why it gets none
        yield encode_message(self._head(state, self._wal.pair, of_base=False))
        parts = 0
        while frames:
            yield encode_message(Frames(b"".join(frame.data for frame in frames)))
            frames, parts = await self._next(frames[-1].last_seq, upto), parts + 1
        yield encode_message(End(parts))

    async def _next(self, after_seq: int, upto_seq: int) -> list[Frame]:
        try:
            return await self._wal.read(after_seq, upto_seq, LOG_BYTES)
        except LogGap as error:
            raise Conflict(
                f"the log of site {self._site} begins behind sequence {after_seq}: what lies between was not kept for this "
                "backup; begin a new base (--new-base)", seq=after_seq,
            ) from error

    async def kept(self, identity: str, after_epoch: int, after_seq: int) -> AsyncGenerator[bytes, None]:
        """Messages of what this site kept as an earlier active. Raises Unavailable, Refused, Conflict as `log` does."""
        if self._serving.reading is None and not self._serving.reads_stale:
            raise Unavailable(f"site {self._site} neither leads nor follows now, or is being filled", retry_after_s=10)
        state = self._engine.applied
        frames, pair = await self._next_kept(state, after_epoch, after_seq)
        if not frames:
            raise Conflict(f"site {self._site} keeps nothing behind sequence {after_seq}", seq=after_seq)
        self._check(identity, pair)
        yield encode_message(self._head(state, pair, of_base=False))
        parts = 0
        while frames:
            yield encode_message(Frames(b"".join(frame.data for frame in frames)))
            (frames, _), parts = await self._next_kept(state, frames[-1].epoch, frames[-1].last_seq), parts + 1
        yield encode_message(End(parts))

    async def _next_kept(self, state: EngineState, after_epoch: int, after_seq: int) -> tuple[list[Frame], str]:
        if not contains(state.epochs, after_epoch, after_seq):
            return [], ""
        frames, pair = await self._kept.read(after_seq, state.seq, LOG_BYTES)
        return [frame for frame in frames if contains(state.epochs, frame.epoch, frame.last_seq)], pair

    async def complete(self, target: str, identity: str, epoch: int, seq: int) -> None:
        """The backup has everything up to this point. Raises Refused."""
        self._check(identity, self._identity())
        await self._holds.complete(target, epoch, seq)

    async def release(self, target: str, identity: str = "") -> None:
        """Nothing is kept for `target` any more. Raises Refused if the caller names the identity of another pair."""
        if identity and (own := self._identity()) and identity != own:
            raise Refused(
                f"it is the backup of another pair ({identity}), and this is pair {self._pair} ({own}): nothing was released;"
                " name the configuration of the backup's own pair"
            )
        await self._holds.release(target)

    def _check(self, identity: str, own: str) -> None:
        if identity != own:
            raise Refused(
                f"its place holds a backup of another pair ({identity}), and this is pair {self._pair}"
                f" ({own or 'not known yet'}): give this one a place of its own"
            )

    def _head(self, state: EngineState, identity: str, *, of_base: bool) -> BackupHead:
        point = ReachedPoint(state.epoch, state.seq, state.timestamp)
        schemas, epochs = (state.schemas(), list(state.epochs)) if of_base else ({}, [])
        return BackupHead(self._pair, identity, self._site, point, self._encrypted, schemas, epochs)


async def _rows(snapshot: Snapshot, state: EngineState) -> AsyncGenerator[Message, None]:
    begin = BaseProgress(state.epoch, 0, 0, state.seq, state.epoch, state.seq, state.epoch)
    bounds = {"entries_max": PART.part_entries, "bytes_max": PART.part_bytes}
    async with aclosing(base_parts(snapshot, sorted(state.schemas()), begin, **bounds)) as parts:
        async for part in parts:
            yield RowsMessage(rows_of(part.rows), part.outcomes)
