"""The StorageEngine contract: what one site's storage must do, whatever database is behind it.

What always holds:
- `apply` writes the frames' effects and the watermark (`applied.seq`, `applied.epoch`) in ONE transaction, frames in order; a
  frame at or below it is skipped (replay is idempotent); a frame whose `previous` is not `applied.seq` is a LogGap.
- after a crash the engine holds a prefix of what was applied, never part of a transaction; `durable_seq` says which.
- two engines that applied the same frames hold the same rows: same key bytes, value bytes, version;
- a write or flush that failed is the last one: `failure` says why, and nothing more is written before `reopen`, since what
  the database still has in memory is not to be trusted.
One contract test (tests/storage/engines/engine_contract.py) runs against every engine. Source: protocol.md 4, product.md 3.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec

from storage.log.frame import COUNTER_BITS, Frame
from storage.rows.schema import decode_schema


class StoredRow(msgspec.Struct, frozen=True, gc=False):
    """A row as stored: `key` encoded primary key, `value` encoded other columns (rows/codec.py), `version` hybrid timestamp."""

    key: bytes
    value: bytes
    version: int


class EpochEntry(msgspec.Struct, frozen=True, gc=False):
    """The begin of an epoch: the sequence of its start record, and the recorded end of the epoch before."""

    epoch: int
    first_seq: int
    previous: int
    site: str
    kind: str


def horizon(now_ms: int, kept_s: int) -> int:
    """The hybrid timestamp `kept_s` before `now_ms`; what ended at or before it may go."""
    return max(now_ms - kept_s * 1000, 0) << COUNTER_BITS


class Table(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A table as an engine keeps it: its schema as it came, the seconds for which old versions stay readable, and the version
    before which they were not kept here."""

    schema: bytes
    history_s: int
    since: int = 0

    def following(self, before: Table | None, version: int) -> Table:
        """This table as a record of `version` made it of what was there `before`."""
        if before is None:
            return self
        since = before.since if before.history_s > 0 else max(before.since, version)
        return Table(self.schema, self.history_s, since)


class TableSet:
    """Every table by its id. Never changed in place: readers on other threads hold it."""

    __slots__ = ("by_id", "with_history")

    def __init__(self, by_id: Mapping[int, Table]) -> None:
        self.by_id = by_id
        self.with_history = frozenset(number for number, table in by_id.items() if table.history_s > 0)

    @classmethod
    def of_base(cls, schemas: Mapping[int, bytes], version: int) -> TableSet:
        """Tables that came with a base: their schemas say themselves how long their history is kept, from `version` on."""
        return cls({number: Table(schema, decode_schema(schema).history_s, version) for number, schema in schemas.items()})

    def changed(self, number: int, table: Table | None) -> TableSet:
        """Returns these tables with `table` put, or dropped where None."""
        by_id = {**self.by_id, number: table}
        return TableSet({number: table for number, table in by_id.items() if table is not None})

    def without_history(self, numbers: Collection[int], version: int) -> TableSet:
        """The versions of some rows of the tables `numbers` were forgotten as far as they lie before `version`."""
        return TableSet({
            number: Table(table.schema, table.history_s, max(table.since, version)) if number in numbers else table
            for number, table in self.by_id.items()
        })

    def schemas(self) -> dict[int, bytes]:
        return {number: table.schema for number, table in self.by_id.items()}

    def history_from(self, number: int, last_timestamp: int, now_ms: int) -> int:
        """The oldest version that an as-of read of table `number` answers truly, with `last_timestamp` applied."""
        table = self.by_id.get(number)
        if table is None:
            return 0
        return max(table.since, horizon(now_ms, table.history_s) if table.history_s > 0 else last_timestamp)


NO_TABLES = TableSet({})


