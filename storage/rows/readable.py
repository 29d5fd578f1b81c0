"""The name of a table and the text of a key, for people: as the API's paths have them, from the ids and bytes of the log.

What always holds: a key that does not fit the schema at hand is shown as `0x` and its bytes, and never hidden.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from storage.log.record import Record, SchemaChange
from storage.rows.keys import KeyCodec
from storage.rows.schema import TableSchema, decode_schema
from twinlog.decoding import or_none
from twinlog.errors import TwinlogError

_change = msgspec.msgpack.Decoder(SchemaChange).decode


def readable_key(table: TableSchema, key: bytes) -> str:
    """Returns the key's text, such as `UA,1545`."""
    try:
        return KeyCodec(table.name, [(column.name, column.type) for column in table.key_columns]).path_from_key(key)
    except TwinlogError:
        return f"0x{key.hex()}"


def readable_place(schemas: Mapping[int, bytes], table_id: int, key: bytes) -> tuple[str, str]:
    """Returns the table's name and the key's text. `schemas`: the encoded schema of each table that is known."""
    if table_id not in schemas:
        return f"table {table_id}", f"0x{key.hex()}"
    try:
        table = decode_schema(schemas[table_id])
    except TwinlogError:
        return f"table {table_id}", f"0x{key.hex()}"
    return table.name, readable_key(table, key)


def schemas_put_by(record: Record) -> dict[int, bytes]:
    """Returns the schema that a DDL record puts, by its table's id; empty for one that drops a table, or cannot be read."""
    change = or_none(_change, record.value)
    return {change.table: change.schema} if change is not None and change.schema else {}
