"""The typed columns of a database: the code that is made for a schema is held against the rule that it stands for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.engines.sql.column_types import _SHOWN, cells_of, shown_columns
from storage.rows.codec import RowCodec
from storage.rows.schema import TableSchema, parse_table
from storage.rows.types import INT32_MAX, INT64_MAX, TIMESTAMP_MAX, TIMESTAMP_MIN

TYPES = list(_SHOWN)
DEFAULTS = {"bool": True, "int32": 7, "string": "d", "timestamp": "2013-01-01T00:00:00Z", "decimal": "1.5"}


def schema() -> TableSchema:
    columns = [
        {"name": kind, "type": kind, **({"default": DEFAULTS[kind]} if kind in DEFAULTS else {})} for kind in TYPES
    ]
    keys: list[dict[str, Any]] = [{"name": "k", "type": "int64"}, {"name": "t", "type": "timestamp"}]
    return parse_table({"name": "t", "columns": [*keys, *columns], "primary_key": ["k", "t"]}, 1)


contents = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=4), st.binary(max_size=4),
    st.sampled_from([INT32_MAX, INT32_MAX + 1, -INT32_MAX - 2, INT64_MAX, 2**64 - 1, TIMESTAMP_MIN - 1, TIMESTAMP_MAX]),
    st.sampled_from(["", "a\0b", "12.50", "-0", "x", "1.2.3"]), st.lists(st.none() | st.just("\0"), max_size=2),
)


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
@example({8: "a\0b", 4: INT32_MAX + 1, 7: 1, 3: 1, 5: True, 9: "no bytes"}, 0)
@given(st.dictionaries(st.integers(1, len(TYPES) + 4), contents), st.integers(-(2**63), 2**63 - 1))
def test_the_made_code_shows_what_the_rule_says(dialect: str, stored: dict[int, Any], number: int) -> None:
    made = schema()
    shown = shown_columns(made, dialect)
    key = RowCodec(made).keys.encode([number, 1_000_000])
    cells = cells_of(made, shown)(key, msgspec.msgpack.encode(stored))
    assert cells[:2] == (number, "1970-01-01T00:00:01Z")
    expected = []
    for column in made.columns[2:]:
        content = stored.get(column.id, column.default)
        expected.append(None if content is None else _SHOWN[column.type][2](content))
    assert repr(cells[2:]) == repr(tuple(expected))  # -0.0 and NaN too


@pytest.mark.parametrize(("key", "value"), [(b"\1", b"\x80"), (b"", b"\x80"), (b"\x80" + b"\0" * 15, b"no map"), (b"", b"")])
def test_a_row_that_no_schema_made_shows_nothing(key: bytes, value: bytes) -> None:
    made = schema()
    shown = shown_columns(made, "postgresql")
    assert cells_of(made, shown)(key, value) == (None,) * len(shown)
