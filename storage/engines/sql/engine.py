"""The SQL engine: PostgreSQL (psycopg 3), and SQLite by the same code, through SQLAlchemy Core.

What always holds:
- the effects of all frames of an `apply` and the watermark are one transaction, collected by the same code as for RocksDB;
- a commit does not wait for the database's disk, since the log has everything: `flush` does, and then says so in `durable_seq`;
- the first write that failed is the last before `reopen`, which makes a new connection in the same object; what the database
  kept is then a prefix, and the log brings the rest again;
- no call of the database is made on the event loop, and a lost connection of a read is made anew once.
Threads: one applies, one answers point reads, one scans and reads snapshots, one keeps up (flush, notes, purge, base data).
A change of a schema needs PostgreSQL's exclusive lock of that table, so it ends the snapshots that are open.
Source: storage/engine.py, docs/decisions/2026-11-21-rows-in-sql.md.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Self, TypeVar

from sqlalchemy import Connection, Delete, Engine
from sqlalchemy.exc import DBAPIError

from storage.disk.workers import Worker
from storage.engine import EngineState, EpochEntry, KeptSnapshot, RefusedChange, RequestOutcome, StoredRow, TableSize
from storage.engines import unshown
from storage.engines.entries.effects import Effects
from storage.engines.entries.moves import Replacement, base_end, base_part, cut_back
from storage.engines.entries.write import EngineWrite
from storage.engines.meaning import admit, check_schema, refuse_unless_loading, refuse_when_failed, refuse_while_loading
from storage.engines.sql import reading, sizes
from storage.engines.sql.kept_snapshots import SqlSnapshots, snapshots_of
from storage.engines.sql.opening import (
    SqlParts,
    SqlSettings,
    is_refusal,
    let_go,
    make_durable,
    make_engine,
    open_database,
    problem_of,
    sql_errors,
)
from storage.engines.sql.snapshot import SqlSnapshot
from storage.engines.sql.writing import (
    PURGE_ROWS,
    ChangeRefused,
    TablePlaces,
    attempt_change,
    cut,
    expired_deletes,
    perform,
    put_note,
)
from storage.log.frame import Frame
from twinlog.errors import ConfigError, EngineFailed, InvalidInput, LogError

T = TypeVar("T")


class SqlEngine:
    """StorageEngine on a database of its own. Make it with `open`."""

    def __init__(self, settings: SqlSettings, engine: Engine, opened: SqlParts, kept: SqlSnapshots, upkeep: Worker) -> None:
        self._settings, self._engine, self._kept = settings, engine, kept
        self._take(opened)
        self._applier, self._getter, self._reader = Worker("sql-apply"), Worker("sql-get"), Worker("sql-read")
        self._upkeep = upkeep
        self._writing = threading.Lock()  # around the writing connection, and around making a snapshot
        self.failure: str | None = None
        self.refused: RefusedChange | None = None
        self._closed = False
        self._snapshots: set[SqlSnapshot] = set()
        self._changing = 0  # changes of schemas under way
        self._disk_bytes = self._kept_bytes = 0

    def _take(self, opened: SqlParts) -> None:
        self._writer: Connection = opened.writer
        self._places: TablePlaces = opened.places
        self.applied, self._notes = opened.state, opened.notes
        self.durable_seq = opened.state.seq

    @classmethod
    async def open(cls, settings: SqlSettings) -> Self:
        """The engine on the database that `settings` name. Raises ConfigError, which names the setting."""
        upkeep = Worker("sql-upkeep")
        engine = make_engine(settings)
        try:
            opened, kept = await upkeep.submit(lambda: (open_database(engine, settings, reading.notes), snapshots_of(engine)))
        except BaseException:
            await upkeep.submit(engine.dispose)
            await upkeep.close()
            raise
        return cls(settings, engine, opened, kept, upkeep)

    # --- failure ---

    async def reopen(self) -> None:
        self.failure = self.failure or "it is being opened anew"
        await self._end_snapshots()
        await self._applier.submit(lambda: None)
        try:
            await self._upkeep.submit(self._reopen)
        except EngineFailed as error:
            self.failure = error.message  # what failed before may be mended by now
            raise

    def _reopen(self) -> None:
        with self._writing:
            let_go(self._writer, self._engine)
            try:
                self._take(open_database(self._engine, self._settings, reading.notes))
            except ConfigError as error:
                raise EngineFailed(f"the storage cannot be opened anew: {error.message}") from error
            self.failure = None

    def _write(self, work: Callable[[Connection], T], changes: unshown.Changes = unshown.NO_CHANGES) -> T:
        """In a thread, under the lock: `work` in one transaction of the writing connection. What fails is the last, but for
        a record that this release does not know: that is found before anything is written."""
        refuse_when_failed(self.failure)
        try:
            with sql_errors("the storage cannot write"), self._writer.begin():
                return work(self._writer)
        except ChangeRefused as change:
            at = changes.get(change.table)
            if at is not None:
                self.refused = RefusedChange(*at, change.table, change.problem)
            error = unshown.refusal_of(self._settings.site, change.problem, at)
            self.failure = error.message
            raise error from change
        except LogError:
            raise
        except Exception as error:
            self.failure = error.message if isinstance(error, EngineFailed) else problem_of(error)
            raise

    # --- apply ---

    async def apply(self, frames: Sequence[Frame]) -> None:
        """HOT. One call at a time; the larger the group, the cheaper each of its rows."""
        refuse_when_failed(self.failure)
        refuse_while_loading(self.applied.loading)
        new = admit(frames, self.applied.seq, self.applied.epoch)
        if not new:
            return
        changes = unshown.schema_changes(new)
        if not changes:
            await self._applier.submit(lambda: self._apply(new))
            return
        async with self._schema_changing():
            await self._applier.submit(lambda: self._apply(new, changes))

    @asynccontextmanager
    async def _schema_changing(self) -> AsyncIterator[None]:
        """In it no snapshot is open, and none is made."""
        self._changing += 1
        try:
            await self._end_snapshots()
            yield
        finally:
            self._changing -= 1

    def _apply(self, frames: list[Frame], changes: unshown.Changes = unshown.NO_CHANGES) -> None:
        state = self.applied

        def work(connection: Connection) -> tuple[EngineState, TablePlaces]:
            current = reading.current_rows(connection, self._places, state.tables.with_history, frames)
            effects = Effects(current, state)
            for frame in frames:
                effects.add(frame)
            write = effects.write()
            left = unshown.unshown_tables(self._notes.get(unshown.UNSHOWN), changes)
            return write.state, perform(connection, self._places, state, write, left)

        with self._writing:
            self._hold(*self._write(work, changes))

    @property
    def _unshown(self) -> Collection[int]:
        """The tables with a change that is not shown: base data and a rejoin bring schemas that have no sequence."""
        return unshown.unshown_upto(self._notes.get(unshown.UNSHOWN)).keys()

    def _hold(self, state: EngineState, places: TablePlaces) -> None:
        if self.refused is not None and self.refused.is_behind(state):
            self.refused = None
        self.durable_seq = min(self.durable_seq, state.seq)
        self._places, self.applied = places, state

    async def prepare_schema(self, table: int, schema: bytes | None) -> None:
        """The change itself, rolled back. It ends open snapshots, as the change does."""
        check_schema(schema)
        async with self._schema_changing():
            await self._applier.submit(lambda: self._prepare(table, schema))

    def _prepare(self, table: int, schema: bytes | None) -> None:
        with self._writing:
            refuse_when_failed(self.failure)
            try:
                with sql_errors("the change of a table cannot be tried"), self._writer.begin() as transaction:
                    attempt_change(self._writer, self._places, table, schema)
                    transaction.rollback()
            except EngineFailed as error:
                cause = error.__cause__
                if isinstance(cause, DBAPIError) and is_refusal(cause):
                    raise InvalidInput(problem_of(cause)) from cause
                if isinstance(cause, DBAPIError) and cause.connection_invalidated:
                    self.failure = error.message
                raise

    # --- reads ---

    async def get(self, table: int, key: bytes) -> StoredRow | None:
        return await self._getter.read(lambda: self._read(lambda one: reading.row(one, self._places.get(table), key)))

    async def request_outcome(self, key: str) -> RequestOutcome | None:
        return await self._getter.read(lambda: self._read(lambda one: reading.outcome(one, key)))

    async def get_as_of(self, table: int, key: bytes, as_of: int) -> StoredRow | None:
        def read(connection: Connection) -> StoredRow | None:
            return reading.row_as_of(connection, self._places.get(table), table, key, as_of)

        return await self._reader.read(lambda: self._read(read, one_moment=True))

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, as_of: int | None = None
    ) -> Sequence[StoredRow]:
        def read(connection: Connection) -> Sequence[StoredRow]:
            place = self._places.get(table)
            if as_of is None:
                return reading.rows(connection, place, start, end, reverse, limit)
            return reading.rows_as_of(connection, place, table, start, end, reverse, limit, as_of)

        return await self._reader.read(lambda: self._read(read, one_moment=as_of is not None))

    def _read(self, read: Callable[[Connection], T], one_moment: bool = False) -> T:
        """In a thread. Once more when the connection was lost, or the table was changed under the read."""
        if self._closed:
            raise EngineFailed("the storage is closed")
        try:
            return self._read_once(read, one_moment)
        except DBAPIError:
            with self._writing:
                pass  # a change of the table's schema is through, and `read` looks up the new one
        with sql_errors("the storage cannot read"):
            return self._read_once(read, one_moment)

    def _read_once(self, read: Callable[[Connection], T], one_moment: bool) -> T:
        with self._connect("REPEATABLE READ" if one_moment else "AUTOCOMMIT") as connection:
            return read(connection)

    def _connect(self, isolation: str) -> Connection:
        connection = self._engine.connect()
        return connection if self.is_sqlite else connection.execution_options(isolation_level=isolation)

    @property
    def is_sqlite(self) -> bool:
        return self._engine.dialect.name == "sqlite"

    async def snapshot(self) -> SqlSnapshot:
        """Returns a snapshot of one moment in which nothing is being applied. A change of a schema ends it."""
        if self._changing:
            raise _schema_is_changing()

        def take() -> SqlSnapshot:
            with sql_errors("the storage cannot read"), self._writing:
                return SqlSnapshot(self._connect("REPEATABLE READ"), dict(self._places), self._reader, self._snapshots)

        snapshot = await self._reader.read(take)
        self._snapshots.add(snapshot)
        if self._changing:  # the change began meanwhile, and ended those that it knew of
            snapshot.close()
            raise _schema_is_changing()
        return snapshot

    async def _end_snapshots(self) -> None:
        for snapshot in list(self._snapshots):
            snapshot.close()
        await self._reader.submit(lambda: None)
        await self._upkeep.submit(self._kept.end_connections)

    # --- kept snapshots ---

    async def keep_snapshot(self, name: str, taken_ms: int) -> None:
        state = self.applied
        await self._upkeep.submit(lambda: self._keep(name, taken_ms, state))

    def _keep(self, name: str, taken_ms: int, state: EngineState) -> None:
        self._flush()
        with self._writing:
            if self.applied is not state:
                raise EngineFailed("the storage was changed before the snapshot could be kept")
            self._kept.keep(name, state.seq, state.epoch, taken_ms)

    def kept_snapshots(self) -> list[KeptSnapshot]:
        return self._kept.held()

    async def release_snapshot(self, name: str) -> None:
        await self._upkeep.submit(lambda: self._kept.release(name))

    # --- upkeep ---

    async def flush(self) -> int:
        await self._upkeep.submit(self._flush)
        return self.durable_seq

    def _flush(self) -> None:
        with self._writing:
            refuse_when_failed(self.failure)
            seq = self.applied.seq
            try:
                with sql_errors("the storage cannot be made durable"):
                    make_durable(self._writer)
            except EngineFailed as error:
                self.failure = error.message
                raise
            self.durable_seq = seq

    def meta(self, name: str) -> bytes | None:
        return self._notes.get(name)

    async def set_meta(self, name: str, value: bytes | None) -> None:
        """On a connection of its own, whose commit waits for the disk."""
        def put() -> None:
            with sql_errors("a note cannot be written"), self._writing, self._engine.connect() as connection:
                with connection.execution_options(writes=True).begin():
                    put_note(connection, name, value)
                if self.is_sqlite and self.failure is None:
                    make_durable(self._writer)
            kept = {**self._notes, name: value}
            self._notes = {key: note for key, note in kept.items() if note is not None}

        await self._upkeep.submit(put)

    async def purge(self, now_ms: int) -> None:
        """Forget versions and outcomes whose time is over at `now_ms` (milliseconds since 1970)."""
        for some in expired_deletes(self.applied.tables, now_ms, self._settings.request_ttl_s):
            while await self._upkeep.submit(partial(self._purge, some)) == PURGE_ROWS:
                pass  # so many at a time that an apply does not wait long for its turn
        self._disk_bytes = await self._reader.submit(lambda: self._read(reading.size))
        self._kept_bytes = await self._reader.submit(self._kept.pinned_bytes)

    def _purge(self, some: Delete) -> int:
        with self._writing:
            return self._write(lambda connection: connection.execute(some).rowcount)

    async def table_size(self, table: int) -> TableSize | None:
        if table not in self.applied.tables.by_id:
            return None
        return await self._reader.read(lambda: self._read(lambda one: sizes.table_size(one, self._places.get(table))))

    def counters(self) -> dict[str, int]:
        """The size is that of the last purge: asking a server takes longer than metrics may wait."""
        known = {"disk_bytes": self._disk_bytes, "kept_bytes": self._kept_bytes}
        return {**known, "memtable_bytes": 0, "cache_bytes": 0, "pending_compaction_bytes": 0}

    async def close(self) -> None:
        """Make everything durable and let the database go. Closing twice is fine."""
        if self._closed:
            return
        await self._end_snapshots()
        self._closed = True
        for worker in (self._applier, self._getter, self._reader):
            await worker.close()
        try:
            if self.failure is None:
                await self._upkeep.submit(self._flush)
        finally:
            await self._upkeep.submit(lambda: let_go(self._writer, self._engine))
            await self._upkeep.close()

    # --- base data and rejoin ---

    async def replace_rows(
        self, rows: Sequence[Replacement], applied_seq: int, applied_epoch: int, last_timestamp: int
    ) -> None:
        def work() -> None:
            with self._writing:
                state = self.applied
                write = cut_back(state, rows, applied_seq, applied_epoch, last_timestamp)
                places = self._write(lambda connection: cut(connection, self._places, state, write, self._unshown))
                self._hold(write.state, places)

        await self._upkeep.submit(work)
        await self.flush()

    async def load_base(
        self, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
        first: bool, schemas: dict[int, bytes] | None,
    ) -> None:
        if not first:
            refuse_unless_loading(self.applied.loading)
        await self._upkeep_move(lambda: base_part(self.applied, rows, outcomes, progress, first, schemas), durably=first)

    async def finish_base(self, seq: int, epoch: int, last_timestamp: int, epochs: Sequence[EpochEntry]) -> None:
        refuse_unless_loading(self.applied.loading)
        write = base_end(self.applied, seq, epoch, last_timestamp, epochs)
        await self._upkeep_move(lambda: write, durably=True)

    async def _upkeep_move(self, make: Callable[[], EngineWrite], durably: bool) -> None:
        def work() -> None:
            with self._writing:
                write = make()
                places = self._write(lambda connection: perform(connection, self._places, self.applied, write, self._unshown))
                self._hold(write.state, places)

        async with self._schema_changing():
            await self._upkeep.submit(work)
        if durably:
            await self.flush()


def _schema_is_changing() -> EngineFailed:
    return EngineFailed("a table's schema is being changed: begin the read again")
