"""Tests of what only an SQL engine has: a table that a person reads, changed in step with the schema, whatever it holds."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from storage.engine import StoredRow
from storage.engines.sql.column_types import SHOWN_COLUMNS_MAX, shown_columns
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.names import column_names
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.codec import RowCodec
from storage.rows.schema import Column, TableSchema, alter, dropped, encode_schema, parse_table, restored
from storage.rows.types import INT64_MAX, INT64_MIN
from tests.storage.engines.engine_rig import Log, drop_table, upsert
from tests.storage.engines.sql.rig import PostgresRig, SqliteRig, a_database, postgres
from twinlog.errors import EngineFailed

TYPES = ["bool", "int32", "int64", "float32", "float64", "string", "bytes", "timestamp", "decimal", "json"]
PLAIN = {"k": 1, "bool": True, "int32": -5, "int64": INT64_MAX, "float32": 0.1, "float64": 0.1, "string": "Zürich % :x '\\",
         "bytes": b"\x00\xff", "timestamp": "2013-01-01T05:00:00.000001Z", "decimal": "12.50", "json": {"a": [1, None]}}
HOSTILE = [
    {"k": 2, "int64": INT64_MIN, "float32": float("nan"), "float64": -0.0, "string": "a\0b", "bytes": b"",
     "timestamp": "0001-01-01T00:00:00Z", "decimal": "-" + "9" * 38, "json": {"a\0": ["\0", 1e300, 2**64 - 1, -0.0]}},
    {"k": 3, "float32": float("inf"), "float64": float("nan"), "string": "\ud7ff\U0010ffff\t\n\\N",
     "timestamp": "9999-12-31T23:59:59.999999Z", "decimal": "0." + "0" * 37 + "1", "json": "\\u0000"},
    {"k": 4, "float64": float("-inf"), "float32": 1e-45, "string": "", "json": None},
]


def schema(columns: list[dict[str, Any]] | None = None, name: str = "flights", table_id: int = 1, **more: Any) -> TableSchema:
    made = columns or [{"name": kind, "type": kind} for kind in TYPES]
    body = {"name": name, "columns": [{"name": "k", "type": "int64"}, *made], "primary_key": ["k"], **more}
    return parse_table(body, table_id)


def ddl(made: TableSchema) -> Record:
    change = SchemaChange(kind="put", table=made.id, schema=encode_schema(made), history_s=made.history_s)
    return Record(kind=int(RecordKind.DDL), table=made.id, value=msgspec.msgpack.encode(change))


def row(made: TableSchema, content: dict[str, Any]) -> Record:
    return upsert(*RowCodec(made).encode_json_row(content, native=True), table=made.id)


@pytest.fixture
def database() -> Any:
    with a_database() as name:
        yield name


@pytest.fixture
async def rig(database: str) -> AsyncIterator[PostgresRig]:
    made = await PostgresRig.make(database)
    yield made
    await made.engine.close()


def seen(database: str, query: str) -> list[tuple[Any, ...]]:
    """Returns what psql would show."""
    with postgres().connect(database) as connection:
        connection.execute("SET timezone = 'UTC'")
        return connection.execute(query.encode()).fetchall()


async def test_a_person_sees_a_normal_table(rig: PostgresRig, database: str) -> None:
    made = schema()
    await rig.engine.apply([Log().frame(ddl(made), row(made, PLAIN))])
    types = seen(database, "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'flights' "
                           "ORDER BY ordinal_position")
    assert types == [
        ("k", "bigint"), ("bool", "boolean"), ("int32", "integer"), ("int64", "bigint"), ("float32", "real"),
        ("float64", "double precision"), ("string", "text"), ("bytes", "bytea"), ("timestamp", "timestamp with time zone"),
        ("decimal", "numeric"), ("json", "jsonb"), ("twinlog_key", "bytea"), ("twinlog_version", "bigint"),
        ("twinlog_value", "bytea"),
    ]
    assert seen(database, f"SELECT k, {', '.join(TYPES)} FROM flights") == [
        (1, True, -5, INT64_MAX, pytest.approx(0.1), 0.1, "Zürich % :x '\\", b"\x00\xff",
         datetime(2013, 1, 1, 5, 0, 0, 1, tzinfo=UTC), Decimal("12.5"), {"a": [1, None]})
    ]


@pytest.mark.parametrize("copied", [False, True], ids=["few rows", "many rows"])
async def test_every_value_comes_back_as_it_was_and_none_is_refused(rig: PostgresRig, database: str, copied: bool) -> None:
    made = schema()
    more = [{"k": 100 + n} for n in range(50 if copied else 0)]
    records = [row(made, content) for content in [PLAIN, *HOSTILE, *more]]
    frame = Log().frame(ddl(made), *records)
    await rig.engine.apply([frame])
    expected = [StoredRow(one.key, one.value, frame.timestamp + 1 + n) for n, one in enumerate(records)]
    assert await rig.engine.scan(1, None, None, reverse=False, limit=100) == expected
    columns = "string, bytes, decimal, json ->> 0, timestamp = '0001-01-01'::timestamptz"
    shown = seen(database, f"SELECT {columns} FROM flights WHERE k = 2")
    assert shown == [("a\u2400b", b"", Decimal("-" + "9" * 38), None, True)]
    assert seen(database, "SELECT float64::text, float32::text FROM flights WHERE k < 5 ORDER BY k") == [
        ("0.1", "0.1"), ("-0", "NaN"), ("NaN", "Infinity"), ("-Infinity", "1e-45")
    ]


async def test_the_order_is_that_of_the_keys_bytes_and_no_collation(rig: PostgresRig) -> None:
    made = parse_table({"name": "words", "columns": [{"name": "w", "type": "string"}], "primary_key": ["w"]}, 3)
    words = ["a", "B", "ä", "Z", "a b", "ab", "a\0", "", "é", "e\u0301", "\U0001f600", "\uffff"]
    await rig.engine.apply([Log().frame(ddl(made), *(row(made, {"w": word}) for word in words))])
    found = await rig.engine.scan(3, None, None, reverse=False, limit=100)
    codec = RowCodec(made)
    assert [codec.decode_row(one.key, one.value)["w"] for one in found] == sorted(words, key=lambda word: word.encode())


async def test_a_schema_change_is_a_change_of_the_table(rig: PostgresRig, database: str) -> None:
    log, first = Log(), schema([{"name": "a", "type": "string"}, {"name": "b", "type": "int32"}, {"name": "c", "type": "json"}])
    await rig.engine.apply([log.frame(ddl(first), row(first, {"k": 1, "a": "one", "b": 1, "c": [1]}))])
    before = await rig.engine.get(1, RowCodec(first).keys.encode([1]))
    second = alter(first, {
        "drop": ["c"], "rename": {"a": "b", "b": "a"},
        "add": [{"name": "c", "type": "string", "default": "it's 5% :now"}, {"name": "d", "type": "decimal", "default": "1.5"}],
    })
    await rig.engine.apply([log.frame(ddl(second), row(second, {"k": 2, "a": 2, "b": "two", "c": "see", "d": "2"}))])
    assert seen(database, "SELECT k, a, b, c, d FROM flights ORDER BY k") == [
        (1, 1, "one", "it's 5% :now", Decimal("1.5")), (2, 2, "two", "see", Decimal("2"))
    ]
    assert await rig.engine.get(1, RowCodec(first).keys.encode([1])) == before  # its bytes are as RocksDB has them
    await rig.restart()
    assert await rig.engine.get(1, RowCodec(first).keys.encode([1])) == before
    await rig.engine.apply([log.frame(drop_table(1))])
    assert seen(database, "SELECT 1 FROM pg_tables WHERE tablename = 'flights'") == []


async def test_base_data_goes_straight_into_the_typed_tables(rig: PostgresRig, database: str) -> None:
    """Rows that a base took before its end lie where they stay, and a snapshot that knows another schema changes the table."""
    where = "SELECT pg_relation_filenode('flights')"
    first = schema([{"name": "a", "type": "string"}, {"name": "b", "type": "int32"}])

    def rows(made: TableSchema, *contents: dict[str, Any]) -> list[tuple[int, StoredRow]]:
        records = [row(made, content) for content in contents]
        return [(1, StoredRow(record.key, record.value, 1000)) for record in records]

    many = [{"k": n, "a": f"row {n}", "b": n} for n in range(60)]
    await rig.engine.load_base(rows(first, *many), [], b"1", True, {1: encode_schema(first)})
    assert seen(database, "SELECT k, a, b FROM flights ORDER BY k LIMIT 2") == [(0, "row 0", 0), (1, "row 1", 1)]
    file = seen(database, where)
    second = alter(first, {"drop": ["a"], "add": [{"name": "c", "type": "decimal", "default": "1.5"}]})
    await rig.engine.load_base(rows(second, {"k": 60, "b": 60, "c": "2"}), [], b"2", False, {1: encode_schema(second)})
    await rig.engine.flush()
    await rig.crash()
    await rig.engine.load_base(rows(second, {"k": 61, "b": 61}), [], b"3", False, None)
    await rig.engine.finish_base(100, 1, 2000, [])
    assert seen(database, where) == file
    assert seen(database, "SELECT k, b, c FROM flights WHERE k >= 59 ORDER BY k") == [
        (59, 59, Decimal("1.5")), (60, 60, Decimal("2")), (61, 61, Decimal("1.5"))
    ]


async def test_names_that_the_database_does_not_take(rig: PostgresRig, database: str) -> None:
    columns = [{"name": name, "type": "int32"} for name in ("xmin", "A", "a", "select", "twinlog_key", "x" * 100, "x" * 101)]
    made = schema(columns, name="t" * 128)
    content = {"k": 1, **{column["name"]: n for n, column in enumerate(columns)}}
    own = schema([], name="twinlog_state", table_id=2)
    await rig.engine.apply([Log().frame(ddl(made), row(made, content), ddl(own), row(own, {"k": 7}))])
    names = column_names(made.columns, fold=False)
    assert seen(database, f"SELECT xmin_2, \"A\", a, \"select\", {names[6]}, {names[7]}, {names[8]} FROM {'t' * 30}_1") == [
        tuple(range(7))
    ]
    assert seen(database, "SELECT k FROM t_twinlog_state_2") == [(7,)]


def test_names_where_upper_and_lower_case_are_one() -> None:
    columns = [Column(n, name, "int32", True) for n, name in enumerate(["A", "a", "a_1", "TWINLOG_KEY"], 1)]
    names = column_names(columns, fold=True)
    assert len({name.lower() for name in names.values()}) == 4
    assert names[1] == "A"
    assert column_names(columns, fold=False)[2] == "a"


async def test_somebody_elses_table_is_left_alone(rig: PostgresRig, database: str) -> None:
    with postgres().connect(database) as connection:
        connection.execute("CREATE TABLE flights (mine text)")
    made = schema()
    await rig.engine.apply([Log().frame(ddl(made), row(made, PLAIN))])
    assert seen(database, "SELECT k FROM flights_1") == [(1,)]
    assert seen(database, "SELECT mine FROM flights") == []


async def test_a_table_with_more_columns_than_a_page_takes(rig: PostgresRig, database: str) -> None:
    made = schema([{"name": f"c{n}", "type": "decimal"} for n in range(999)])
    content = {"k": 1, **{f"c{n}": "9" * 38 for n in range(999)}}
    log, record = Log(), row(made, content)
    await rig.engine.apply([log.frame(ddl(made), record)])
    found = await rig.engine.scan(1, None, None, reverse=False, limit=2)
    assert [one.value for one in found] == [record.value]
    less = alter(made, {"drop": [f"c{n}" for n in range(10)]})
    await rig.engine.apply([log.frame(ddl(less))])
    last = shown_columns(less, "postgresql")[-1].name
    assert len(shown_columns(less, "postgresql")) == SHOWN_COLUMNS_MAX
    assert seen(database, f"SELECT {last}::text FROM flights") == [("9" * 38,)]


async def test_columns_that_come_and_go_for_ever(rig: PostgresRig) -> None:
    """PostgreSQL gives a table 1600 columns for its life, those that were dropped included."""
    log, made = Log(), schema([{"name": "v", "type": "int32"}])
    await rig.engine.apply([log.frame(ddl(made), row(made, {"k": 1, "v": 1}))])
    for turn in range(9):
        fresh = [f"c{turn}_{n}" for n in range(200)]
        made = alter(made, {"add": [{"name": name, "type": "int32"} for name in fresh]})
        await rig.engine.apply([log.frame(ddl(made))])
        made = alter(made, {"drop": fresh})
        await rig.engine.apply([log.frame(ddl(made))])
    assert len(await rig.engine.scan(1, None, None, reverse=False, limit=9)) == 1


async def test_a_snapshot_does_not_hold_up_a_schema_change(rig: PostgresRig) -> None:
    log, made = Log(), schema()
    await rig.engine.apply([log.frame(ddl(made), row(made, PLAIN))])
    snapshot = await rig.engine.snapshot()
    assert len(await snapshot.scan(1, None, None, reverse=False, limit=9)) == 1
    await rig.engine.apply([log.frame(ddl(alter(made, {"drop": ["json"]})))])
    with pytest.raises(EngineFailed, match="snapshot"):
        await snapshot.scan(1, None, None, reverse=False, limit=9)


async def test_nor_does_one_that_was_being_made_when_the_change_began(rig: PostgresRig) -> None:
    log, made = Log(), schema()
    await rig.engine.apply([log.frame(ddl(made), row(made, PLAIN))])
    with rig.engine._writing:  # both wait for it in their threads
        taking = asyncio.ensure_future(rig.engine.snapshot())
        await asyncio.sleep(0)
        changing = asyncio.ensure_future(rig.engine.apply([log.frame(ddl(alter(made, {"drop": ["json"]})))]))
        await asyncio.sleep(0)
    with pytest.raises(EngineFailed, match="schema is being changed: begin the read again"):
        await taking
    await changing
    snapshot = await rig.engine.snapshot()
    assert (await snapshot.state()).schemas() == rig.engine.applied.schemas()
    snapshot.close()


async def test_a_table_that_somebody_else_locks_is_a_failure_that_heals(rig: PostgresRig, database: str) -> None:
    log, made = Log(), schema()
    await rig.engine.apply([log.frame(ddl(made), row(made, PLAIN))])
    change = log.frame(ddl(alter(made, {"drop": ["json"]})))
    with postgres().connect(database) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM flights")
        with pytest.raises(EngineFailed, match="lock timeout"):
            await rig.engine.apply([change])
        assert rig.engine.failure is not None
        assert rig.engine.applied.seq == 2
    await rig.engine.reopen()
    await rig.engine.apply([change])
    assert rig.engine.applied.seq == 3


async def test_sqlite_shows_the_same_table(tmp_path: Path) -> None:
    rig, made = await SqliteRig.make(tmp_path), schema()
    await rig.engine.apply([Log().frame(ddl(made), row(made, PLAIN), *(row(made, content) for content in HOSTILE))])
    with sqlite3.connect(tmp_path / "0" / "rows.db") as connection:
        shown = connection.execute(f"SELECT k, {', '.join(TYPES)} FROM flights").fetchone()
    connection.close()
    assert shown == (
        1, 1, -5, INT64_MAX, pytest.approx(0.1), 0.1, "Zürich % :x '\\", b"\x00\xff", "2013-01-01T05:00:00.000001Z", "12.5",
        '{"a":[1,null]}',
    )
    assert len(await rig.engine.scan(1, None, None, reverse=False, limit=9)) == 4
    await rig.engine.close()


async def test_two_processes_cannot_both_go_on(tmp_path: Path) -> None:
    """SQLite has no lock for a session: the watermark tells."""
    rig = await SqliteRig.make(tmp_path)
    other = await SqlEngine.open(rig.settings)
    log = Log()
    first, second = log.frame(row(schema(), PLAIN)), log.frame(row(schema(), PLAIN))
    await rig.engine.apply([first])
    with pytest.raises(EngineFailed, match="another process writes to it"):
        await other.apply([first])
    await rig.engine.apply([second])
    await other.close()
    await rig.engine.close()


@pytest.mark.parametrize("name", ["flights", "user", "x" * 63, "x" * 100])
async def test_a_dropped_table_leaves_its_name_and_comes_back_with_its_rows(rig: PostgresRig, database: str, name: str) -> None:
    log, first, second = Log(), schema(name=name), schema(name=name, table_id=2)
    await rig.engine.apply([log.frame(ddl(first), row(first, PLAIN))])
    before = await rig.engine.get(1, RowCodec(first).keys.encode([1]))
    gone = dropped(first, 5)
    await rig.engine.prepare_schema(1, encode_schema(gone))
    await rig.engine.apply([log.frame(ddl(gone)), log.frame(ddl(second), row(second, {"k": 7}))])
    await rig.restart()
    back = restored(gone)
    with_new_name = restored(dropped(second, 6))
    await rig.engine.apply([log.frame(ddl(dropped(second, 6))), log.frame(ddl(back))])
    assert await rig.engine.get(1, RowCodec(first).keys.encode([1])) == before
    shown = seen(database, "SELECT name FROM twinlog_tables WHERE id = 1")[0][0]
    assert seen(database, f'SELECT k, int64 FROM "{shown}"') == [(1, INT64_MAX)]
    assert (shown == name) == (len(name) <= 63)
    assert (back.name, back.revision, with_new_name.name) == (name, 3, name)
