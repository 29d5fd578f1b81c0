"""Tables and records as a door would let them in, by the short names of tests: `key(b"7")` is the stored key of that row."""

from __future__ import annotations

import msgspec

from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.schema import Column, TableSchema, encode_schema
from tests.storage.engines import engine_rig as bare
from tests.storage.engines.engine_rig import T


def key(name: bytes) -> bytes:
    """As the key codec stores `name`, which holds no zero byte."""
    return name + b"\0\1"


def upsert(name: bytes, content: bytes, table: int = T, request: bytes = b"") -> Record:
    return bare.upsert(key(name), content, table, request)


def update(name: bytes, content: bytes, table: int = T) -> Record:
    return bare.update(key(name), content, table)


def delete(name: bytes, table: int = T) -> Record:
    return bare.delete(key(name), table)


def schema_of(table: int = T, history_s: int = 0, revision: int = 1) -> bytes:
    columns = (Column(1, "c1", "json", True), Column(2, "c2", "json", True), Column(3, "id", "bytes", False))
    return encode_schema(TableSchema(table, f"t{table}", columns, ("id",), None, "sync", history_s, revision, 4))


def put_table(table: int = T, history_s: int = 0) -> Record:
    change = SchemaChange("put", table, schema_of(table, history_s), history_s)
    return Record(int(RecordKind.DDL), table, value=msgspec.msgpack.encode(change))
