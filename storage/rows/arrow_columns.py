"""One Arrow array against one column: its type checked, its values as stored values (types.py).

| column | Arrow types |
|---|---|
| bool | bool |
| int32, int64 | integers of any width, in range |
| float32, float64 | floats and integers of any width |
| string | string, large_string, string_view |
| bytes | binary, large_binary, fixed_size_binary, binary_view |
| timestamp | timestamp of any unit and zone (none: UTC), on whole microseconds |
| decimal | decimals and integers of any width |
| json | string types that hold JSON text |

Each of them also dictionary-encoded, or as the storage of an extension type; all null is fine where null is.
What always holds: a value becomes what the same value sent as JSON becomes (types.py); work is done by column in Arrow,
and looks at single values only to name the row of a fault. Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from storage.rows.schema import Column
from storage.rows.types import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, TYPES, BadValue
from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, words

Values = Any  # pa.Array, or a list where Arrow has no such type
_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}  # microseconds in a unit; "ns" is a thousandth

def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind)
    )


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(kind) or pa.types.is_integer(kind))


# type: (which Arrow types it takes, in words)
_TAKES: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "bool": (pa.types.is_boolean, "bool"),
    "int32": (pa.types.is_integer, "an integer type"),
    "int64": (pa.types.is_integer, "an integer type"),
    "float32": (_is_number, "a float or integer type"),
    "float64": (_is_number, "a float or integer type"),
    "string": (is_text, "a string type"),
    "bytes": (is_binary, "a binary type"),
    "timestamp": (pa.types.is_timestamp, "a timestamp type"),
    "decimal": (_is_exact, "a decimal or integer type"),
    "json": (is_text, "a string type that holds JSON text"),
}


def fault(column: Column, problem: str, row: int | None = None) -> InvalidInput:
    """The error that names the column and, counted from 0 over the whole stream, the row."""
    where = f"column {column.name!r}" if row is None else f"column {column.name!r}, row {row} (counted from 0)"
    return InvalidInput(f"{where}: {problem}", column=column.name, problem=problem, row=row)


def check_type(column: Column, kind: pa.DataType) -> None:
    """Raises InvalidInput when `column` does not take arrays of Arrow type `kind`."""
    plain = _plain_type(kind)
    takes, words = _TAKES[column.type]
    coded_views = pa.types.is_dictionary(kind) and is_view(plain)  # Arrow has no function that decodes them
    if (not takes(plain) or coded_views) and not pa.types.is_null(plain):
        raise fault(column, f"is of type {column.type} and takes {words} in an Arrow stream, not {kind}")


def plain_array(array: pa.Array) -> pa.Array:
    """`array` without extension type and dictionary."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def stored_array(column: Column, array: pa.Array, *, in_key: bool) -> Values:
    """The stored values of `column`: an Arrow array, or a list where Arrow has no such type (decimal, json).

    `array` passed `check_type` and `plain_array`. bool, int64 (int32, int64, timestamp), float64, large_string or
    large_binary come out. `in_key`: NaN is refused, -0.0 is 0.0. Raises InvalidInput that names the row.
    """
    if in_key or not column.nullable:
        refuse_nulls(column, array)
    if pa.types.is_null(array.type):
        return [None] * len(array)
    return _CONVERT[column.type](column, array, in_key)


def refuse_nulls(column: Column, values: Values) -> None:
    """Raises InvalidInput at the first null."""
    if isinstance(values, list):
        row = values.index(None) if None in values else -1
    else:
        row = pc.index(values.is_null(), True).as_py() if values.null_count else -1
    if row >= 0:
        raise fault(column, "must not be null", row)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _first(values: Iterable[Any], bad: Callable[[Any], bool]) -> int | None:
    """The place of the first value that is not null and `bad`."""
    return next((row for row, value in enumerate(values) if value is not None and bad(value)), None)


def _bool(column: Column, array: pa.Array, in_key: bool) -> pa.Array:
    return array


def _int(column: Column, array: pa.Array, in_key: bool) -> pa.Array:
    low, high, narrow = (
        (INT32_MIN, INT32_MAX, pa.int32()) if column.type == "int32" else (INT64_MIN, INT64_MAX, pa.int64())
    )
    try:
        return array.cast(narrow).cast(pa.int64())
    except pa.ArrowInvalid:
        row = _first(array.to_pylist(), lambda value: not low <= value <= high)
        raise fault(column, f"is out of the range of {column.type}, {low} to {high}", row) from None


def _float(column: Column, array: pa.Array, in_key: bool) -> pa.Array:
    wide = array.cast(pa.float64(), safe=False)
    if column.type == "float32" and array.type != pa.float32():
        rounded = wide.cast(pa.float32(), safe=False).cast(pa.float64())
        lost = pc.and_(pc.is_inf(rounded), pc.is_finite(wide))
        if pc.any(lost).as_py():
            raise fault(column, "is out of the range of float32", pc.index(lost, True).as_py())
        wide = rounded
    nans = pc.is_nan(wide)
    if pc.any(nans).as_py():
        if in_key:
            row = pc.index(nans, True).as_py()
            raise fault(column, "must not be NaN, for it is part of the primary key", row)
        wide = pc.if_else(nans, float("nan"), wide)  # one NaN of the many that there are
    return pc.add(wide, 0.0) if in_key else wide


def _string(column: Column, array: pa.Array, in_key: bool) -> pa.Array:
    return array.cast(pa.large_string())


def _bytes(column: Column, array: pa.Array, in_key: bool) -> pa.Array:
    return array.cast(pa.large_binary())


def _timestamp(column: Column, array: pa.Array, in_key: bool) -> pa.Array:
    try:
        micros = array.cast(pa.timestamp("us", array.type.tz)).cast(pa.int64())
        span = pc.min_max(micros)
        if span["min"].as_py() is None or TIMESTAMP_MIN <= span["min"].as_py() <= span["max"].as_py() <= TIMESTAMP_MAX:
            return micros
    except pa.ArrowInvalid:
        pass
    counts = array.cast(pa.int64()).to_pylist()
    if array.type.unit == "ns":
        finer = _first(counts, lambda value: value % 1000 != 0)
        raise fault(column, "is finer than a microsecond", finer)
    unit_us = _UNIT_US[array.type.unit]
    row = _first(counts, lambda value: not TIMESTAMP_MIN <= value * unit_us <= TIMESTAMP_MAX)
    raise fault(column, "is out of the range of timestamps, years 1 to 9999", row)


def _decimal(column: Column, array: pa.Array, in_key: bool) -> list[Any]:
    parse = TYPES["decimal"].from_json
    return _each(column, array, lambda value: parse(str(value)))


def _json(column: Column, array: pa.Array, in_key: bool) -> list[Any]:
    check = TYPES["json"].from_json

    def parse(text: str) -> Any:
        return check(decoded(msgspec.json.decode, text, lambda _: BadValue("is not JSON text")))

    values = _each(column, array, parse)
    if not column.nullable:
        refuse_nulls(column, values)
    return values


def _each(column: Column, array: pa.Array, parse: Callable[[Any], Any]) -> list[Any]:
    values = []
    for row, value in enumerate(array.to_pylist()):
        try:
            values.append(None if value is None else parse(value))
        except BadValue as bad:
            raise fault(column, words(bad), row) from None
    return values


_CONVERT: dict[str, Callable[[Column, pa.Array, bool], Values]] = {
    "bool": _bool, "int32": _int, "int64": _int, "float32": _float, "float64": _float, "string": _string,
    "bytes": _bytes, "timestamp": _timestamp, "decimal": _decimal, "json": _json,
}
