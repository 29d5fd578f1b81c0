"""Rows as Python has them: what a site answers in msgpack, made into the types that went in, by the table's columns.

| column | Python, in and out |
|---|---|
| bool, int32, int64, float32, float64, string, bytes | bool, int, float, str, bytes |
| timestamp | datetime with a zone; it comes back in UTC, to the microsecond |
| decimal | Decimal, without needless zeros |
| json | what JSON has: dict, list, str, int, float, bool, None |

What always holds: a value of another type than its column's raises TypeError, so that columns which have changed since they
were read do not go unnoticed; null is None in every column.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

Row = dict[str, Any]
Columns = Mapping[str, str]  # name -> type
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns_of(table: Mapping[str, Any]) -> Columns:
    """The columns of a table's document."""
    return {column["name"]: column["type"] for column in table["columns"]}


def to_python(rows: Sequence[Row], columns: Columns) -> list[Row]:
    """The rows of one answer, converted. Raises TypeError when they are not rows of these columns."""
    if not rows:
        return []
    names = rows[0].keys()
    if not names <= columns.keys():
        raise TypeError(f"the table has no column {', '.join(sorted(names - columns.keys()))}")
    rules = [(name, *_RULES[columns[name]]) for name in names]
    return [{name: _converted(row[name], kinds, convert) for name, kinds, convert in rules} for row in rows]


def _converted(value: Any, kinds: tuple[type, ...], convert: Callable[[Any], Any] | None) -> Any:
    if value is None:
        return None
    if kinds and type(value) not in kinds:
        raise TypeError(f"{type(value).__name__} is no value of this column")
    return value if convert is None else convert(value)


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


# The types that a site answers with (none: any type), and what converts them.
_RULES: dict[str, tuple[tuple[type, ...], Callable[[Any], Any] | None]] = {
    "bool": ((bool,), None), "int32": ((int,), None), "int64": ((int,), None),
    "float32": ((float,), None), "float64": ((float,), None), "string": ((str,), None), "bytes": ((bytes,), None),
    "timestamp": ((int,), _moment), "decimal": ((str,), Decimal), "json": ((), None),
}
