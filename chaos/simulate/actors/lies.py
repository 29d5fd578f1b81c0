"""Lies: messages of the other site that no honest site sends, each made of what their victim could be seen to hold.

What always holds: whoever makes them knows everything about the victim, also what only the other site can know; each frame has
a CRC that fits; each lie is to be refused without any effect. A row that is well formed and was never written is not among
them: its victim cannot notice, and the active finds it (tests/remote_log/replication/test_positions.py).
Source: protocol.md section 7.
This module is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import crc32c
import msgspec

from remote_log.replication.messages import (
    BASE,
    BASE_DONE,
    DRAIN,
    FOLLOW,
    MERGE,
    PREPARE,
    REPLICATE,
    ROWS,
    STEP_DOWN,
    UNDRAIN,
    BaseProgress,
    BaseRequest,
    History,
    LogPoint,
    to_message,
)
from storage.log.frame import COUNTER_BITS, HEADER_BYTES, MAGIC, VERSION, Flags
from storage.log.record import EpochStart, Record, RecordKind, RequestMark, SchemaChange, encode_records
from storage.rows.schema import Column, TableSchema, encode_schema

_HEADER = struct.Struct("<4sBBHIQQQQQII")
Message = tuple[str, dict[str, Any]]  # method, and what is sent
_pack = msgspec.msgpack.encode


class Victim(NamedTuple):
    """The state of the site that is lied to. `point`: its end; `row`: a row that it holds (table, key, value); `nonce`: of the
    base data that it asked for, or None."""

    epoch: int
    site: str
    peer: str
    point: LogPoint
    schema: TableSchema
    row: tuple[int, bytes, bytes]
    history: History
    wall_ms: int
    nonce: str | None = None

    @property
    def now(self) -> int:
        return self.wall_ms << COUNTER_BITS


def raw_frame(
    *, epoch: int, first_seq: int, previous: int, timestamp: int, committed: int, records: list[Record],
    count: int | None = None, flags: int = 0, log: int = 0, payload: bytes | None = None,
) -> bytes:
    """A frame as any bytes can be written: `count` need not be that of `records`."""
    payload = encode_records(records) if payload is None else payload
    count = len(records) if count is None else count
    bare = _HEADER.pack(
        MAGIC, VERSION, flags, log, count, epoch, first_seq, previous, timestamp, committed, len(payload), 0
    )
    crc = crc32c.crc32c(payload, crc32c.crc32c(bare))
    return bare[: HEADER_BYTES - 4] + crc.to_bytes(4, "little") + payload


def shipped(victim: Victim, *records: Record, **fields: Any) -> Message:
    """Frames as the active would ship them next, but for `fields`; `request_epoch` is the message's."""
    epoch, at = fields.pop("request_epoch", victim.epoch), victim.point
    frame = {
        "epoch": at.epoch, "first_seq": at.seq + 1, "previous": at.seq, "timestamp": victim.now, "committed": at.seq,
        "records": list(records or (Record(int(RecordKind.NOOP)),)), **fields,
    }
    return REPLICATE, {"epoch": epoch, "after": to_message(at), "frames": raw_frame(**frame), "flush": True}


def row_lie(value: Callable[[bytes], bytes] = lambda old: old, key: Callable[[bytes], bytes] = lambda old: old,
            table: Callable[[int], int] = lambda old: old, kind: RecordKind = RecordKind.UPSERT) -> Callable[[Victim], Message]:
    def lie(victim: Victim) -> Message:
        number, old_key, old = victim.row
        return shipped(victim, Record(int(kind), table(number), key(old_key), value(old)))

    return lie


def mark_lie(kind: int, table: int = 0, key: bytes = b"", value: bytes = b"", flags: int = 0) -> Callable[[Victim], Message]:
    return lambda victim: shipped(victim, Record(kind, table, key, value), flags=flags)


