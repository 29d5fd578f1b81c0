"""A record: one mutation, or one mark in the log. The payload of a frame is a msgpack array of records.

What always holds: `decode_records(encode_records(r)) == r`; unknown kinds are an error, never skipped; a record
says which table and key it changes without the schema, so that both sites apply it blindly and equally.
Source: protocol.md section 3.
This module is pure.
"""

from __future__ import annotations

from enum import IntEnum

import msgspec

from twinlog.decoding import decoded
from twinlog.errors import LogError

BARRIER_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}"  # it becomes a folder's name
EPOCH_KINDS = ("bootstrap", "restart", "takeover", "switchover")


class RecordKind(IntEnum):
    UPSERT = 1  # value: the whole stored row (rows/codec.py)
    UPDATE = 2  # value: the changed columns only, merged at apply
    DELETE = 3  # value: empty
    DDL = 4  # table: its id, key: empty, value: msgpack of a SchemaChange (rows/schema.py)
    EPOCH_START = 5  # value: msgpack of EpochStart
    MODE = 6  # value: b"sync" or b"async": how frames after this one are acknowledged
    BARRIER = 7  # key: the barrier's name
    CURSOR = 8  # key: the holder's name, value: msgpack position
    NOOP = 9


class Record(msgspec.Struct, array_like=True, gc=False):
    """One mutation.

    `key` is the encoded primary key (rows/keys.py) without the table prefix; `request` is the idempotency entry of the
    client request that this record is the FIRST of (msgpack of `RequestMark`), else empty.
    """

    kind: int
    table: int = 0
    key: bytes = b""
    value: bytes = b""
    request: bytes = b""


class RequestMark(msgspec.Struct, array_like=True, gc=False):
    """The trace of an idempotency key in the log: the key, a digest of the request, the number of records that it made."""

    key: str
    digest: bytes
    count: int


class EpochStart(msgspec.Struct, array_like=True, gc=False):
    """First record of an epoch. `previous` of its frame is the recorded end of the epoch before."""

    epoch: int
    site: str
    kind: str  # one of EPOCH_KINDS
    plan: str


class SchemaChange(msgspec.Struct, array_like=True, gc=False):
    """Value of a DDL record. `schema` is msgpack of the whole new TableSchema (rows/schema.py); empty when dropped."""

    kind: str  # "put" | "drop"
    table: int
    schema: bytes
    history_s: int  # how long old versions are kept for as_of; 0: not at all


_encoder = msgspec.msgpack.Encoder()
_decode_records = msgspec.msgpack.Decoder(list[Record]).decode
_decode_start = msgspec.msgpack.Decoder(EpochStart).decode
_decode_change = msgspec.msgpack.Decoder(SchemaChange).decode
_decode_mark = msgspec.msgpack.Decoder(RequestMark).decode


def encode_records(records: list[Record]) -> bytes:
    """Msgpack array of array-like records."""
    return _encoder.encode(records)


def decode_records(payload: bytes | memoryview) -> list[Record]:
    """The inverse of `encode_records`. Raises LogError on anything else (a CRC-checked payload never is)."""
    return decoded(_decode_records, payload, lambda what: LogError(f"a frame's payload does not decode as records: {what}"))


def decode_epoch_start(value: bytes) -> EpochStart:
    """The value of an EPOCH_START record. Raises LogError."""
    return decoded(_decode_start, value, lambda what: LogError(f"the start of an epoch does not decode: {what}"))


def decode_schema_change(value: bytes) -> SchemaChange:
    """The value of a DDL record. Raises LogError."""
    return decoded(_decode_change, value, lambda what: LogError(f"a change of a table does not decode: {what}"))


def decode_request_mark(request: bytes) -> RequestMark:
    """The idempotency entry of a record that has one. Raises LogError."""
    return decoded(_decode_mark, request, lambda what: LogError(f"the mark of a request does not decode: {what}"))
