"""Predicates: every op against a plain evaluation of it, nulls, defaults, errors that name column and op."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from storage.rows.predicates import IN_VALUES_MAX, OPS, PREDICATES_MAX, compile_predicates
from storage.rows.schema import alter
from storage.rows.types import TYPES
from tests.storage.rows.strategies import STORED, as_json, comparable, stored_in_key, table
from twinlog.errors import InvalidInput, TooLarge, TwinlogError

TYPES_COMPARED = sorted(set(TYPES) - {"json"})
CODEC = RowCodec(table(
    [("k", "string"), ("n", "int64"), ("price", "decimal"), ("note", "string"), ("raw", "bytes"), ("j", "json"),
     ("x", "float64")],
    ["k", "n"],
))


def row(codec: RowCodec = CODEC, **values: Any) -> StoredRow:
    return StoredRow(*codec.encode_json_row({"k": "a", "n": 1, **values}), version=1)


def holds(stored: StoredRow | None, *where: dict[str, Any]) -> bool:
    return compile_predicates(CODEC, list(where))(stored)


def cond(column: str, op: str, *value: Any) -> dict[str, Any]:
    return {"column": column, "op": op, **({"value": value[0]} if value else {})}


def plainly(op: str, left: Any, right: Any) -> bool:
    """The dumb twin."""
    if op == "=":
        return bool(left == right)
    if op == "!=":
        return bool(left != right)
    if op == "<":
        return bool(left < right)
    if op == "<=":
        return bool(left < right or left == right)
    if op == ">":
        return bool(right < left)
    return bool(right < left or left == right)


@given(st.data(), st.sampled_from(TYPES_COMPARED), st.booleans())
def test_comparisons_agree_with_the_values(data: st.DataObject, type_name: str, in_key: bool) -> None:
    codec = RowCodec(table([("c", type_name), ("k", type_name)], ["c" if in_key else "k"]))
    values = stored_in_key(type_name)
    stored = data.draw(values)
    other = data.draw(st.one_of(st.just(stored), values))
    held = StoredRow(*codec.encode_json_row({"c": stored, "k": stored}, native=True), version=1)
    for op in ("=", "!=", "<", "<=", ">", ">="):
        expected = plainly(op, comparable(type_name, stored), comparable(type_name, other))
        where = [cond("c", op, as_json(type_name, other))]
        assert compile_predicates(codec, where)(held) == expected
        assert compile_predicates(codec, [cond("c", op, other)], native=True)(held) == expected
    listed = [as_json(type_name, data.draw(values)), as_json(type_name, other)]
    among = [TYPES[type_name].from_json(item) for item in listed]
    assert compile_predicates(codec, [cond("c", "in", listed)])(held) == any(stored == item for item in among)


@given(STORED["string"], STORED["string"])
def test_prefix_of_strings(text: str, prefix: str) -> None:
    assert holds(row(note=text), cond("note", "prefix", prefix)) == (text[: len(prefix)] == prefix)


def test_prefix_of_bytes() -> None:
    assert holds(row(raw="AAEC"), cond("raw", "prefix", "AAE="))
    assert not holds(row(raw="AAEC"), cond("raw", "prefix", "AQ=="))


def test_decimals_compare_by_number() -> None:
    assert holds(row(price="10"), cond("price", ">", "9.5"), cond("price", "=", "10.00"), cond("price", "in", ["10.0"]))
    assert not holds(row(price="-10"), cond("price", ">", "-9"))


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
def test_null_and_nan_compare_with_nothing(op: str) -> None:
    assert not holds(row(note=None), cond("note", op, ""))
    assert holds(row(x="NaN"), cond("x", op, 1)) == (op == "!=")
    assert holds(row(x="NaN"), cond("x", op, "NaN")) == (op == "!=")


def test_null_tests() -> None:
    for column in ("note", "price", "raw", "j", "x"):
        assert holds(row(), cond(column, "is_null"))
        assert not holds(row(), cond(column, "not_null"))
    held = row(note="", j={"a": 1})
    assert holds(held, cond("note", "not_null"), cond("j", "not_null", None))
    assert not holds(held, cond("j", "is_null"))
    assert not holds(row(note=None), cond("note", "in", ["a"]))
    assert not holds(row(note=None), cond("note", "prefix", ""))
    assert not holds(row(x="NaN"), cond("x", "in", ["NaN", 1]))


SOUND = {
    "bool": True, "int32": 1, "int64": 1, "float32": 1.0, "float64": 1.0, "string": "a", "bytes": b"a", "timestamp": 1,
    "decimal": "1",
}
DAMAGED = (b"\x00\x01", "text", [1], {"a": 1}, True, 1.5, float("nan"), -3, 2**63)


@pytest.mark.parametrize("type_name", TYPES_COMPARED)
@pytest.mark.parametrize("op", OPS)
def test_a_stored_value_of_another_type_is_an_error_of_the_tree(type_name: str, op: str) -> None:
    """The bytes of a row on a disk may decode to anything; what cannot be compared is damage, not a defect of twinlog."""
    codec = RowCodec(table([("k", "string"), ("c", type_name)], ["k"]))
    sound = as_json(type_name, SOUND[type_name])
    operand = {"is_null": [], "not_null": [], "in": [[sound]]}.get(op, [sound])
    if op == "prefix" and type_name not in ("string", "bytes"):
        return
    test = compile_predicates(codec, [cond("c", op, *operand)])
    key, value = codec.encode_json_row({"k": "a", "c": sound})
    (column_id,) = msgspec.msgpack.decode(value, type=dict[int, Any])
    for wrong in DAMAGED:
        held = StoredRow(key, msgspec.msgpack.encode({column_id: wrong}), 1)
        with contextlib.suppress(TwinlogError):
            assert test(held) in (True, False)


def test_all_must_hold_and_an_absent_row_satisfies_nothing() -> None:
    held = row(note="x")
    assert holds(held)
    assert holds(held, cond("k", "=", "a"), cond("n", "<=", 1), cond("note", "=", "x"))
    assert not holds(held, cond("k", "=", "a"), cond("note", "=", "y"))
    assert not holds(held, cond("k", "=", "b"), cond("note", "=", "x"))
    assert not holds(None)
    assert not holds(None, cond("note", "is_null"))


def test_a_column_added_later_compares_by_its_default() -> None:
    old = row()
    codec = RowCodec(alter(CODEC.schema, {"add": [{"name": "m", "type": "int64", "default": 4}]}))
    assert compile_predicates(codec, [cond("m", "=", 4)])(old)
    assert not compile_predicates(codec, [cond("m", "is_null")])(old)


def test_a_default_of_nan_is_in_no_list() -> None:
    old = row()
    codec = RowCodec(alter(CODEC.schema, {"add": [{"name": "m", "type": "float64", "default": "NaN"}]}))
    assert not compile_predicates(codec, [cond("m", "in", ["NaN"])])(old)


def test_only_what_is_named_is_decoded() -> None:
    held = row(note="x")
    no_value = StoredRow(held.key, b"\xc1", 1)
    no_key = StoredRow(b"\xc1", held.value, 1)
    assert holds(no_value, cond("n", "=", 1))
    assert holds(no_key, cond("note", "=", "x"))
    with pytest.raises(TwinlogError):
        holds(no_key, cond("n", "=", 1))


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (cond("colour", "=", 1), "'colour', op '=': is not a column of table 't'"),
        (cond("n", "like", 1), "'n', op 'like': has an op that is not known"),
        ({"column": "n", "op": []}, "'n', op '\\[\\]'"),
        ({"column": ["n"], "op": "="}, "is not a column"),
        (cond("n", "=", "x"), "'n', op '=': must be an integer"),
        (cond("n", "="), "'n', op '=': needs a"),
        (cond("n", "=", None), "'n', op '=': cannot compare with null"),
        (cond("n", "in", 1), "'n', op 'in': needs a list"),
        (cond("n", "in", [1, "x"]), "'n', op 'in': must be an integer"),
        (cond("n", "in", [1, None]), "'n', op 'in': cannot compare with null"),
        (cond("n", "prefix", 1), "'n', op 'prefix': is of type int64"),
        (cond("n", "is_null", 1), "'n', op 'is_null': takes no value"),
        (cond("j", "=", 1), "'j', op '=': is a json column"),
        ({"column": "n"}, "a predicate must be an object"),
        ({"column": "n", "op": "=", "value": 1, "more": 1}, "a predicate must be an object"),
        ([], "a predicate must be an object"),
    ],
)
def test_a_bad_predicate_names_column_and_op(where: Any, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        compile_predicates(CODEC, [where])


def test_limits_and_form() -> None:
    with pytest.raises(InvalidInput, match="must be a list"):
        compile_predicates(CODEC, {"column": "n"})
    with pytest.raises(TooLarge, match=f"at most {PREDICATES_MAX}"):
        compile_predicates(CODEC, [cond("n", "=", 1)] * (PREDICATES_MAX + 1))
    with pytest.raises(TooLarge, match=f"'n', op 'in'.*at most {IN_VALUES_MAX}"):
        compile_predicates(CODEC, [cond("n", "in", [1] * (IN_VALUES_MAX + 1))])