def schema_lie(**change: Any) -> Callable[[Victim], Message]:
    """A change of the victim's table that no door lets in."""
    def lie(victim: Victim) -> Message:
        schema = msgspec.structs.replace(victim.schema, revision=victim.schema.revision + 1, **change)
        value = _pack(SchemaChange("put", victim.schema.id, encode_schema(schema), schema.history_s))
        return shipped(victim, Record(int(RecordKind.DDL), victim.schema.id, value=value))

    return lie


def request_lie(count: int, key: str = "key") -> Callable[[Victim], Message]:
    def lie(victim: Victim) -> Message:
        table, row_key, value = victim.row
        return shipped(victim, Record(int(RecordKind.UPSERT), table, row_key, value, _pack(RequestMark(key, b"", count))))

    return lie


def start_lie(epoch: int, *, in_epoch: int = 0, site: str | None = None) -> Callable[[Victim], Message]:
    """A start of an epoch: `epoch` and `in_epoch` count from the one that is followed."""
    def lie(victim: Victim) -> Message:
        mark = _pack(EpochStart(victim.epoch + epoch, site or victim.peer, "restart", "p"))
        return shipped(victim, Record(int(RecordKind.EPOCH_START), value=mark), epoch=victim.point.epoch + in_epoch)

    return lie


def base_lie(epoch: int = 0, nonce: str = "guessed") -> Callable[[Victim], Message]:
    """A first part, which empties whoever takes it."""
    def lie(victim: Victim) -> Message:
        number = victim.epoch + epoch
        upto = BaseProgress(number, 1, 1, victim.point.seq + 9, number, victim.point.seq + 9, number)
        return BASE, to_message(BaseRequest(number, nonce, None, upto, {}, [], []))

    return lie


def base_done_lie(victim: Victim) -> Message:
    at = BaseProgress(victim.epoch, 1, 1, victim.point.seq + 9, victim.epoch, victim.point.seq + 9, victim.epoch)
    return BASE_DONE, {
        "epoch": victim.epoch, "nonce": "guessed", "after": to_message(at), "last_timestamp": victim.now,
        "history": victim.history,
    }


def follow_lie(epoch: int, *, with_history: bool = True) -> Callable[[Victim], Message]:
    """A call to follow an epoch that nobody was given."""
    def lie(victim: Victim) -> Message:
        number, seq = victim.epoch + epoch, victim.point.seq
        entry = (number, seq + 1, seq, victim.peer, "restart")
        history = [*victim.history, entry] if with_history else victim.history
        return FOLLOW, {"epoch": number, "site": victim.peer, "history": history, "begins_after": 0, "not_held": None}

    return lie


def garbage(method: str, **fields: Any) -> Callable[[Victim], Message]:
    return lambda victim: (method, fields)


def merge_lie(victim: Victim) -> Message:
    table, key, _ = victim.row
    return MERGE, {"rows": [(table, "upsert", key, b"garbage", victim.now)], "put_absent": True}


