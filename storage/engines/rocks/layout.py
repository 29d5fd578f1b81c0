"""The layout of the one RocksDB column family: everything has a prefix byte, because one column family has one memtable, and
so what a flush makes durable is always a prefix of what was written.

    00 name                              watermark, format, progress of a base that is being loaded
    01 table(8) key                  ->  version(8) value                      rows
    02 table(8) key* until(8)        ->  version(8) value                      versions of rows that were replaced
    03 table(8)                      ->  Table                                 schemas
    04 epoch(8)                      ->  EpochEntry
    05 key                           ->  RequestOutcome
    06 version(8) key                ->  (empty)                               requests by age, for purge and rejoin

What always holds: keys order as their parts do, so a range of a table is one range here. A history entry was the row from
`version` until (excluding) `until`, the version of the record that replaced or deleted it: so one seek answers an as-of
read, deletes need no tombstone, and rows that were there before history was switched on (or came as base data) need
nothing at all. `key*` is escaped (00 -> 00 ff, ended by 00 00): no key's entries lie between another's.
Source: protocol.md 4, product.md 3.
This module is pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

import msgspec

from storage.engine import EngineState, EpochEntry, RequestOutcome, Table
from storage.engines.entries.write import VERSION_BYTES, EngineWrite
from twinlog.decoding import decoded
from twinlog.errors import EngineFailed, words

FORMAT = b"2"
FORMAT_KEY = b"\x00format"
APPLIED_KEY = b"\x00applied"
LOADING_KEY = b"\x00loading"
CONTENT = (b"\x01", b"\x07")  # everything but the notes above
SCHEMAS = (b"\x03", b"\x04")
EPOCHS = (b"\x04", b"\x05")
REQUESTS = (b"\x05", b"\x06")
REQUESTS_BY_AGE = (b"\x06", b"\x07")
HISTORY = (b"\x02", b"\x03")
_ROW, _HISTORY, _SCHEMA, _EPOCH, _REQUEST, _AGE = (bytes((prefix,)) for prefix in range(1, 7))
TABLE_BYTES = 8
PREFIX_BYTES = 1 + TABLE_BYTES  # prefix byte and table id
_applied = struct.Struct(">QQQ")

Range = tuple[bytes, bytes]  # [begin, end)

encode = msgspec.msgpack.Encoder().encode
_decode_table = msgspec.msgpack.Decoder(Table).decode
_decode_epoch = msgspec.msgpack.Decoder(EpochEntry).decode
_decode_outcome = msgspec.msgpack.Decoder(RequestOutcome).decode


def decode_table(stored: bytes) -> Table:
    """Raises EngineFailed."""
    return decoded(_decode_table, stored, _damaged)


def decode_epoch(stored: bytes) -> EpochEntry:
    """Raises EngineFailed."""
    return decoded(_decode_epoch, stored, _damaged)


def decode_outcome(stored: bytes) -> RequestOutcome:
    """Raises EngineFailed."""
    return decoded(_decode_outcome, stored, _damaged)


def _damaged(what: str) -> EngineFailed:
    return EngineFailed(f"an entry of the RocksDB database does not decode: {what}; look at its disk; the other site has it")


@lru_cache(maxsize=4096)
def row_prefix(table: int) -> bytes:
    """The PREFIX_BYTES that begin every row key of `table`."""
    return _ROW + table.to_bytes(TABLE_BYTES, "big")


def _history_prefix(table: int) -> bytes:
    return _HISTORY + table.to_bytes(TABLE_BYTES, "big")


def _range_of(prefix: bytes) -> Range:
    return prefix, (int.from_bytes(prefix, "big") + 1).to_bytes(len(prefix), "big")


def _escaped(key: bytes) -> bytes:
    return key.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _unescaped(key: bytes) -> bytes:
    return key[:-2].replace(b"\x00\xff", b"\x00")


def row_range(table: int, start: bytes | None = None, end: bytes | None = None) -> Range:
    """Returns the range in which the rows of `[start, end)` lie."""
    prefix = row_prefix(table)
    return prefix + (start or b""), _range_of(prefix)[1] if end is None else prefix + end


def history_range(table: int, start: bytes | None = None, end: bytes | None = None) -> Range:
    """Returns the range in which the replaced versions of the rows of `[start, end)` lie."""
    prefix = _history_prefix(table)
    begin = prefix if start is None else prefix + _escaped(start)
    return begin, _range_of(prefix)[1] if end is None else prefix + _escaped(end)


def key_history_range(table: int, key: bytes) -> Range:
    """Returns the range in which the replaced versions of one row lie."""
    begin = _history_prefix(table) + _escaped(key)
    return begin, begin[:-1] + b"\x01"


def history_key(table: int, key: bytes, until: int) -> bytes:
    """Returns the key of the version that a record with version `until` replaced."""
    return _history_prefix(table) + _escaped(key) + until.to_bytes(VERSION_BYTES, "big")


def history_parts(stored: bytes) -> tuple[int, bytes, int]:
    """Table, row key, until."""
    return (
        int.from_bytes(stored[1:PREFIX_BYTES], "big"),
        _unescaped(stored[PREFIX_BYTES:-VERSION_BYTES]),
        int.from_bytes(stored[-VERSION_BYTES:], "big"),
    )


def schema_key(table: int) -> bytes:
    return _SCHEMA + table.to_bytes(TABLE_BYTES, "big")


def epoch_key(epoch: int) -> bytes:
    return _EPOCH + epoch.to_bytes(8, "big")


def request_key(key: str) -> bytes:
    return _REQUEST + key.encode()


def request_of(stored: bytes) -> str:
    """The idempotency key whose outcome lies at `stored`."""
    return stored[1:].decode()


def age_key(version: int, key: str) -> bytes:
    return _AGE + version.to_bytes(VERSION_BYTES, "big") + key.encode()


def age_parts(stored: bytes) -> tuple[int, bytes]:
    """Version of the request's last record, and where its outcome lies."""
    return int.from_bytes(stored[1 : 1 + VERSION_BYTES], "big"), _REQUEST + stored[1 + VERSION_BYTES :]


