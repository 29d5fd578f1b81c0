"""Bytes that came as stored are what this release would have stored, or are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.rows import stored
from storage.rows.codec import RowCodec, merge_values
from storage.rows.schema import Column, TableSchema, alter, dropped, encode_schema, restored
from storage.rows.stored import StoredTable, check_follows, stored_schema
from tests.storage.rows.strategies import json_row, stored_rows, table, tables
from twinlog.errors import InvalidInput

T = table([("id", "int64"), ("text", "string"), ("n", "int32"), ("f", "float64"), ("at", "timestamp")], ["id"])


def checked(schema: TableSchema, row: dict[str, Any]) -> tuple[bytes, bytes]:
    return RowCodec(schema).encode_json_row(json_row(schema, row))


@given(st.data())
def test_whatever_the_codec_stores_passes(data: st.DataObject) -> None:
    schema = data.draw(tables())
    assert encode_schema(stored_schema(encode_schema(schema))) == encode_schema(schema)  # a NaN does not equal itself
    rows, codec = StoredTable(schema), RowCodec(schema)
    key, value = checked(schema, data.draw(stored_rows(schema)))
    rows.key(key)
    rows.row(key, value)
    row = codec.decode_row(key, value)
    rest = {column.name: row[column.name] for column in schema.value_columns}
    if rest:
        changes = codec.encode_changes(rest)
        rows.changes(key, changes)
        rows.row(key, merge_values(value, changes))


@given(st.data())
def test_a_changed_byte_is_refused_or_is_a_row_of_its_own(data: st.DataObject) -> None:
    schema = data.draw(tables())
    rows, codec = StoredTable(schema), RowCodec(schema)
    key, value = checked(schema, data.draw(stored_rows(schema)))
    sound = bytearray(key + value)
    sound[data.draw(st.integers(0, len(sound) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    key, value = bytes(sound[: len(key)]), bytes(sound[len(key) :])
    try:
        rows.row(key, value)
    except InvalidInput:
        return
    key_again, value_again = codec.encode_json_row(codec.decode_row(key, value, native=True), native=True)
    assert key_again == key
    assert merge_values(value_again, value) == value_again


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_are_refused_by_name_or_read(key: bytes, value: bytes) -> None:
    try:
        StoredTable(T).row(key, value)
    except InvalidInput:
        return
    RowCodec(T).decode_row(key, value)


@pytest.mark.parametrize("value", [
    b"garbage", b"\xc1", b"\x90", b"\x81\x02\xa1\xff", b"\x81\x02" + b"\x91" * 5000, b"\x81\xd0\xff\xc0",
    msgspec.msgpack.encode({2: 7}), msgspec.msgpack.encode({3: 1 << 31}), msgspec.msgpack.encode({4: 1}),
    msgspec.msgpack.encode({5: 1 << 62}), msgspec.msgpack.encode({1: 5}), msgspec.msgpack.encode({6: "x"}),
    msgspec.msgpack.encode({2: "a"}) + b"\0", b"\x81\xcc\x02\xa1a", b"\x82\x02\xa1a\x02\xa1b",
])
def test_values_that_no_codec_makes(value: bytes) -> None:
    key = RowCodec(T).encode_key({"id": 7})
    with pytest.raises(InvalidInput, match="table 't'"):
        StoredTable(T).row(key, value)


def test_a_column_without_a_default_is_there() -> None:
    needs = table([("id", "int64"), {"name": "n", "type": "int32", "nullable": False}], ["id"])
    key = RowCodec(needs).encode_key({"id": 7})
    with pytest.raises(InvalidInput, match="without a value of column 2"):
        StoredTable(needs).row(key, b"\x80")
    with pytest.raises(InvalidInput, match="changes nothing"):
        StoredTable(needs).changes(key, b"\x80")


def test_a_table_that_was_dropped_is_one_still() -> None:
    gone = dropped(T, 1_700_000_000_000)
    assert stored_schema(encode_schema(gone)) == gone
    check_follows(T, gone)
    check_follows(gone, restored(gone))
    for change in ({"name": "t~../x"}, {"dropped_ms": -1}, {"dropped_ms": 1 << 60}, {"dropped_ms": None}):
        with pytest.raises(InvalidInput):
            stored_schema(encode_schema(replace(gone, **change)))


def test_rows_of_an_older_schema_pass() -> None:
    key, value = RowCodec(T).encode_json_row({"id": 1, "text": "old", "n": 1, "f": 0.5, "at": "2026-01-01T00:00:00Z"})
    later = alter(T, {"drop": ["n"], "add": [{"name": "n", "type": "string", "default": "x"}]})
    check_follows(T, later)
    StoredTable(later).row(key, value)


@pytest.mark.parametrize("change", [
    {"name": "a/../b"}, {"name": ""}, {"primary_key": ()}, {"primary_key": ("nobody",)}, {"columns": ()}, {"history_s": -1},
    {"replication": "often"}, {"next_column_id": 2}, {"revision": 0}, {"partitioning": {"by": "id"}},
    {"columns": (*T.columns[:-1], replace(T.columns[-1], id=1))}, {"columns": (*T.columns, Column(6, "x", "int8", True))},
    {"columns": (*T.columns[:-1], replace(T.columns[-1], name="text"))},
    {"columns": (*T.columns[:-1], replace(T.columns[-1], default="soon"))},
    {"columns": (*T.columns[:-1], replace(T.columns[-1], id=1 << 40)), "next_column_id": 1 << 41},
])
def test_schemas_that_no_door_lets_in(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        stored_schema(encode_schema(replace(T, **change)))


@given(st.binary(max_size=60))
def test_any_bytes_are_no_schema(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        stored_schema(data)


@pytest.mark.parametrize("change", [
    {"columns": (*T.columns[:-1], replace(T.columns[-1], type="string"))}, {"primary_key": ("n",)},
    {"columns": T.columns[:-1], "next_column_id": 5},
])
def test_a_schema_follows_from_the_one_before(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="does not follow"):
        check_follows(T, replace(T, **change))


def test_a_new_column_does_not_take_the_id_of_one_that_was_dropped() -> None:
    """Else the values that rows still have of the old column would be read as those of the new one."""
    gone = alter(T, {"drop": ["n"]})
    number, = {column.id for column in T.columns} - {column.id for column in gone.columns}
    check_follows(gone, replace(gone, columns=(*gone.columns, Column(gone.next_column_id, "m", "int32", True)),
                                next_column_id=gone.next_column_id + 1))
    with pytest.raises(InvalidInput, match="does not follow"):
        check_follows(gone, replace(gone, columns=(*gone.columns, Column(number, "m", "int32", True))))


def test_a_key_is_its_parts_and_nothing_behind_them() -> None:
    texts = table([("k", "string"), ("n", "int64")], ["k"])
    for schema, values in ((T, {"id": 1}), (texts, {"k": "a\0b"})):
        key = RowCodec(schema).encode_key(values)
        StoredTable(schema).key(key)
        for other in (key + b"\0", key + b"x", key[:-1]):
            with pytest.raises(InvalidInput, match="a key"):
                StoredTable(schema).key(other)
    with pytest.raises(InvalidInput, match="a zero byte stands alone"):
        StoredTable(texts).key(b"a\0b\0\1")


def test_a_key_and_a_row_have_a_most(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = table([("k", "string"), ("n", "int64")], ["k"])
    key, value = RowCodec(texts).encode_json_row({"k": "abc", "n": 1})
    monkeypatch.setattr(stored, "KEY_BYTES_MOST", len(key))
    monkeypatch.setattr(stored, "ROW_BYTES_MOST", len(key) + len(value))
    StoredTable(texts).row(key, value)
    monkeypatch.setattr(stored, "ROW_BYTES_MOST", len(key) + len(value) - 1)
    with pytest.raises(InvalidInput, match="a row of"):
        StoredTable(texts).row(key, value)
    monkeypatch.setattr(stored, "KEY_BYTES_MOST", len(key) - 1)
    with pytest.raises(InvalidInput, match="a key of"):
        StoredTable(texts).key(key)