_X = Column(99, "x", "int64", True)
LIES: dict[str, Callable[[Victim], Message]] = {
    # ---- frames
    "count": lambda victim: shipped(victim, count=1 << 20),
    "count-less": lambda victim: shipped(victim, *[Record(int(RecordKind.NOOP))] * 3, count=2),
    "no-records": lambda victim: shipped(victim, payload=b"\xc0"),
    "no-payload": lambda victim: shipped(victim, payload=b"\x91" * 5000),
    "huge-payload": lambda victim: shipped(victim, payload=(1 << 31).to_bytes(4, "little") + b"x", flags=int(Flags.COMPRESSED)),
    "jump": lambda victim: shipped(victim, first_seq=1 << 61),
    "backwards": lambda victim: shipped(victim, first_seq=victim.point.seq, previous=victim.point.seq - 1),
    "other-previous": lambda victim: shipped(victim, previous=victim.point.seq + 1, first_seq=victim.point.seq + 2),
    "committed": lambda victim: shipped(victim, committed=victim.point.seq + 1_000),
    "timestamp": lambda victim: shipped(victim, timestamp=(1 << 64) - 2),
    "timestamp-ahead": lambda victim: shipped(victim, timestamp=victim.now + (100_000_000 << COUNTER_BITS)),
    "timestamp-none": lambda victim: shipped(victim, timestamp=0),
    "other-log": lambda victim: shipped(victim, log=7),
    "frame-of-a-later-epoch": lambda victim: shipped(victim, epoch=victim.epoch + 1),
    "message-of-a-later-epoch": lambda victim: shipped(victim, request_epoch=1 << 38),
    "message-of-an-older-epoch": lambda victim: shipped(victim, request_epoch=victim.epoch - 1),
    "other-pair": lambda victim: (REPLICATE, {**shipped(victim)[1], "pair": "b2" * 8}),
    "no-frame": lambda victim: (REPLICATE, {**shipped(victim)[1], "frames": b"garbage" * 20}),
    # ---- records
    "kind": mark_lie(99),
    "mode": mark_lie(int(RecordKind.MODE), value=b"fast"),
    "noop-with-a-value": mark_lie(int(RecordKind.NOOP), value=b"x"),
    "barrier-path": mark_lie(int(RecordKind.BARRIER), key=b"../../../tmp/here", flags=int(Flags.BARRIER)),
    "barrier-no-text": mark_lie(int(RecordKind.BARRIER), key=b"\xff", flags=int(Flags.BARRIER)),
    "barrier-flag": mark_lie(int(RecordKind.NOOP), flags=int(Flags.BARRIER)),
    "cursor": mark_lie(int(RecordKind.CURSOR), key=b"x" * 10_000),
    "start-inside": start_lie(0),
    "start-of-a-later-epoch": start_lie(1, in_epoch=1),
    "start-elsewhere": start_lie(1, in_epoch=0, site="../c"),
    "request-count": request_lie(1 << 20),
    "request-key": request_lie(1, "k" * 5000),
    "ddl-garbage": mark_lie(int(RecordKind.DDL), 5, value=b"garbage"),
    # ---- rows
    "row-garbage": row_lie(lambda old: b"garbage"),
    "row-no-text": row_lie(lambda old: b"\x81\x02\xa1\xff"),
    "row-deep": row_lie(lambda old: b"\x81\x02" + b"\x91" * 5000),
    "row-trailing": row_lie(lambda old: old + b"\0"),
    "row-other-column": row_lie(lambda old: _pack({77: 1})),
    "row-of-no-table": row_lie(table=lambda old: old + 1000),
    "key-garbage": row_lie(key=lambda old: b"\0\0\0"),
    "key-trailing": row_lie(key=lambda old: old + b"x"),
    "update-of-nothing": row_lie(lambda old: b"\x80", kind=RecordKind.UPDATE),
    "delete-with-a-value": row_lie(lambda old: b"x", kind=RecordKind.DELETE),
    # ---- schemas
    "schema-name": schema_lie(name="../x"),
    "schema-no-columns": schema_lie(columns=()),
    "schema-no-key": schema_lie(primary_key=()),
    "schema-history": schema_lie(history_s=-1),
    "schema-of-another-table": schema_lie(id=3),
    "schema-column-id": schema_lie(columns=(_X, _X)),
    # ---- base data
    "base": base_lie(),
    "base-without-a-word": base_lie(nonce=""),
    "base-epoch": base_lie(1 << 38),
    "base-done": base_done_lie,
    # ---- epochs
    "follow-later": follow_lie(1),
    "follow-much-later": follow_lie(1 << 38),
    "follow-out-of-bounds": follow_lie(1 << 62),
    "follow-without-history": follow_lie(1, with_history=False),
    "follow-garbage": garbage(FOLLOW, epoch=-1, site=7, history="none"),
    # ---- what the active is asked
    "drain": garbage(DRAIN, plan_id="p"),
    "undrain": garbage(UNDRAIN, plan_id=""),
    "step-down": garbage(STEP_DOWN, plan_id="p"),
    "merge-garbage": merge_lie,
    "merge-operation": garbage(MERGE, rows=[(1, "drop", b"", b"", 0)]),
    "prepare-garbage": garbage(PREPARE, table=5, schema=b"garbage"),
    "rows-garbage": garbage(ROWS, keys=[(-1, b"")]),
}
