"""The sender of base data, at the active: fills a follower from a snapshot, and goes on where the one before was cut off.

What always holds:
- the follower's own progress decides where to go on. As long as the snapshot that it came from is held, from there in that one;
- once that snapshot is gone, the rest comes from a new one, of a later point: what changed meanwhile in the rows that are in
  already is in the log after the first snapshot's point, which the follower applies before anything else. Applied again, the
  records end in the same row. So this is done only while the WAL reaches back to there, and where this log contains the point
  up to which the follower has rows; else the base begins again;
- a snapshot keeps files and memory of the database: one that brought nobody forward for `hold_s` is let go.
Source: protocol.md section 7.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from remote_log.replication.base_parts import base_parts
from remote_log.replication.epoch_history import common_end
from remote_log.replication.messages import (
    BASE,
    BASE_DONE,
    BaseDoneRequest,
    BaseProgress,
    BaseRequest,
    Position,
    pack_history,
    pack_outcomes,
)
from storage.clock import Clock
from storage.engine import EpochEntry, Snapshot, StorageEngine
from storage.log.wal import Wal
from twinlog.errors import EngineFailed, Refused


@dataclass(frozen=True, slots=True)
class BaseSettings:
    part_entries: int = 2_000  # rows and request outcomes
    part_bytes: int = 2 << 20  # of rows
    hold_s: float = 600.0  # a snapshot of which nothing was taken for so long is let go


@dataclass(slots=True)
class _Held:
    """A snapshot, with what else was true at its point."""

    snapshot: Snapshot
    load: int
    epoch: int  # of the snapshot's last record
    last_timestamp: int
    schemas: dict[int, bytes]
    used_s: float


class BaseSender:
    """Of one epoch. `call` sends a request to the follower and gives its answer."""

    def __init__(
        self, *, epoch: int, engine: StorageEngine, wal: Wal, clock: Clock,
        call: Callable[[str, BaseRequest | BaseDoneRequest], Awaitable[Position]], settings: BaseSettings,
    ) -> None:
        self._epoch, self._engine, self._wal, self._clock = epoch, engine, wal, clock
        self._call, self._settings = call, settings
        self._held: _Held | None = None
        self._loads = 0  # begun in this epoch, by snapshot: with the epoch it names one for ever
        self.rows_sent = 0

    async def send(self, progress: BaseProgress | None) -> Position:
        """Everything that is behind `progress`, the follower's own word (None: it has nothing). Its answer to the end."""
        held = self._held
        if held is None or progress is None or (progress.epoch, progress.load) != (self._epoch, held.load):
            held = await self._take()
            if progress is not None and not self._goes_on(progress):
                progress = None
        try:
            progress = await self._send_parts(held, progress)
            return await self._send_end(held, progress)
        except EngineFailed:
            self.release()  # the storage may have been opened anew, and the snapshot with it
            raise

    def release(self) -> None:
        """Let the snapshot go, if one is held."""
        held, self._held = self._held, None
        if held is not None:
            held.snapshot.close()

    def release_unused(self) -> None:
        """Let it go if nobody came forward with it for too long."""
        if self._held is not None and self._clock.monotonic_s() - self._held.used_s >= self._settings.hold_s:
            self.release()

    async def _take(self) -> _Held:
        self.release()
        snapshot = await self._engine.snapshot()
        self._loads += 1
        self._held = _Held(
            snapshot, self._loads, self._history(snapshot.seq)[-1].epoch, self._engine.last_timestamp, self._engine.schemas(),
            self._clock.monotonic_s(),
        )
        return self._held

    def _history(self, seq: int) -> list[EpochEntry]:
        return [entry for entry in self._engine.epochs() if entry.first_seq <= seq]

    def _goes_on(self, progress: BaseProgress) -> bool:
        """Whether the rows that `progress` tells of are of this log, and the WAL holds what changed in them since."""
        first = self._wal.first_previous
        if first is None or progress.seq < first:
            return False
        try:
            return common_end(self._engine.epochs(), progress.floor_epoch, progress.floor) == progress.floor
        except Refused:
            return False

    async def _send_parts(self, held: _Held, progress: BaseProgress | None) -> BaseProgress:
        """All parts behind `progress`; the progress with the last one."""
        seq = held.snapshot.seq
        if progress is None:
            at = BaseProgress(self._epoch, held.load, 0, seq, held.epoch, seq, held.epoch)
        else:
            at = msgspec.structs.replace(progress, epoch=self._epoch, load=held.load, floor=seq, floor_epoch=held.epoch)
        schemas: dict[int, bytes] | None = held.schemas
        if progress is not None and (progress.epoch, progress.load) == (self._epoch, held.load):
            schemas = None  # they came with the first part of this load
        bounds = {"entries_max": self._settings.part_entries, "bytes_max": self._settings.part_bytes}
        async with aclosing(base_parts(held.snapshot, sorted(held.schemas), at, **bounds)) as parts:
            async for part in parts:
                upto = part.moves(at)
                rows = [(table, row.key, row.value, row.version) for table, row in part.rows]
                outcomes = pack_outcomes(part.outcomes)
                await self._call(BASE, BaseRequest(self._epoch, progress, upto, schemas, rows, outcomes))
                schemas = None
                held.used_s = self._clock.monotonic_s()
                self.rows_sent += len(rows)
                progress = at = upto
        return at

    async def _send_end(self, held: _Held, progress: BaseProgress) -> Position:
        history = pack_history(self._history(progress.seq))
        done = BaseDoneRequest(self._epoch, progress, held.last_timestamp, history)
        position = await self._call(BASE_DONE, done)
        self.release()
        return position
