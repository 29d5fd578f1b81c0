"""Hypothesis strategies for schemas and rows: stored values of every column type, and tables made of them."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from storage.rows.schema import TableSchema, parse_table
from storage.rows.types import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN, TYPES

KEY_TYPES = tuple(name for name, kind in TYPES.items() if kind.from_text is not None)

# Short, and rich in what the codecs treat specially.
texts = st.text(st.one_of(st.sampled_from("\0\1\x7f\x80a,%/ \uffff\U0001f600"), st.characters(codec="utf-8")), max_size=8)
blobs = st.one_of(st.binary(max_size=8), st.lists(st.sampled_from([0, 1, 254, 255]), max_size=5).map(bytes))
_finite = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(INT64_MIN, INT64_MAX), _finite, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)


@st.composite
def _decimals(draw: st.DrawFn) -> str:
    digits = draw(st.integers(0, 10 ** draw(st.integers(1, 38)) - 1))
    scale = draw(st.integers(0, 38))
    number = Decimal(f"{draw(st.sampled_from(['', '-']))}{digits}e-{scale}")
    stored: str = TYPES["decimal"].from_json(str(number))
    return stored


_FLOATS32 = st.floats(width=32)
STORED: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int32": st.integers(INT32_MIN, INT32_MAX),
    "int64": st.one_of(st.integers(INT64_MIN, INT64_MAX), st.integers(-300, 300)),
    "float32": _FLOATS32.map(lambda value: math.nan if math.isnan(value) else value),
    "float64": st.floats().map(lambda value: math.nan if math.isnan(value) else value),
    "string": texts,
    "bytes": blobs,
    "timestamp": st.one_of(st.integers(TIMESTAMP_MIN, TIMESTAMP_MAX), st.sampled_from([0, 86_400_000_000])),
    "decimal": _decimals(),
    "json": json_values,
}


def stored_in_key(type_name: str) -> st.SearchStrategy[Any]:
    """Stored values of a key column: no NaN, no -0.0."""
    values = STORED[type_name]
    if type_name.startswith("float"):
        return values.filter(lambda value: not math.isnan(value)).map(lambda value: value + 0.0)
    return values


def comparable(type_name: str, value: Any) -> Any:
    """A stored value as Python orders it."""
    return Decimal(value) if type_name == "decimal" else value


def same(left: object, right: object) -> bool:
    """Equal, with types, -0.0 and NaN told apart."""
    if isinstance(left, float) and isinstance(right, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def table(columns: Sequence[tuple[str, str] | dict[str, Any]], key: list[str], **more: Any) -> TableSchema:
    """A schema, columns as (name, type) or as in a body."""
    listed = [c if isinstance(c, dict) else {"name": c[0], "type": c[1]} for c in columns]
    return parse_table({"name": "t", "columns": listed, "primary_key": key, **more}, 7)


@st.composite
def tables(draw: st.DrawFn) -> TableSchema:
    """A schema of one to three key columns and up to five others, in any order, some nullable, some with a default."""
    columns: list[dict[str, Any]] = []
    key_types = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=3))
    for i, name in enumerate(key_types):
        columns.append({"name": f"k{i}", "type": name})
    for i, name in enumerate(draw(st.lists(st.sampled_from(sorted(TYPES)), max_size=5))):
        column = {"name": f"v{i}", "type": name, "nullable": draw(st.booleans())}
        if draw(st.booleans()):
            column["default"] = as_json(name, draw(STORED[name]))
        columns.append(column)
    columns = draw(st.permutations(columns))
    return table(columns, draw(st.permutations([f"k{i}" for i in range(len(key_types))])))


def as_json(type_name: str, stored: Any) -> Any:
    to_json = TYPES[type_name].to_json
    return stored if to_json is None or stored is None else to_json(stored)


@st.composite
def stored_rows(draw: st.DrawFn, schema: TableSchema) -> dict[str, Any]:
    """A whole row of stored values, by name, in schema order."""
    row = {}
    for column in schema.columns:
        if column.name in schema.primary_key:
            row[column.name] = draw(stored_in_key(column.type))
        elif column.nullable:
            row[column.name] = draw(st.one_of(st.none(), STORED[column.type]))
        else:
            row[column.name] = draw(STORED[column.type].filter(lambda value: value is not None))
    return row


def json_row(schema: TableSchema, row: dict[str, Any]) -> dict[str, Any]:
    """`row` of stored values as a client sends it in JSON."""
    return {column.name: as_json(column.type, row[column.name]) for column in schema.columns}