class EngineState(NamedTuple):
    """The state that an engine has applied: replaced as a whole with each write, so that no reader sees half of a change.

    `seq`, `epoch`: of the last frame; `timestamp`: the largest hybrid timestamp; `base`: the progress of the last part of an
    unfinished base that is in, here or after a crash, or None; `tables`: those that are not dropped; `epochs`: every epoch
    start, ascending.
    """

    seq: int = 0
    epoch: int = 0
    timestamp: int = 0
    base: bytes | None = None
    tables: TableSet = NO_TABLES
    epochs: tuple[EpochEntry, ...] = ()

    @property
    def loading(self) -> bool:
        """A base was begun and not finished, here or before a crash: the rows are no prefix, `apply` refuses."""
        return self.base is not None

    def schemas(self) -> dict[int, bytes]:
        """Table id -> msgpack of its current TableSchema. Dropped tables are absent."""
        return self.tables.schemas()

    def history_from(self, table: int, now_ms: int) -> int:
        """The oldest version that an as-of read of `table` answers truly at `now_ms`.

        Of a table without `history_s`, the last that was applied. Versions do not come with base data, nor with rows that a
        rejoin fetched.
        """
        return self.tables.history_from(table, self.timestamp, now_ms)


class RequestOutcome(msgspec.Struct, frozen=True, gc=False):
    """The answer that an idempotency key got: enough to answer it again, also on the other site."""

    digest: bytes
    epoch: int
    seq: int  # of the request's last record
    version: int  # of the request's last record
    count: int
    was_async: bool  # the frame was encoded in an asynchronous mode


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """A snapshot with a name, which another process can read without the engine.

    `seq` and `epoch`: of the last frame that it holds. `place`: `rocksdb:<absolute folder>`, `postgresql:<exported snapshot>`,
    `sqlite:<absolute file>` or `memory:`. `taken_ms`: milliseconds since 1970, as its caller gave it.
    """

    name: str
    seq: int
    epoch: int
    taken_ms: int
    place: str


class TableSize(NamedTuple):
    """The size of a table now, without the old versions of its rows.

    `rows` None: not known; `is_counted`: they are exactly so many, else about; `bytes`: of their keys and values, before any
    compression, as exact as the rows; `disk_bytes`: what the table takes in its database with its indexes, None where the
    database does not keep tables apart on its disk.
    """

    rows: int | None
    is_counted: bool
    bytes: int | None
    disk_bytes: int | None = None


class RefusedChange(NamedTuple):
    """A schema change of the log that the database behind an engine refuses, and its words."""

    epoch: int
    seq: int
    table: int
    problem: str

    def is_behind(self, state: EngineState) -> bool:
        """True once the storage has passed the change, or the log has cut it off. A later epoch takes its sequence again."""
        return (self.epoch, self.seq) <= (state.epoch, state.seq)


class Snapshot(Protocol):
    """A consistent view at exactly `seq`. Must be closed.

    By the time that it is given, its engine may have applied more, also changes of schemas.
    """

    seq: int

    async def state(self) -> EngineState:
        """The state that was applied at `seq`, read from the snapshot itself, off the event loop."""

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, bytes_max: int | None = None
    ) -> Sequence[StoredRow]:
        """At most `limit` rows of `[start, end)` in key order (or reversed), off the event loop. None: unbounded.

        With `bytes_max` (above 0) the row whose key and value bring the sum to it is the last: only an answer without any
        row says that there are no more.
        """

    async def request_outcomes(self, after: str | None, *, limit: int) -> Sequence[tuple[str, RequestOutcome]]:
        """At most `limit` idempotency keys above `after` with what they answered, in key order, off the event loop.

        None: from the first.
        """

    def close(self) -> None: ...


