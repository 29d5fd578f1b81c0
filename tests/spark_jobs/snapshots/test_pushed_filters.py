"""Filters that Spark pushes into the view `rows`: the same rows as of a plain list, and nothing else is read."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.errors import PySparkException
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)
from pyspark.sql.types import StructType

from spark_jobs.asked import PUSH, column_of
from spark_jobs.reading import read_where
from spark_jobs.snapshots.snapshot import KeyRange, encode_ranges
from spark_jobs.snapshots.source import DIGESTS, ROWS, DigestsView, Part, RowsView
from tests.spark_jobs.snapshots.snapshot_rig import frames, storage, table
from twinlog.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.long

HIGH = 1 << 63  # a table whose id is negative in the column
KEYS = [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"aa", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
OF_TABLES = {number: {key: b"%d" % number + key * 2 for key in KEYS} for number in (1, 7, HIGH)}
LOG = frames([table(number) for number in OF_TABLES], OF_TABLES)
RANGES = [
    KeyRange(1, 0, b"", b"a", 5), KeyRange(1, 1, b"a", b"b", 5), KeyRange(1, 2, b"b", None, 5), KeyRange(HIGH, 0, b"", None, 9),
]

keys = st.sampled_from(KEYS) | st.binary(max_size=3)
ORDERED = (GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "key": keys, "row": st.sampled_from([b"1aa", b"7bb", b"1", b""]), "version": st.integers(-1, 60),
    "table": st.sampled_from([1, 7, 8, -HIGH]), "range": st.integers(-1, 3),
}
Model = Callable[[Any], bool | None]


def model(each: Filter) -> Model:
    """Returns the filter on one value that is not null; None: unknown."""
    match each:
        case Not(child=child):
            return lambda value: None if (found := model(child)(value)) is None else not found
        case EqualTo(value=wanted):
            return lambda value: None if wanted is None else value == wanted
        case EqualNullSafe(value=wanted):
            return lambda value: value == wanted
        case In(value=listed):
            return lambda value: value in listed or (None if None in listed else False)
        case GreaterThan(value=wanted):
            return lambda value: value > wanted
        case GreaterThanOrEqual(value=wanted):
            return lambda value: value >= wanted
        case LessThan(value=wanted):
            return lambda value: value < wanted
        case LessThanOrEqual(value=wanted):
            return lambda value: value <= wanted
    return lambda value: isinstance(each, IsNotNull)


@st.composite
def filters(draw: st.DrawFn) -> list[Filter]:
    found: list[Filter] = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(["key", "key", *VALUES]))
        column, values = (name,), VALUES[name]
        each = draw(st.one_of(
            st.builds(EqualTo, st.just(column), values | st.none()),
            st.builds(EqualNullSafe, st.just(column), values | st.none()),
            st.builds(In, st.just(column), st.lists(values | st.none(), min_size=1, max_size=4)),
            *(st.builds(kind, st.just(column), values) for kind in ORDERED),
            st.builds(IsNull, st.just(column)), st.builds(IsNotNull, st.just(column)),
        ))
        found.append(Not(each) if draw(st.booleans()) and draw(st.booleans()) else each)
    return found


@pytest.fixture(scope="module", params=["rocksdb", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a copy of a kept snapshot of the tables."""
    folder = tmp_path_factory.mktemp("pushed")

    async def copied() -> str:
        async with storage(request.param, "a", folder, LOG) as site:
            kind, _, kept = (await site.keep()).place.partition(":")
            return f"{kind}:{copy_of(kept, folder / 'kept')}"

    return asyncio.run(copied())


def copy_of(kept: str, copy: Path) -> Path:
    return Path((shutil.copytree if Path(kept).is_dir() else shutil.copy)(kept, copy))


def schema_of(*names: str) -> StructType:
    return StructType([ROWS[name] for name in names])


Rows = list[tuple[Any, ...]]


