"""The parts of tests of storage engines: records, the frames of one log, and the `Rig` around an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from storage.engine import StorageEngine, StoredRow
from storage.log.frame import COUNTER_BITS, Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind, RequestMark, SchemaChange
from storage.rows.schema import TableSchema, encode_schema

encode = msgspec.msgpack.encode
T = 7  # the table of most tests
SECOND = 1000 << COUNTER_BITS  # of hybrid time


class Rig(Protocol):
    """An engine, and what can happen to it from outside."""

    @property
    def engine(self) -> StorageEngine: ...

    async def crash(self) -> None:
        """The process dies and starts again: `engine` is a new one on what was durable."""

    async def restart(self) -> None:
        """Closed and opened again."""

    def break_down(self) -> None:
        """From here on the engine cannot make anything durable, nor be opened."""

    def repair(self) -> None:
        """Takes away what was in the way."""


def value(**columns: object) -> bytes:
    return encode({int(name[1:]): content for name, content in columns.items()})


def upsert(key: bytes, content: bytes, table: int = T, request: bytes = b"") -> Record:
    return Record(kind=int(RecordKind.UPSERT), table=table, key=key, value=content, request=request)


def update(key: bytes, content: bytes, table: int = T) -> Record:
    return Record(kind=int(RecordKind.UPDATE), table=table, key=key, value=content)


def delete(key: bytes, table: int = T) -> Record:
    return Record(kind=int(RecordKind.DELETE), table=table, key=key)


def noop() -> Record:
    return Record(kind=int(RecordKind.NOOP))


def schema_of(table: int, history_s: int = 0, name: str = "t") -> bytes:
    return encode_schema(
        TableSchema(
            id=table, name=name, columns=(), primary_key=(), partitioning=None, replication="sync",
            history_s=history_s, revision=1, next_column_id=1,
        )
    )


def put_table(table: int = T, history_s: int = 0, name: str = "t") -> Record:
    change = SchemaChange(kind="put", table=table, schema=schema_of(table, history_s, name), history_s=history_s)
    return Record(kind=int(RecordKind.DDL), table=table, value=encode(change))


def drop_table(table: int = T) -> Record:
    change = SchemaChange(kind="drop", table=table, schema=b"", history_s=0)
    return Record(kind=int(RecordKind.DDL), table=table, value=encode(change))


def start_epoch(epoch: int, site: str = "a", kind: str = "restart") -> Record:
    return Record(kind=int(RecordKind.EPOCH_START), value=encode(EpochStart(epoch=epoch, site=site, kind=kind, plan="")))


def request(key: str, count: int = 1) -> bytes:
    return encode(RequestMark(key=key, digest=b"digest of " + key.encode(), count=count))


class Log:
    """Makes the frames of one log, each following the one before; `timestamp` may be set forward."""

    def __init__(self) -> None:
        self.seq = 0
        self.epoch = 1
        self.timestamp = 1000 * SECOND

    def frame(self, *records: Record, flags: int = 0) -> Frame:
        self.timestamp += 10
        frame = make_frame(
            epoch=self.epoch, first_seq=self.seq + 1, previous=self.seq, timestamp=self.timestamp, committed=self.seq,
            records=list(records), flags=flags,
        )
        self.seq = frame.last_seq
        self.timestamp += frame.count - 1
        return frame

    def frame_after_excluded(self, excluded: int, *records: Record) -> Frame:
        """A frame whose `previous` leaves out `excluded` sequences that failed."""
        self.timestamp += 10
        frame = make_frame(
            epoch=self.epoch, first_seq=self.seq + excluded + 1, previous=self.seq, timestamp=self.timestamp,
            committed=self.seq, records=list(records),
        )
        self.seq = frame.last_seq
        self.timestamp += frame.count - 1
        return frame


async def scan(engine: StorageEngine, table: int = T, **how: Any) -> dict[bytes, bytes]:
    """Key to value, in the order of the answer."""
    rows = await engine.scan(
        table, how.get("start"), how.get("end"), reverse=how.get("reverse", False), limit=how.get("limit", 1000),
        as_of=how.get("as_of"),
    )
    return {row.key: row.value for row in rows}


def keys(rows: Sequence[StoredRow]) -> list[bytes]:
    return [row.key for row in rows]


# Keys whose order is easily got wrong: one a prefix of another, zero bytes, the largest byte.
TRICKY = [
    b"", b"\x00", b"\x00\x00", b"\x00\xff", b"a", b"a\x00", b"a\x00\x00", b"a\x00b", b"a\x01", b"b", b"\xff", b"\xff\xff"
]