def request_entries(key: str, outcome: RequestOutcome) -> dict[bytes, bytes]:
    """Returns the two entries of an idempotency key: its outcome, and its place in the order of age."""
    return {request_key(key): encode(outcome), age_key(outcome.version, key): b""}


def pack_applied(seq: int, epoch: int, timestamp: int) -> bytes:
    return _applied.pack(seq, epoch, timestamp)


def unpack_applied(stored: bytes) -> tuple[int, int, int]:
    """Applied sequence, its epoch, largest hybrid timestamp. Raises EngineFailed."""
    try:
        seq, epoch, timestamp = _applied.unpack(stored)
    except struct.error as error:
        raise _damaged(words(error)) from error
    return seq, epoch, timestamp


def ranges(write: EngineWrite) -> list[Range]:
    """Returns the ranges that go before anything of `write` is put."""
    gone = [CONTENT] if write.emptied else []
    gone += [row_range(number) for number in write.dropped]
    gone += [history_range(number) for number in write.without_history]
    return gone


def entries(write: EngineWrite, before: EngineState) -> Iterator[tuple[bytes, bytes | None]]:
    """Yields the entries that `write` puts into a database that holds `before`: key and bytes, or None where one goes. HOT."""
    for number, rows in write.rows.items():
        prefix = row_prefix(number)
        for key, packed in rows.items():
            yield prefix + key, packed
    for number, versions in write.history.items():
        for (key, until), packed in versions.items():
            yield history_key(number, key, until), packed
    for number, table in write.schemas.items():
        yield schema_key(number), None if table is None else encode(table)
    for entry in write.epochs:
        yield epoch_key(entry.epoch), encode(entry)
    for name, outcome in write.requests:
        yield from request_entries(name, outcome).items()
    state = write.state
    if state.base != before.base:
        yield LOADING_KEY, state.base
    yield APPLIED_KEY, pack_applied(state.seq, state.epoch, state.timestamp)
