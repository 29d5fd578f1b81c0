"""Base data at the active: everything an engine holds at one point, cut into parts, and their sender.

`BaseSender` fills a follower from a snapshot, and resumes where the one before was cut off. What always holds:
- parts come in key order, the rows of one table after another, then what idempotency keys answered, so that a retry is
  answered from the record at the filled site too; a part is bounded by entries, and by bytes of rows (one row more at most; an
  outcome is small); there is always a first part, also of nothing. A place in that order says how far a base has come, so
  another snapshot can resume where one ended;
- the follower's own progress decides where the sender resumes: in the snapshot that it came from, as long as that is held;
- once that snapshot is gone, the rest comes from a new one, of a later point: what changed meanwhile in the rows that are in
  already is in the log after the first snapshot's point, which the follower applies before anything else. Applied again, the
  records end in the same row. So this is done only while the WAL reaches back to there, and where this log contains the point
  up to which the follower has rows; else the base begins again;
- a snapshot keeps files and memory of the database: one that brought nobody forward for `hold_s` is let go.
Source: protocol.md section 7.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

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
from storage.engine import EngineState, RequestOutcome, Snapshot, StorageEngine, StoredRow
from storage.log.wal import Wal
from twinlog.errors import EngineFailed, Refused


@dataclass(frozen=True, slots=True)
class BaseSettings:
    part_entries: int = 2_000  # rows and request outcomes
    part_bytes: int = 2 << 20  # of rows
    hold_s: float = 600.0  # a snapshot that nothing was taken from for so long is let go


@dataclass(slots=True)
class _Held:
    """A snapshot, with the state at its point."""

    snapshot: Snapshot
    load: int
    state: EngineState
    schemas: dict[int, bytes]
    used_s: float


class BaseSender:
    """Sends the base data of one epoch. `call` sends a request to the follower and gives its answer."""

    def __init__(
        self, *, epoch: int, engine: StorageEngine, wal: Wal, clock: Clock,
        call: Callable[[str, BaseRequest | BaseDoneRequest], Awaitable[Position]], settings: BaseSettings,
    ) -> None:
        self._epoch, self._engine, self._wal, self._clock = epoch, engine, wal, clock
        self._call, self._settings = call, settings
        self._held: _Held | None = None
        self._loads = 0  # begun in this epoch, by snapshot: with the epoch it names one for ever
        self.rows_sent = 0

    async def send(self, progress: BaseProgress | None, nonce: str) -> Position:
        """Everything that is behind `progress`, the follower's own word (None: it has nothing), under the `nonce` with which it
        asked. Its answer to the end."""
        held = self._held
        if held is None or progress is None or (progress.epoch, progress.load) != (self._epoch, held.load):
            held = await self._take()
            if progress is not None and not self._goes_on(progress):
                progress = None
        try:
            progress = await self._send_parts(held, progress, nonce)
            return await self._send_end(held, progress, nonce)
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
        try:
            state = await snapshot.state()
        except BaseException:
            snapshot.close()
            raise
        self._loads += 1
        self._held = _Held(snapshot, self._loads, state, state.schemas(), self._clock.monotonic_s())
        return self._held

    def _goes_on(self, progress: BaseProgress) -> bool:
        """True when the rows that `progress` names are of this log, and the WAL holds what changed in them since."""
        first = self._wal.first_previous
        if first is None or progress.seq < first:
            return False
        try:
            return common_end(self._engine.applied.epochs, progress.floor_epoch, progress.floor) == progress.floor
        except Refused:
            return False

    async def _send_parts(self, held: _Held, progress: BaseProgress | None, nonce: str) -> BaseProgress:
        """All parts behind `progress`; the progress with the last one."""
        seq, epoch = held.state.seq, held.state.epoch
        if progress is None:
            at = BaseProgress(self._epoch, held.load, 0, seq, epoch, seq, epoch)
        else:
            at = msgspec.structs.replace(progress, epoch=self._epoch, load=held.load, floor=seq, floor_epoch=epoch)
        schemas: dict[int, bytes] | None = held.schemas
        if progress is not None and (progress.epoch, progress.load) == (self._epoch, held.load):
            schemas = None  # they came with the first part of this load
        bounds = {"entries_max": self._settings.part_entries, "bytes_max": self._settings.part_bytes}
        async with aclosing(base_parts(held.snapshot, sorted(held.schemas), at, **bounds)) as parts:
            async for part in parts:
                upto = part.moves(at)
                rows = [(table, row.key, row.value, row.version) for table, row in part.rows]
                outcomes = pack_outcomes(part.outcomes)
                await self._call(BASE, BaseRequest(self._epoch, nonce, progress, upto, schemas, rows, outcomes))
                schemas = None
                held.used_s = self._clock.monotonic_s()
                self.rows_sent += len(rows)
                progress = at = upto
        return at

    async def _send_end(self, held: _Held, progress: BaseProgress, nonce: str) -> Position:
        history = pack_history([entry for entry in held.state.epochs if entry.first_seq <= progress.seq])
        done = BaseDoneRequest(self._epoch, nonce, progress, held.state.timestamp, history)
        position = await self._call(BASE_DONE, done)
        self.release()
        return position


@dataclass(slots=True)
class BasePart:
    rows: list[tuple[int, StoredRow]] = field(default_factory=list)
    row_bytes: int = 0
    outcomes: list[tuple[str, RequestOutcome]] = field(default_factory=list)

    @property
    def entries(self) -> int:
        return len(self.rows) + len(self.outcomes)

    def moves(self, progress: BaseProgress) -> BaseProgress:
        """`progress` once this part is in, too."""
        table, key = (self.rows[-1][0], self.rows[-1][1].key) if self.rows else (progress.table, progress.key)
        request = self.outcomes[-1][0] if self.outcomes else progress.request
        return msgspec.structs.replace(progress, part=progress.part + 1, table=table, key=key, request=request)


async def base_parts(
    snapshot: Snapshot, tables: Sequence[int], progress: BaseProgress, *, entries_max: int, bytes_max: int
) -> AsyncGenerator[BasePart, None]:
    """The snapshot's rows of `tables`, ascending, and its request outcomes, as far as they lie behind `progress`."""
    part = BasePart()
    for table in tables if progress.request is None else ():
        if table < progress.table:
            continue
        start = progress.key + b"\0" if table == progress.table else None
        while rows := await snapshot.scan(
            table, start, None, reverse=False, limit=entries_max - part.entries, bytes_max=bytes_max - part.row_bytes
        ):
            part.rows += [(table, row) for row in rows]
            part.row_bytes += sum(len(row.key) + len(row.value) for row in rows)
            start = rows[-1].key + b"\0"
            if part.entries >= entries_max or part.row_bytes >= bytes_max:
                yield part
                part = BasePart()
    after = progress.request
    while outcomes := await snapshot.request_outcomes(after, limit=entries_max - part.entries):
        part.outcomes += outcomes
        after = outcomes[-1][0]
        if part.entries >= entries_max:
            yield part
            part = BasePart()
    yield part
