"""Column types: what is accepted, what is stored, what is answered, what is refused and in which words."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.rows.types import JSON_DEPTH_MAX, TIMESTAMP_MAX, TIMESTAMP_MIN, TYPES, reader
from tests.storage.rows.strategies import STORED, same
from twinlog.errors import InvalidInput


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(st.sampled_from(sorted(TYPES)).flatmap(lambda name: st.tuples(st.just(name), STORED[name])))
def test_stored_to_json_and_back_is_the_same(case: tuple[str, Any]) -> None:
    name, stored = case
    kind = TYPES[name]
    answered = stored if kind.to_json is None else kind.to_json(stored)
    wire = msgspec.json.decode(msgspec.json.encode(answered))
    read = reader("c", name, nullable=True)(wire)
    if name == "json":  # JSON text has one number type for 1.0 and 1e0, but msgspec keeps ints and floats apart
        assert msgspec.json.encode(read) == msgspec.json.encode(stored)
    else:
        assert same(read, stored)
    assert same(reader("c", name, nullable=True, native=True)(stored), stored)


ACCEPTED = [
    ("bool", True, True),
    ("int32", -(2**31), -(2**31)),
    ("int64", 2**63 - 1, 2**63 - 1),
    ("float64", 3, 3.0),
    ("float64", 2**53 + 1, float(2**53)),
    ("float64", "-Infinity", -math.inf),
    ("float64", -0.0, -0.0),
    ("float32", 0.1, 0.10000000149011612),
    ("float32", "NaN", math.nan),
    ("string", "", ""),
    ("string", "a\0é😀", "a\0é😀"),
    ("bytes", "AP8=", b"\0\xff"),
    ("bytes", "", b""),
    ("timestamp", "1970-01-01T00:00:00Z", 0),
    ("timestamp", "1970-01-01T00:00:00", 0),
    ("timestamp", "1970-01-01t01:00:00.000001+01:00", 1),
    ("timestamp", "1969-12-31T23:59:59.999999Z", -1),
    ("timestamp", "1970-01-01T00:00:00.123456000Z", 123456),
    ("timestamp", "9999-12-31T23:59:59.999999Z", TIMESTAMP_MAX),
    ("timestamp", "0001-01-01T00:00:00Z", TIMESTAMP_MIN),
    ("int64", "9007199254740993", 9007199254740993),
    ("int64", str(-(2**63)), -(2**63)),
    ("decimal", "+001.500", "1.5"),
    ("decimal", "-0.00", "0"),
    ("decimal", ".5", "0.5"),
    ("decimal", "1.5e3", "1500"),
    ("decimal", "15E-4", "0.0015"),
    ("decimal", -1200, "-1200"),
    ("decimal", "9" * 38, "9" * 38),
    ("decimal", "1e-38", "0." + "0" * 37 + "1"),
    ("json", {"a": [1, 2.5, None, True]}, {"a": [1, 2.5, None, True]}),
    ("json", nested(JSON_DEPTH_MAX), nested(JSON_DEPTH_MAX)),
]


@pytest.mark.parametrize(("name", "sent", "stored"), ACCEPTED, ids=lambda value: repr(value)[:30])
def test_accepted(name: str, sent: Any, stored: Any) -> None:
    assert same(reader("c", name, nullable=False)(sent), stored)


REFUSED = [
    ("bool", 1, "true or false, not an integer"),
    ("bool", "true", "not a string"),
    ("int32", True, "not a boolean"),
    ("int32", 2**31, "out of the range of int32"),
    ("int32", -(2**31) - 1, "out of the range of int32"),
    ("int64", 1.0, "not a number with a fraction"),
    ("int64", 2**63, "out of the range of int64"),
    ("int32", "1", "not a string"),
    ("int64", "1.0", "decimal digits"),
    ("int64", "01", "decimal digits"),
    ("int64", "+1", "decimal digits"),
    ("int64", "", "decimal digits"),
    ("int64", "\u0661", "decimal digits"),
    ("int64", str(2**63), "out of the range of int64"),
    ("int64", "9" * 5000, "decimal digits"),
    ("float64", True, "not a boolean"),
    ("float64", "1.5", "not another string"),
    ("float64", "nan", "not another string"),
    ("float64", 10**400, "out of the range of float64"),
    ("float32", 3.5e38, "out of the range of float32"),
    ("string", 1, "must be a string, not an integer"),
    ("string", "\ud800", "surrogate"),
    ("bytes", "AP8", "not base64"),
    ("bytes", "AP8=AA==", "not base64"),
    ("bytes", "A P8=", "not base64"),
    ("bytes", "_-8=", "not base64"),
    ("bytes", "é", "not base64"),
    ("bytes", b"ab", "not bytes"),
    ("timestamp", 0, "RFC 3339 string, not an integer"),
    ("timestamp", "2013-01-01", "not an RFC 3339"),
    ("timestamp", "20130101T000000Z", "not an RFC 3339"),
    ("timestamp", "2013-02-29T00:00:00Z", "not an RFC 3339"),
    ("timestamp", "2013-01-01T00:00:00.1234567Z", "finer than a microsecond"),
    ("timestamp", "0001-01-01T00:00:00+01:00", "out of the range of timestamps"),
    ("timestamp", "9999-12-31T23:59:59-01:00", "out of the range of timestamps"),
    ("decimal", 1.5, "not a number with a fraction"),
    ("decimal", "", "not a decimal"),
    ("decimal", ".", "not a decimal"),
    ("decimal", "NaN", "not a decimal"),
    ("decimal", "\u0661", "not a decimal"),
    ("decimal", "1 ", "not a decimal"),
    ("decimal", "1" * 39, "38 digits"),
    ("decimal", 10**38, "38 digits"),
    ("decimal", "1e-39", "38 digits"),
    ("decimal", "1e9999", "38 digits"),
    ("json", nested(JSON_DEPTH_MAX + 1), "nested deeper"),
    ("json", {"a": "\udfff"}, "surrogate"),
    ("json", {"\udfff": 1}, "surrogate"),
    ("json", [2**64], "64 bits"),
    ("json", math.nan, "NaN"),
    ("json", {"a": b"x"}, "holds bytes"),
    ("json", {1: 2}, "an integer as a name"),
]


@pytest.mark.parametrize(("name", "sent", "problem"), REFUSED, ids=lambda value: repr(value)[:30])
def test_refused_with_the_column_named(name: str, sent: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        reader("speed", name, nullable=True)(sent)
    assert caught.value.fields["column"] == "speed"
    assert problem in str(caught.value.fields["problem"])


def test_null_only_where_it_is_allowed() -> None:
    assert reader("c", "json", nullable=True)(None) is None
    with pytest.raises(InvalidInput, match="must not be null"):
        reader("c", "json", nullable=False)(None)


def test_native_forms() -> None:
    def native(name: str) -> Any:
        return reader("c", name, nullable=False, native=True)

    moment = datetime(2013, 1, 1, 5, tzinfo=UTC)
    micros = 1357016400000000
    east = moment.astimezone(timezone(timedelta(hours=9)))
    for sent in (micros, moment, east, moment.replace(tzinfo=None), "2013-01-01T05:00:00Z"):
        assert native("timestamp")(sent) == micros
    assert native("bytes")(b"\0") == b"\0"
    assert math.isnan(native("float32")(math.nan))
    for name, sent in (("bytes", "AA=="), ("float64", "NaN"), ("timestamp", TIMESTAMP_MAX + 1), ("timestamp", True)):
        with pytest.raises(InvalidInput):
            native(name)(sent)


def test_float_in_a_key_is_no_nan_and_has_one_zero() -> None:
    read = reader("c", "float64", nullable=False, key=True)
    assert same(read(-0.0), 0.0)
    assert read("Infinity") == math.inf
    with pytest.raises(InvalidInput, match="NaN"):
        read("NaN")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=9, min_value=-(10**20), max_value=10**20))
def test_decimal_keeps_the_value_in_one_form(number: Decimal) -> None:
    parse = TYPES["decimal"].from_json
    stored = parse(str(number))
    assert Decimal(stored) == number
    assert parse(f"{number}0" if "." in str(number) and "E" not in str(number) else str(number)) == stored
    assert parse(stored) == stored
