"""Table schemas: parsing with every fault, the public form, equality, online changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from storage.rows.schema import (
    COLUMNS_MAX,
    TableSchema,
    alter,
    decode_schema,
    encode_schema,
    parse_table,
    same_table,
    to_public,
)
from tests.storage.rows.strategies import tables
from twinlog.errors import InvalidInput

BODY: dict[str, Any] = {
    "name": "flights",
    "columns": [
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "int64", "nullable": False},
        {"name": "delay", "type": "float64", "default": "NaN"},
        {"name": "seen", "type": "timestamp", "nullable": False, "default": "2013-01-01T06:00:00+01:00"},
        {"name": "raw", "type": "bytes", "nullable": True, "default": "AP8="},
    ],
    "primary_key": ["flight", "carrier"],
    "replication": "async",
    "history_s": 60,
}


def body(**changes: Any) -> dict[str, Any]:
    return {**BODY, **changes}


def faults_of(error: InvalidInput) -> dict[str, str]:
    faults = error.fields["faults"]
    assert isinstance(faults, list)
    return {fault["where"]: fault["problem"] for fault in faults}


def test_public_form_is_complete() -> None:
    assert msgspec.to_builtins(to_public(parse_table(BODY))) == {
        **BODY, "partitioning": None,
        "columns": [
            {"name": "carrier", "type": "string", "nullable": False, "default": None},
            {"name": "flight", "type": "int64", "nullable": False, "default": None},
            {"name": "delay", "type": "float64", "nullable": True, "default": "NaN"},
            {"name": "seen", "type": "timestamp", "nullable": False, "default": "2013-01-01T05:00:00Z"},
            {"name": "raw", "type": "bytes", "nullable": True, "default": "AP8="},
        ],
    }


def test_what_may_be_left_out() -> None:
    schema = parse_table({"name": "t", "columns": [{"name": "k", "type": "string"}], "primary_key": ["k"]}, 3)
    assert (schema.id, schema.partitioning, schema.replication, schema.history_s) == (3, None, "sync", 0)
    assert (schema.revision, schema.next_column_id) == (1, 2)


@given(tables())
def test_schema_bytes_and_public_form_round_trip(schema: TableSchema) -> None:
    again = decode_schema(encode_schema(schema))
    assert encode_schema(again) == encode_schema(schema)
    assert msgspec.structs.asdict(again).keys() == msgspec.structs.asdict(schema).keys()
    posted = parse_table(msgspec.json.decode(msgspec.json.encode(to_public(schema))))
    assert same_table(schema, posted)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"replication": "sync"},
        {"history_s": 61},
        {"primary_key": ["carrier", "flight"]},
        {"columns": [*BODY["columns"], {"name": "more", "type": "bool"}]},
        {"columns": [BODY["columns"][1], BODY["columns"][0], *BODY["columns"][2:]]},
        {"columns": [*BODY["columns"][:4], {"name": "raw", "type": "bytes", "default": "AP4="}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_different_table_is_not_the_same(change: dict[str, Any]) -> None:
    schema = parse_table(BODY, 9)
    assert same_table(schema, parse_table(BODY))
    assert not same_table(schema, parse_table(body(**change)))


def test_defaults_of_true_and_one_are_different() -> None:
    def with_default(value: object) -> TableSchema:
        return parse_table({
            "name": "t", "primary_key": ["k"],
            "columns": [{"name": "k", "type": "string"}, {"name": "j", "type": "json", "default": value}],
        })

    assert not same_table(with_default({"a": 1}), with_default({"a": True}))


@pytest.mark.parametrize(
    ("changes", "where", "problem"),
    [
        ({"name": "1a"}, "name", "letters"),
        ({"name": "a" * 129}, "name", "128"),
        ({"name": None}, "name", "letters"),
        ({"name": "a\n"}, "name", "letters"),
        ({"columns": []}, "columns", "empty"),
        ({"columns": {}}, "columns", "list"),
        ({"columns": [{"name": f"c{i}", "type": "bool"} for i in range(COLUMNS_MAX + 1)]}, "columns", "at most 1000"),
        ({"columns": [{"name": "a b", "type": "bool"}]}, "columns[0].name", "letters"),
        ({"columns": [{"name": "a", "type": "text"}]}, "columns[0].type", "one of bool"),
        ({"columns": [{"name": "a", "type": []}]}, "columns[0].type", "one of bool"),
        ({"columns": [{"name": "a"}]}, "columns[0].type", "missing"),
        ({"columns": [{"name": "a", "type": "bool", "size": 3}]}, "columns[0].size", "not known"),
        ({"columns": [{"name": "a", "type": "bool", "nullable": 1}]}, "columns[0].nullable", "true or false"),
        ({"columns": [{"name": "a", "type": "int32", "default": 2**31}]}, "columns[0].default", "int32"),
        ({"columns": ["a"]}, "columns[0]", "object"),
        ({"columns": [*BODY["columns"], BODY["columns"][0]]}, "columns", "'carrier' twice"),
        ({"columns": [{"name": "carrier", "type": "string", "nullable": True}]}, "columns[0].nullable", "primary key"),
        ({"columns": [{"name": "carrier", "type": "string", "default": ""}]}, "columns[0].default", "primary key"),
        ({"columns": [{"name": "carrier", "type": "json"}]}, "columns[0].type", "cannot be json"),
        ({"primary_key": []}, "primary_key", "1 to 16"),
        ({"primary_key": "carrier"}, "primary_key", "list"),
        ({"primary_key": ["carrier", "carrier"]}, "primary_key", "twice"),
        ({"primary_key": ["carrier", "tail"]}, "primary_key", "'tail', which is no column"),
        ({"partitioning": {"hash": {"columns": ["carrier"], "buckets": 4}}}, "partitioning", "does not work yet"),
        ({"replication": "full"}, "replication", "sync, async, local"),
        ({"history_s": -1}, "history_s", "seconds"),
        ({"history_s": True}, "history_s", "seconds"),
        ({"colour": 1}, "table.colour", "not known"),
    ],
)
def test_a_fault_names_its_place(changes: dict[str, Any], where: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_table(body(**changes))
    assert problem in faults_of(caught.value)[where]
    assert where in caught.value.message


def test_every_fault_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_table({"name": "!", "columns": [{"name": "a", "type": "x"}, {"name": "b"}], "replication": 1})
    assert set(faults_of(caught.value)) == {"name", "columns[0].type", "columns[1].type", "table.primary_key", "replication"}


@pytest.mark.parametrize("sent", [None, [], "t", 1])
def test_a_body_that_is_no_object(sent: object) -> None:
    with pytest.raises(InvalidInput, match="must be an object"):
        parse_table(sent)


def test_alter_add_drop_rename() -> None:
    before = parse_table(BODY, 5)
    after = alter(before, {
        "drop": ["delay"], "rename": {"carrier": "airline", "raw": "seen", "seen": "raw"},
        "add": [{"name": "delay", "type": "int32"}, {"name": "gate", "type": "string", "nullable": False, "default": "?"}],
        "replication": "sync", "history_s": 0,
    })
    assert [(column.id, column.name) for column in after.columns] == [
        (1, "airline"), (2, "flight"), (4, "raw"), (5, "seen"), (6, "delay"), (7, "gate"),
    ]
    assert after.primary_key == ("flight", "airline")
    assert (after.id, after.revision, after.next_column_id) == (5, 2, 8)
    assert (after.replication, after.history_s) == ("sync", 0)
    assert before == parse_table(BODY, 5)


def test_an_id_is_never_used_again() -> None:
    schema, seen = parse_table(BODY), set(range(1, 6))
    for _ in range(5):
        schema = alter(schema, {"add": [{"name": "more", "type": "bool"}]})
        assert schema.columns[-1].id not in seen
        seen.add(schema.columns[-1].id)
        schema = alter(schema, {"drop": ["more"]})


@pytest.mark.parametrize(
    ("patch", "where", "problem"),
    [
        ({}, "patch", "nothing to change"),
        ([], "patch", "object"),
        ({"name": "x"}, "patch.name", "not known"),
        ({"drop": ["carrier"]}, "drop", "primary key"),
        ({"drop": ["nothing"]}, "drop", "no column"),
        ({"drop": ["delay", "delay"]}, "drop", "twice"),
        ({"drop": "delay"}, "drop", "list"),
        ({"rename": {"nothing": "x"}}, "rename", "no column"),
        ({"rename": {"delay": "raw"}}, "columns", "'raw' twice"),
        ({"rename": {"delay": "1"}}, "rename.delay", "letters"),
        ({"rename": ["delay"]}, "rename", "object"),
        ({"rename": {"delay": "late"}, "drop": ["delay"]}, "rename", "is dropped"),
        ({"add": [{"name": "raw", "type": "bool"}]}, "columns", "'raw' twice"),
        ({"add": [{"name": "x", "type": "bool", "nullable": False}]}, "add.x", "needs a default"),
        ({"add": [{"name": f"x{i}", "type": "bool"} for i in range(COLUMNS_MAX)]}, "columns", "at most 1000"),
        ({"replication": "local"}, "replication", "local"),
        ({"history_s": 1.5}, "history_s", "seconds"),
    ],
)
def test_a_bad_change_names_its_place(patch: object, where: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        alter(parse_table(BODY), patch)
    assert problem in faults_of(caught.value)[where]
