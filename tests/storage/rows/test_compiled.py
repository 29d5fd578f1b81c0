"""Functions that are compiled for a schema do not stay for ever when the schema changes."""

from __future__ import annotations

import gc
from contextlib import suppress

from storage.rows.codec import RowCodec
from storage.rows.predicates import compile_predicates
from storage.rows.schema import TableSchema, alter
from storage.rows.stored import StoredTable
from tests.storage.rows.strategies import table
from tests.suite.traced import Taken, in_own_process, traced
from twinlog.errors import InvalidInput

MIB = 1 << 20


def _use(schema: TableSchema) -> None:
    """As a site does that takes rows of it, reads them, and gets some from the other site."""
    codec, row = RowCodec(schema), {column.name: "text" for column in schema.columns}
    key, value = codec.encode_json_row(row)
    assert codec.decode_row(key, value) == row
    StoredTable(schema).row(key, value)


def _changes() -> Taken:
    schema = table([{"name": name, "type": "string"} for name in ("id", *(f"c{number}" for number in range(40)))], ["id"])
    with traced() as taken:
        for number in range(200):
            schema = alter(schema, {"rename": {f"c{number}": f"c{number + 40}"}})
            _use(schema)
        gc.collect()
    return taken


def test_changes_of_a_wide_table_leave_little_memory() -> None:
    assert in_own_process(_changes).held_bytes < MIB * 3 // 2


def used(schema: TableSchema) -> None:
    """All that is made for a schema is made, and used."""
    codec, stored = RowCodec(schema), StoredTable(schema)
    for native in (False, True):
        key, value = codec.encode_json_row({"k": "a", "v": 7}, native=native)
        codec.encode_update({"k": "a", "v": 8}, native=native)
        codec.decode_row(key, value)
    assert codec.decoder(["v"])(key, value) == {"v": 7}
    with suppress(InvalidInput):
        codec.encode_json_row({"k": "a", "v": "x"})
    for check in (stored.row, stored.newer_row, stored.changes):
        check(key, value)
    compile_predicates(codec, [{"column": "v", "op": "=", "value": 7}])


def test_what_is_made_for_a_schema_is_gone_with_it() -> None:
    """A table whose schema changes ten times a second left tens of MiB that only the collector could free, minutes later."""
    schema = table([{"name": "k", "type": "string"}, {"name": "v", "type": "int64"}], ["k"])
    used(schema)
    gc.collect()
    gc.disable()
    try:
        used(schema)
        assert gc.collect() == 0
    finally:
        gc.enable()