def read(options: dict[str, str], pushed: list[Filter], schema: StructType = ROWS) -> tuple[Rows, list[Filter]]:
    """Returns what the reader answers, and the filters that it leaves to Spark."""
    reader = RowsView().reader(schema, {**options, PUSH: "yes"})
    left = list(reader.pushFilters(pushed))
    rows: Rows = []
    for part in reader.partitions():
        for batch in reader.read(part):
            assert batch.num_rows == 0 or batch.schema.names == schema.names
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows, left


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pushed=filters(), ranged=st.booleans())
@example(pushed=[EqualTo(("key",), b"a")], ranged=False)
@example(pushed=[LessThan(("key",), b"a\0"), GreaterThan(("key",), b"a")], ranged=True)
@example(pushed=[LessThan(("key",), b"")], ranged=False)
@example(pushed=[EqualTo(("table",), -HIGH), EqualTo(("key",), b"")], ranged=True)
@example(pushed=[Not(In(("key",), [b"a", None]))], ranged=False)
def test_the_rows_are_those_of_a_plain_list(place: str, pushed: list[Filter], ranged: bool) -> None:
    options = {"place": place, **({"ranges": encode_ranges(RANGES)} if ranged else {})}
    every, _ = read(options, [])
    assert len(every) == (2 if ranged else 3) * len(KEYS)
    place_of = {name: number for number, name in enumerate(ROWS.names)}
    wanted = [row for row in every if all(model(each)(row[place_of[column_of(each) or ""]]) for each in pushed)]
    found, left = read(options, pushed)
    assert sorted(found) == sorted(wanted)
    assert left == []


def parts(place: str, pushed: list[Filter], **options: str) -> list[KeyRange]:
    """Returns what the tasks would read."""
    reader = RowsView().reader(ROWS, {"place": place, PUSH: "yes", **options})
    reader.pushFilters(pushed)
    found: list[KeyRange] = []
    for part in reader.partitions():
        assert isinstance(part, Part)
        found += part.ranges
    return found


def test_only_wanted_keys_are_read(place: str) -> None:
    key, one = ("key",), EqualTo(("table",), 1)
    assert parts(place, [one, EqualTo(key, b"a")]) == [KeyRange(1, 0, b"a", b"a\0", 1)]
    both = [KeyRange(1, 0, b"a", b"a\0", 1), KeyRange(1, 0, b"b", b"b\0", 1)]
    assert parts(place, [one, In(key, [b"b", b"a", None])]) == both
    assert parts(place, [one, In(key, [b"b", b"a"]), LessThan(key, b"aa")]) == [KeyRange(1, 0, b"a", b"a\0", 1)]
    assert parts(place, [one, GreaterThanOrEqual(key, b"a"), LessThan(key, b"b")]) == [KeyRange(1, 0, b"a", b"b\0", 1)]
    assert parts(place, [EqualTo(key, b"a"), EqualTo(key, b"b")]) == []
    assert parts(place, [EqualNullSafe(key, b"a")], tables="table7") == [KeyRange(7, 0, b"a", b"a\0", 1)]
    assert {each.table for each in parts(place, [In(("table",), [7, -HIGH])])} == {7, HIGH}
    given = encode_ranges(RANGES)
    assert parts(place, [one, GreaterThan(key, b"aa")], ranges=given) == [
        KeyRange(1, 1, b"aa", b"b", 5), KeyRange(1, 2, b"b", None, 5)
    ]
    assert parts(place, [EqualTo(key, b"a"), one], ranges=given) == [KeyRange(1, 1, b"a", b"a\0", 1)]


def test_a_filter_that_is_no_comparison_is_left_to_spark(place: str) -> None:
    assert read({"place": place}, [prefix := StringStartsWith(("key",), "a"), EqualTo(("version",), 1)])[1] == [prefix]
    assert read({"place": place}, [part := EqualTo(("key", "part"), b"a")])[1] == [part]


def test_a_digest_is_over_all_rows_of_its_range(place: str) -> None:
    reader = DigestsView().reader(DIGESTS, {"place": place, PUSH: "yes"})
    pushed = [EqualTo(("table",), 7), GreaterThan(("start",), b"zz")]
    assert list(reader.pushFilters(pushed)) == pushed
    found = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["table"], row["start"], row["rows"]) for row in found] == [(7, b"", len(KEYS))]