class StorageEngine(Protocol):
    @property
    def applied(self) -> EngineState:
        """The state that is applied now: one value, replaced as a whole, so all that is read from it is of one moment."""

    @property
    def durable_seq(self) -> int:
        """Everything up to here survives a crash of process and machine."""

    @property
    def failure(self) -> str | None:
        """The reason why nothing is written any more, until `reopen`. None: all is well."""

    @property
    def refused(self) -> RefusedChange | None:
        """The schema change at which an `apply` failed, until it is applied. `unshown.leave_unshown` is the way on where the
        database cannot be brought to take it."""

    async def prepare_schema(self, table: int, schema: bytes | None) -> None:
        """Tries whether a change of `table` to `schema` (None: its drop) would be applied now. Nothing is changed by it.

        Raises InvalidInput, with the database's words, when it would be refused; Unavailable or EngineFailed when that cannot
        be said now.
        """

    async def reopen(self) -> None:
        """Close what is left, and open the same storage again in this same object, as after a crash: it then holds a prefix of
        what was applied, never less than `durable_seq` was. Not during an apply.

        Calls that come meanwhile, and snapshots made before, raise EngineFailed. Raises EngineFailed when it cannot be
        opened: it stays failed, and this may be called again.
        """

    async def apply(self, frames: Sequence[Frame]) -> None: ...

    async def flush(self) -> int:
        """Make everything applied so far durable; the new `durable_seq`."""

    async def get(self, table: int, key: bytes) -> StoredRow | None:
        """A point read of what is applied. An embedded engine answers at once; one that asks a server waits off the loop."""

    async def get_as_of(self, table: int, key: bytes, as_of: int) -> StoredRow | None: ...

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, as_of: int | None = None
    ) -> Sequence[StoredRow]:
        """At most `limit` rows of `[start, end)`, off the event loop."""

    async def snapshot(self) -> Snapshot: ...

    async def keep_snapshot(self, name: str, taken_ms: int) -> None:
        """Keep all that is applied now, in place of another snapshot of this name; that of this very point stays as it is.

        What it holds is durable when this returns. No apply meanwhile: one that comes first makes it EngineFailed. One that
        failed leaves nothing, and the engine continues unless `failure` says otherwise.
        """

    def kept_snapshots(self) -> list[KeptSnapshot]:
        """Those that can be read now, the oldest first. After a restart: those that do not live in a connection."""

    async def release_snapshot(self, name: str) -> None:
        """Forget it, and free what it takes. None of that name: nothing to do."""

    async def request_outcome(self, key: str) -> RequestOutcome | None:
        """Returns the answer of the request under this idempotency key, as far as it is applied and not purged."""

    def meta(self, name: str) -> bytes | None:
        """A site-local durable note (role, rejoin floor, ...). Not replicated."""

    async def set_meta(self, name: str, value: bytes | None) -> None:
        """Durable when it returns."""

    async def replace_rows(
        self, rows: Sequence[tuple[int, bytes, StoredRow | None]], applied_seq: int, applied_epoch: int, last_timestamp: int
    ) -> None:
        """Rejoin only: set (or delete) these (table, key) rows and move the watermark BACK to `applied_seq`.

        Epochs above `applied_epoch` are forgotten, and so are the history of these rows and the outcomes of requests
        above `applied_seq`: they may be of what is cut. The rows are not older than `last_timestamp`, up to which nothing is
        known of their versions. One durable transaction.
        """

    async def load_base(
        self, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
        first: bool, schemas: dict[int, bytes] | None,
    ) -> None:
        """A part of the base data of a standby: `first` empties the engine and marks it as loading (applied_seq = 0).

        `schemas`: of every table that there is from here on, as a part names them that is the first from its snapshot; rows of
        a table that is not among them any more go. None: as before. `outcomes`: idempotency keys with what they
        answered. `progress` is in the same transaction. Only the emptying is durable when it returns.
        """

    async def finish_base(self, seq: int, epoch: int, last_timestamp: int, epochs: Sequence[EpochEntry]) -> None:
        """Completes the base: the log continues after `seq`; durable when it returns.

        Rows may be as late as `last_timestamp`: applying what lies between brings all to the same point.
        """

    async def purge(self, now_ms: int) -> None:
        """Forget versions older than their table's `history_s`, and request outcomes older than their time to live."""

    async def table_size(self, table: int) -> TableSize | None:
        """Counts the rows of a small table, and estimates those of a larger one from a sample, in bounded time. None: there is
        no such table, perhaps not any more. Raises EngineFailed."""

    def counters(self) -> dict[str, int]:
        """Row-independent figures for metrics (bytes on disk, memtable bytes, ...)."""

    async def close(self) -> None: ...


