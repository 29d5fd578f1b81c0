"""Rows as Python has them: what a site answers in msgpack, made into the types that went in, by the table's columns.

| column | Python, in and out |
|---|---|
| bool, int32, int64, float32, float64, string, bytes | bool, int, float, str, bytes |
| timestamp | datetime with a zone; it comes back in UTC, to the microsecond |
| decimal | Decimal, without needless zeros |
| json | what JSON has: dict, list, str, int, float, bool, None |

What always holds: rows and columns are of one schema, which both answers name; so a value of another type than its column's
comes from no gateway of ours, and raises PeerError. Null is None in every column.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from twinlog.errors import PeerError

Row = dict[str, Any]
Columns = Mapping[str, str]  # name -> type
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def columns_of(table: Mapping[str, Any]) -> Columns:
    """The columns of a table's document."""
    return {column["name"]: column["type"] for column in table["columns"]}


def to_python(rows: Sequence[Row], columns: Columns) -> list[Row]:
    """The rows of one answer, converted. Raises PeerError when they are not rows of these columns."""
    if not rows:
        return []
    names = rows[0].keys()
    if not names <= columns.keys():
        raise PeerError(f"the table has no column {', '.join(sorted(names - columns.keys()))}: is it a twinlog gateway?")
    rules = [(name, *_RULES[columns[name]]) for name in names]
    return [{name: _converted(name, row[name], kinds, convert) for name, kinds, convert in rules} for row in rows]


def _converted(name: str, value: Any, kinds: tuple[type, ...], convert: Callable[[Any], Any] | None) -> Any:
    if value is None:
        return None
    if kinds and type(value) not in kinds:
        raise PeerError(f"the answer has a {type(value).__name__} in column {name!r}: is it a twinlog gateway?")
    return value if convert is None else convert(value)


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


# The types that a site answers with (none: any type), and what converts them.
_RULES: dict[str, tuple[tuple[type, ...], Callable[[Any], Any] | None]] = {
    "bool": ((bool,), None), "int32": ((int,), None), "int64": ((int,), None),
    "float32": ((float,), None), "float64": ((float,), None), "string": ((str,), None), "bytes": ((bytes,), None),
    "timestamp": ((int,), _moment), "decimal": ((str,), Decimal), "json": ((), None),
}