def test_a_schema_gives_its_columns(place: str) -> None:
    every, _ = read({"place": place}, [])
    fewer, _ = read({"place": place}, [EqualTo(("version",), every[3][3])], schema_of("version", "table"))
    assert fewer == [(every[3][3], every[3][0])]
    with pytest.raises(InvalidInput, match=r"no column colour binary; it has table bigint, range int, key binary"):
        RowsView().reader(StructType().add("colour", "binary"), {"place": place})
    with pytest.raises(InvalidInput, match="names no column; the view has table bigint"):
        RowsView().reader(StructType(), {"place": place})


CONDITIONS = (
    "key = X'61'", "key in (X'61', X'62', X'FFFF')", "key in (X'61', null)", "key not in (X'61', X'')", "key <=> X'61'",
    "key >= X'61' and key < X'62'", "key > X'7F'", "key <= X'00FF'", "key <> X'61'", "key between X'00' and X'6161'",
    "startswith(key, X'61')", "key is not null", "key is null", "table = 1 and key = X''", "table < 0", "key = 'a'",
    "version > 20 and row <> X'31'", "key = X'61' or key = X'62'", "length(row) > 3 and key > X'61'", "not (key > X'61')",
    "range = 0 and key = X'80'",
)


def test_spark_answers_as_over_rows_of_its_own(spark: SparkSession, place: str) -> None:
    every, _ = read({"place": place}, [])
    own = spark.createDataFrame([tuple(row) for row in every], ROWS)
    for condition in CONDITIONS:
        found = read_where(spark, condition, {"view": "rows", "place": place})
        assert rows_of(found) == rows_of(own.where(condition)), condition


def test_one_read_serves_queries_of_different_filters(spark: SparkSession, place: str) -> None:
    options = {"view": "rows", "place": place}
    every = len(OF_TABLES) * len(KEYS)
    whole = spark.read.format("twinlog").options(**options).load()
    assert [whole.where("key = X'61'").count(), whole.count(), whole.where("length(row) > 0").count()] == [3, every, every]
    assert both(whole) == [b"a", b"b"]
    some = read_where(spark, "table = 1 and key >= X'61'", options)
    found = [some.where("key = X'61'").count(), some.count(), some.where("length(row) > 0").count()]
    assert found == [1, *[len([key for key in KEYS if key >= b"a"])] * 2]
    assert both(some) == [b"a", b"b"]


def both(view: DataFrame) -> list[bytes]:
    """Returns the keys of two different filters on one view, in one query."""
    one, other = (view.where(f"table = 1 and key = X'{key}'") for key in ("61", "62"))
    return sorted(bytes(row["key"]) for row in one.union(other).collect())


def rows_of(frame: DataFrame) -> Rows:
    return sorted(tuple(bytes(value) if isinstance(value, bytearray) else value for value in row) for row in frame.collect())


def test_the_physical_plan_shows_what_is_pushed(spark: SparkSession, place: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"view": "rows", "place": place}
    condition = "table = 1 and key >= X'61' and version < 30"
    found = read_where(spark, condition, options, "table bigint, key binary, version bigint")
    found.explain("formatted")
    plan = capsys.readouterr().out
    shown = plan.partition("PushedFilters: ")[2].partition("ReadSchema")[0]
    assert all(each in shown for each in ("EqualTo(table,1)", "GreaterThanOrEqual(key,", "LessThan(version,30)")), plan
    assert "ReadSchema: struct<table:bigint,key:binary,version:bigint>" in plan
    assert plan.count("Condition :") == 1, "Spark applies none of them again"
    assert "Condition : (SPARK_PARTITION_ID() >= 0)" in plan
    assert found.count() == len([key for key in KEYS if key >= b"a"])
    with pytest.raises(PySparkException, match="no column colour"):
        read_where(spark, "true", options, "colour int").count()
