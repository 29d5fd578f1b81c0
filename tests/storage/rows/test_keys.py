"""The key codec: order, reversibility, prefixes, the text form, limits."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from storage.rows.keys import KeyCodec
from tests.storage.rows.strategies import KEY_TYPES, comparable, same, stored_in_key
from twinlog.errors import InvalidInput, TooLarge, TwinlogError

Case = tuple[list[str], list[Any], list[Any]]


@st.composite
def two_keys(draw: st.DrawFn) -> Case:
    """Types of a composite key, and two keys that often share their first parts."""
    types = draw(st.lists(st.sampled_from(KEY_TYPES), min_size=1, max_size=4))
    left = [draw(stored_in_key(name)) for name in types]
    shared = draw(st.integers(0, len(types)))
    right = left[:shared] + [draw(stored_in_key(name)) for name in types[shared:]]
    return types, left, right


def codec_of(types: list[str], **limits: int) -> KeyCodec:
    return KeyCodec("t", [(f"c{i}", name) for i, name in enumerate(types)], **limits)


def ordered(types: list[str], values: list[Any]) -> tuple[Any, ...]:
    return tuple(map(comparable, types, values))


@given(two_keys())
@example((["string"], ["a"], ["a\0"]))
@example((["string", "string"], ["a", "\1"], ["a\0", ""]))
@example((["bytes", "bytes"], [b"\0", b"\xff"], [b"\0\xff", b""]))
@example((["decimal"], ["-1.2"], ["-1.23"]))
@example((["decimal"], ["9.9"], ["10"]))
@example((["decimal"], ["0.001"], ["0.01"]))
@example((["float64"], [-1.5], [-1.25]))
@example((["float32"], [float("-inf")], [0.0]))
def test_bytes_compare_as_values_do(case: Case) -> None:
    types, left, right = case
    codec = codec_of(types)
    a, b = codec.encode(left), codec.encode(right)
    first, second = ordered(types, left), ordered(types, right)
    assert (a < b) == (first < second)
    assert (a == b) == (first == second)


@given(two_keys())
def test_decode_and_text_give_the_values_back(case: Case) -> None:
    types, values, _ = case
    codec = codec_of(types)
    key = codec.encode(values)
    assert all(map(same, codec.decode(key), values))
    path = codec.path_from_key(key)
    assert path.isascii()
    assert "/" not in path
    assert codec.key_from_path(path) == key


@given(two_keys())
def test_no_key_is_a_prefix_of_another(case: Case) -> None:
    types, left, right = case
    codec = codec_of(types)
    a, b = codec.encode(left), codec.encode(right)
    assert a == b or not (a.startswith(b) or b.startswith(a))


@given(two_keys(), st.data())
def test_leading_parts_bound_exactly_the_keys_that_begin_with_them(case: Case, data: st.DataObject) -> None:
    types, left, right = case
    codec = codec_of(types)
    count = data.draw(st.integers(1, len(types)))
    prefix = codec.encode(left[:count])
    inside = codec.encode(right).startswith(prefix)
    assert inside == (ordered(types, left)[:count] == ordered(types, right)[:count])


def test_paths_of_a_composite_key() -> None:
    codec = codec_of(["timestamp", "string", "int64", "bool"])
    values = codec.values_from_path("2013-01-01T05:00:00Z,U%2CA%2F,-7,true")
    assert values == (1357016400000000, "U,A/", -7, True)
    assert codec.path_from_values(values) == "2013-01-01T05:00:00Z,=VSxBLw,-7,true", "U,A/ ends in a slash"
    assert codec.prefix_from_path("2013-01-01T06:00:00%2B01:00,UA") == codec.encode((1357016400000000, "UA"))


@pytest.mark.parametrize(
    ("types", "path", "column", "problem"),
    [
        (["int64"], "", "c0", "integer"),
        (["int64"], "1_0", "c0", "integer"),
        (["int64"], "+1", "c0", "integer"),
        (["int64"], "9223372036854775808", "c0", "range"),
        (["int64"], "9" * 5000, "c0", "range"),
        (["int32"], "2147483648", "c0", "range of int32"),
        (["string", "bool"], "a,yes", "c1", "true or false"),
        (["string", "int64"], "a", "c1", "missing"),
        (["string"], "%ff", "c0", "UTF-8"),
        (["float64"], "NaN", "c0", "NaN"),
        (["float64"], "1e999", "c0", "range"),
        (["float64"], " 1", "c0", "number"),
        (["float32"], "1e39", "c0", "range of float32"),
        (["bytes"], "a", "c0", "base64"),
        (["timestamp"], "yesterday", "c0", "RFC 3339"),
        (["decimal"], "one", "c0", "decimal"),
    ],
)
def test_a_bad_path_names_the_column(types: list[str], path: str, column: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        codec_of(types).key_from_path(path)
    assert caught.value.fields["column"] == column


def test_too_many_parts() -> None:
    with pytest.raises(InvalidInput, match=r"1 parts.*%2C"):
        codec_of(["string"]).key_from_path("a,b")


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_path_part_percent_encoded_by_anyone(text: str) -> None:
    assert codec_of(["string"]).values_from_path(quote(text, safe="")) == (text,)


def test_the_limit_of_a_key() -> None:
    codec = codec_of(["string"], bytes_max=10)
    assert len(codec.encode(("a" * 8,))) == 10
    with pytest.raises(TooLarge, match="'t' takes 11 bytes; the limit is 10") as caught:
        codec.encode(("a" * 9,))
    assert caught.value.fields["column"] == "c0"


@given(st.sampled_from(KEY_TYPES), st.binary(max_size=12))
def test_any_bytes_decode_to_a_value_or_to_an_error_of_ours(type_name: str, key: bytes) -> None:
    try:
        values = codec_of([type_name]).decode(key)
    except TwinlogError:
        return
    assert len(values) == 1


def test_json_is_no_key_type() -> None:
    with pytest.raises(TwinlogError, match="json cannot"):
        codec_of(["json"])
