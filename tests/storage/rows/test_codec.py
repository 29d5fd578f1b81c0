"""Rows: whole rows, changes, keys from paths, defaults, schema changes, limits, and errors that name the column."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.rows.codec import RowCodec, RowCodecs, merge_values
from storage.rows.schema import alter
from tests.storage.rows.strategies import json_row, same, stored_rows, table, tables
from twinlog.errors import InvalidInput, TooLarge, TwinlogError

SCHEMA = table(
    [
        {"name": "note", "type": "string"},
        {"name": "id", "type": "int64"},
        {"name": "amount", "type": "decimal", "nullable": False},
        {"name": "at", "type": "timestamp", "nullable": False, "default": "1970-01-01T00:00:01Z"},
        {"name": "site", "type": "string"},
        {"name": "ratio", "type": "float64", "default": "Infinity"},
        {"name": "blob", "type": "bytes"},
    ],
    ["site", "id"],
)
CODEC = RowCodec(SCHEMA)
FULL: dict[str, Any] = {
    "note": None, "id": 7, "amount": "1.5", "at": "2013-01-01T05:00:00Z", "site": "a", "ratio": 0.5, "blob": "AP8=",
}


@st.composite
def tables_and_rows(draw: st.DrawFn) -> tuple[RowCodec, dict[str, Any], dict[str, Any]]:
    schema = draw(tables())
    return RowCodec(schema), draw(stored_rows(schema)), draw(stored_rows(schema))


@given(tables_and_rows())
def test_json_and_native_rows_round_trip_and_agree(case: tuple[RowCodec, dict[str, Any], dict[str, Any]]) -> None:
    codec, stored, _ = case
    sent = json_row(codec.schema, stored)
    key, value = codec.encode_json_row(sent)
    assert codec.encode_json_row(stored, native=True) == (key, value)
    assert codec.encode_json_row(dict(reversed(sent.items()))) == (key, value)
    answered = codec.decode_row(key, value)
    assert same(answered, sent)
    assert same(codec.decode_row(key, value, native=True), stored)
    again = msgspec.json.decode(msgspec.json.encode(answered))
    assert codec.encode_json_row(again)[0] == key


@given(tables_and_rows())
def test_a_key_from_the_path_makes_the_same_row(case: tuple[RowCodec, dict[str, Any], dict[str, Any]]) -> None:
    codec, stored, _ = case
    sent = json_row(codec.schema, stored)
    key, value = codec.encode_json_row(sent)
    path = codec.keys.path_from_key(key)
    rest = {name: item for name, item in sent.items() if name not in codec.schema.primary_key}
    assert codec.encode_row_at(path, sent) == (key, value)
    assert codec.encode_row_at(path, rest) == (key, value)
    assert codec.encode_key({name: sent[name] for name in codec.schema.primary_key}) == key


@given(tables_and_rows(), st.data())
def test_changes_put_over_a_row_are_the_row_with_them(
    case: tuple[RowCodec, dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    codec, old, new = case
    names = [column.name for column in codec.value_columns]
    if not names:
        return
    chosen = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    keys = {name: old[name] for name in codec.schema.primary_key}
    wanted = codec.encode_json_row({**old, **{name: new[name] for name in chosen}}, native=True)
    key, before = codec.encode_json_row(old, native=True)
    update = {**keys, **{name: new[name] for name in chosen}}
    changed_key, changes = codec.encode_update(update, native=True)
    assert (changed_key, merge_values(before, changes)) == wanted
    assert codec.encode_changes_at(codec.keys.path_from_key(key), update, native=True) == (key, changes)


@given(tables_and_rows(), st.data())
def test_chosen_columns_are_a_part_of_the_row_in_its_order(
    case: tuple[RowCodec, dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    codec, stored, _ = case
    key, value = codec.encode_json_row(stored, native=True)
    names = data.draw(st.lists(st.sampled_from(sorted(stored)), unique=True))
    whole = codec.decode_row(key, value)
    assert same(codec.decode_row(key, value, names), {name: item for name, item in whole.items() if name in names})


def test_absent_columns_get_their_default_or_null() -> None:
    key, value = CODEC.encode_json_row({"id": 7, "site": "a", "amount": 2})
    assert CODEC.decode_row(key, value) == {
        "note": None, "id": 7, "amount": "2", "at": "1970-01-01T00:00:01Z", "site": "a", "ratio": "Infinity", "blob": None,
    }
    assert CODEC.encode_row_at("a,7", {"amount": "2.0"}) == (key, value)
    assert CODEC.encode_json_row({"id": 7, "site": "a", "amount": 2}, native=True) == (key, value)
    key, value = CODEC.encode_json_row({"id": 7, "site": "a", "amount": 2, "ratio": None})
    assert CODEC.decode_row(key, value)["ratio"] is None


@pytest.mark.parametrize(
    ("change", "column", "problem"),
    [
        ({"colour": 1}, "colour", "not a column of table 't'"),
        ({"id": None}, "id", "null"),
        ({"id": "7.0"}, "id", "integer"),
        ({"site": "\ud800"}, "site", "surrogate"),
        ({"note": "\ud800"}, "note", "surrogate"),
        ({"note": 1}, "note", "string"),
        ({"amount": None}, "amount", "null"),
        ({"amount": 1.5}, "amount", "string such as"),
        ({"at": "now"}, "at", "RFC 3339"),
        ({"ratio": "big"}, "ratio", "number"),
        ({"blob": "%"}, "blob", "base64"),
    ],
)
def test_a_bad_row_names_the_column(change: dict[str, Any], column: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem) as caught:
        CODEC.encode_json_row({**FULL, **change})
    assert caught.value.fields["column"] == column


@pytest.mark.parametrize("type_name", ["float32", "float64"])
def test_minus_zero_is_zero_in_a_key_and_itself_elsewhere(type_name: str) -> None:
    codec = RowCodec(table([("k", type_name), ("v", type_name)], ["k"]))
    key, value = codec.encode_json_row({"k": -0.0, "v": -0.0})
    assert key == codec.encode_json_row({"k": 0.0, "v": 0})[0] == codec.keys.key_from_path("-0.0")
    assert same(codec.decode_row(key, value), {"k": 0.0, "v": -0.0})


@pytest.mark.parametrize(("type_name", "bits"), [("int32", 31), ("int64", 63)])
def test_integers_at_their_bounds(type_name: str, bits: int) -> None:
    codec = RowCodec(table([("k", "bool"), ("v", type_name)], ["k"]))
    for inside in (-(1 << bits), (1 << bits) - 1):
        assert codec.decode_row(*codec.encode_json_row({"k": True, "v": inside}))["v"] == inside
    for outside in (-(1 << bits) - 1, 1 << bits):
        with pytest.raises(InvalidInput, match="'v': is out of the range"):
            codec.encode_json_row({"k": True, "v": outside})


@pytest.mark.parametrize("missing", ["id", "site", "amount"])
def test_a_missing_column_is_named(missing: str) -> None:
    row = {name: value for name, value in FULL.items() if name != missing}
    for sent in (row, {**row, "other": 1}):
        with pytest.raises(InvalidInput) as caught:
            CODEC.encode_json_row(sent)
        assert caught.value.fields["column"] == ("other" if "other" in sent else missing)


def test_an_unknown_column_in_place_of_one_with_a_default_is_found() -> None:
    row = {name: value for name, value in FULL.items() if name != "note"} | {"nota": 1}
    with pytest.raises(InvalidInput, match="'nota'"):
        CODEC.encode_json_row(row)
    with pytest.raises(InvalidInput, match="'nota'"):
        CODEC.encode_row_at("a,7", row)


@pytest.mark.parametrize("sent", [None, [], "row", 1, [("id", 1)]])
def test_a_row_that_is_no_object(sent: Any) -> None:
    for encode in (
        CODEC.encode_json_row, CODEC.encode_changes, CODEC.encode_key, CODEC.encode_update,
        lambda obj: CODEC.encode_row_at("a,7", obj), lambda obj: CODEC.encode_changes_at("a,7", obj),
    ):
        with pytest.raises(InvalidInput, match="must be an object"):
            encode(sent)


def test_key_columns_in_a_body_agree_with_the_path() -> None:
    with pytest.raises(InvalidInput, match="differs from the key in the path") as caught:
        CODEC.encode_row_at("a,7", {**FULL, "id": 8})
    assert caught.value.fields["column"] == "id"
    with pytest.raises(InvalidInput, match="differs"):
        CODEC.encode_changes_at("a,7", {"site": "b", "note": "x"})
    with pytest.raises(InvalidInput, match="missing from the key"):
        CODEC.encode_row_at("a", FULL)


def test_changes_are_checked() -> None:
    for sent, problem in (
        ({}, "no column"), ({"id": 1}, "primary key"), ({"x": 1}, "not a column"), ({"amount": None}, "null"),
        ({"note": "\ud800"}, "surrogate"),
    ):
        with pytest.raises(InvalidInput, match=problem):
            CODEC.encode_changes(sent)
    with pytest.raises(InvalidInput, match="'id': is missing"):
        CODEC.encode_update({"site": "a", "note": "x"})
    with pytest.raises(InvalidInput, match="'note': is not part of the primary key"):
        CODEC.encode_key({"site": "a", "id": 1, "note": "x"})


def test_limits() -> None:
    codec = RowCodec(SCHEMA, row_bytes_max=200, key_bytes_max=20)
    codec.encode_json_row({**FULL, "note": "x" * 120})
    for encode in (
        lambda: codec.encode_json_row({**FULL, "note": "x" * 200}),
        lambda: codec.encode_row_at("a,7", {**FULL, "note": "x" * 200}),
        lambda: codec.encode_changes({"note": "x" * 200}),
    ):
        with pytest.raises(TooLarge, match=r"row of table 't' takes .* the limit is 200"):
            encode()
    for encode in (
        lambda: codec.encode_json_row({**FULL, "site": "x" * 11}),
        lambda: codec.encode_row_at("x" * 11 + ",7", {"amount": 1}),
        lambda: codec.encode_key({"site": "x" * 11, "id": 7}),
    ):
        with pytest.raises(TooLarge, match=r"key .* of table 't' takes 21 bytes"):
            encode()
    codec.encode_json_row({**FULL, "site": "x" * 10})


def test_rows_of_an_older_schema_read_through_the_new_one() -> None:
    key, value = CODEC.encode_json_row(FULL)
    dropped = alter(SCHEMA, {"drop": ["note"], "rename": {"blob": "raw", "site": "place"}})
    added = alter(dropped, {"add": [
        {"name": "note", "type": "string"}, {"name": "n", "type": "int32", "nullable": False, "default": 3},
    ]})
    row = RowCodec(added).decode_row(key, value)
    assert row == {
        "id": 7, "amount": "1.5", "at": "2013-01-01T05:00:00Z", "place": "a", "ratio": 0.5, "raw": "AP8=", "note": None, "n": 3,
    }
    changed = merge_values(value, RowCodec(added).encode_changes({"note": "new"}))
    assert RowCodec(added).decode_row(key, changed, ["note"]) == {"note": "new"}
    assert CODEC.decode_row(key, changed, ["note"]) == {"note": None}


def test_an_unknown_column_to_read() -> None:
    key, value = CODEC.encode_json_row(FULL)
    with pytest.raises(InvalidInput, match="'colour': is not a column"):
        CODEC.decode_row(key, value, ["id", "colour"])


def test_damaged_rows_are_an_error_of_ours() -> None:
    key, value = CODEC.encode_json_row(FULL)
    with pytest.raises(TwinlogError, match="does not decode"):
        CODEC.decode_row(key, value[:-1])
    with pytest.raises(TwinlogError, match="does not decode"):
        CODEC.decode_row(key[:-1], value)


def test_a_table_of_key_columns_only() -> None:
    codec = RowCodec(table([("a", "string")], ["a"]))
    key, value = codec.encode_json_row({"a": "x"})
    assert codec.encode_row_at("x", {}) == (key, value)
    assert codec.decode_row(key, value) == {"a": "x"}


def test_codecs_follow_the_schema() -> None:
    codecs = RowCodecs(row_bytes_max=1000)
    codec = codecs.get(SCHEMA)
    assert codec.row_bytes_max == 1000
    assert codecs.get(SCHEMA) is codec
    assert codecs.get(msgspec.structs.replace(SCHEMA)) is codec
    changed = alter(SCHEMA, {"drop": ["note"]})
    assert codecs.get(changed).schema is changed
    assert codecs.get(SCHEMA).schema is SCHEMA
