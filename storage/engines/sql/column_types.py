"""Stored values as columns that a person reads: for each column type its SQL type and what is shown of a value.

| type | PostgreSQL | SQLite |
|---|---|---|
| bool | boolean | BOOLEAN (0, 1) |
| int32, int64 | integer, bigint | INTEGER |
| float32, float64 | real, double precision | REAL (NaN: NULL) |
| string | text | TEXT |
| bytes | bytea | BLOB |
| timestamp | timestamptz | TEXT, RFC 3339, UTC |
| decimal | numeric | TEXT |
| json | jsonb | TEXT |

What always holds: nothing that a log can hold makes the database refuse a row. U+0000, which PostgreSQL's text cannot hold, is
shown as the symbol U+2400; a value that is not of its column's type is shown as NULL. What the engine answers never
comes from these columns, but from `twinlog_value` (docs/decisions/2026-11-21-rows-in-sql.md).
This module is pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from storage.engines.sql.names import column_names
from storage.rows.compiled import cells_decoder
from storage.rows.keys import KeyCodec
from storage.rows.schema import TableSchema
from storage.rows.types import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, TYPES
from twinlog.errors import TwinlogError

Show = Callable[[Any], Any]
Cells = Callable[[bytes, bytes], Sequence[Any]]  # key, stored value -> what the columns show

SHOWN_COLUMNS_MAX = 250  # a row's columns must fit in a page of 8 KiB, whatever they hold
_FLOAT32_MAX: Final = 3.4028234663852886e38
_to_json = msgspec.json.Encoder().encode
_timestamp_text: Final = TYPES["timestamp"].to_json


def _bool(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _int(low: int, high: int) -> Show:
    return lambda value: value if type(value) is int and low <= value <= high else None


def _float32(value: Any) -> float | None:
    return value if type(value) is float and (not math.isfinite(value) or abs(value) <= _FLOAT32_MAX) else None


def _float64(value: Any) -> float | None:
    return value if type(value) is float else None


def _text(value: Any) -> str | None:
    if type(value) is not str:
        return None
    return value.replace("\0", "\u2400") if "\0" in value else value


def _bytes(value: Any) -> bytes | None:
    return value if type(value) is bytes else None


def _timestamp(value: Any) -> str | None:
    if type(value) is not int or not TIMESTAMP_MIN <= value <= TIMESTAMP_MAX:
        return None
    assert _timestamp_text is not None
    text: str = _timestamp_text(value)
    return text


def _decimal(value: Any) -> str | None:
    if type(value) is not str or not value.isascii() or not value.removeprefix("-").replace(".", "", 1).isdigit():
        return None
    return value


def _json(value: Any) -> str | None:
    if value is None:
        return None
    return _to_json(value).decode().replace("\\u0000", "\\u2400")


_SHOWN: Final[dict[str, tuple[str, str, Show]]] = {  # type: (PostgreSQL, SQLite, what is shown)
    "bool": ("boolean", "BOOLEAN", _bool),
    "int32": ("integer", "INTEGER", _int(INT32_MIN, INT32_MAX)),
    "int64": ("bigint", "INTEGER", _int(INT64_MIN, INT64_MAX)),
    "float32": ("real", "REAL", _float32),
    "float64": ("double precision", "REAL", _float64),
    "string": ("text", "TEXT", _text),
    "bytes": ("bytea", "BLOB", _bytes),
    "timestamp": ("timestamp with time zone", "TEXT", _timestamp),
    "decimal": ("numeric", "TEXT", _decimal),
    "json": ("jsonb", "TEXT", _json),
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One column of a table in the database. `default`: what is shown where a row lacks the column; None: NULL."""

    id: int
    name: str
    sql_type: str
    default: Any


def shown_columns(schema: TableSchema, dialect: str) -> tuple[Shown, ...]:
    """The columns of `schema`, in its order, at most SHOWN_COLUMNS_MAX, under names that the database takes."""
    names = column_names(schema.columns, fold=dialect == "sqlite")
    shown = []
    for column in schema.columns[:SHOWN_COLUMNS_MAX]:
        in_postgresql, in_sqlite, show = _SHOWN[column.type]
        default = None if column.default is None else show(column.default)
        shown.append(Shown(column.id, names[column.id], in_sqlite if dialect == "sqlite" else in_postgresql, default))
    return tuple(shown)


def cells_of(schema: TableSchema, shown: Sequence[Shown]) -> Cells:
    """From a row's key and stored value to the values of the columns `shown`; one that the schema has no longer is NULL."""
    by_id = {column.id: column for column in schema.columns}
    keys = KeyCodec(schema.name, [(column.name, column.type) for column in schema.key_columns])
    there = [number for number, column in enumerate(shown) if column.id in by_id]
    columns = [by_id[shown[number].id] for number in there]
    decode = cells_decoder(columns, keys.names, keys.decode, {name: show for name, (_, _, show) in _SHOWN.items()})
    nothing = (None,) * len(shown)

    def cells(key: bytes, value: bytes) -> Sequence[Any]:
        try:
            return decode(key, value)
        except TwinlogError:
            return nothing  # a row that no schema made: its bytes are kept all the same

    def some(key: bytes, value: bytes) -> Sequence[Any]:
        spread: list[Any] = list(nothing)
        found = cells(key, value)
        for number, content in zip(there, found, strict=False):
            spread[number] = content
        return spread

    return cells if len(there) == len(shown) else some
