"""The job compare on kept snapshots of real storage: what was planted is found, exactly, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.compare import job as compare
from spark_jobs.job import JobRequest, Outcome
from spark_jobs.snapshots.source import Settings
from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from tests.spark_jobs.snapshots.snapshot_rig import barrier, frames, request, storage, table
from twinlog.errors import NotFound, Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = table(1, "flights")
CODEC = RowCodec(SCHEMA)
ROWS = dict(CODEC.encode_json_row({"id": number, "text": f"row {number}"}) for number in range(-300, 300))
LOG = frames([SCHEMA, table(2, "empty")], {1: ROWS})
AT = barrier(LOG[-1].last_seq)


class Steps:
    """The progress that a job reports."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def step(self, what: str) -> None:
        self.said.append(what)

    def rows(self, done: int, total: int | None = None) -> None:
        self.said.append(f"{done} of {total}")


def run(spark: SparkSession, asked: JobRequest) -> tuple[Outcome, list[dict[str, Any]]]:
    outcome = compare.run(spark, asked, Steps())
    return outcome, [row.asDict() for row in outcome.findings.collect()]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rocksdb", "sqlite", "postgresql"])
async def test_what_was_planted_is_found_and_nothing_else(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """The source is RocksDB, the peer each of the engines."""
    missing, stale, extra, damaged = (CODEC.encode_key({"id": number}) for number in (-300, -1, 300, 299))
    flipped = bytearray(ROWS[damaged])
    flipped[-1] ^= 1
    async with storage("rocksdb", "a", tmp_path, LOG) as a, storage(kind, "b", tmp_path, LOG) as b:
        clean, nothing = run(spark, request(await a.source(), await b.source(), AT))
        assert clean.good
        assert nothing == []
        assert (clean.counters["GOODROWS"], clean.counters["BADROWS"], clean.counters["RANGES_DIFFERENT"]) == (600, 0, 0)
        assert clean.tables == ("flights", "empty")
        version = {key: (await a.engine.get(1, key) or StoredRow(key, b"", 0)).version for key in (missing, stale, damaged)}
        old = CODEC.encode_json_row({"id": -1, "text": "old"})[1]
        await b.plant(
            (1, missing, None), (1, stale, StoredRow(stale, old, version[stale] - 1)),
            (1, extra, StoredRow(extra, CODEC.encode_json_row({"id": 300, "text": "new"})[1], 5)),
            (1, damaged, StoredRow(damaged, bytes(flipped), version[damaged])),
        )
        outcome, found = run(spark, request(await a.source(), await b.source("second"), AT))
    assert [(row["key"], row["key_text"], row["kind"], row["source_version"], row["peer_version"]) for row in found] == [
        (missing, "-300", "missing", version[missing], None), (stale, "-1", "stale", version[stale], version[stale] - 1),
        (damaged, "299", "damaged", version[damaged], version[damaged]), (extra, "300", "extra", None, 5),
    ]
    assert [[row[side] and json.loads(row[side])["text"] for side in ("source_row", "peer_row")] for row in found] == [
        ["row -300", None], ["row -1", "old"], ["row 299", "row 298"], [None, "new"]
    ]
    assert not outcome.good
    assert outcome.counters == {
        "GOODROWS": 597, "BADROWS": 4, "ONLY_IN_SOURCE": 1, "ONLY_IN_PEER": 1, "CONTENT_DIFFERENT": 2, "STALE": 1, "DAMAGED": 1,
        "RANGES": 2, "RANGES_DIFFERENT": 1,
    }
    assert [(one.name, one.compared, one.equal, one.kinds["stale"]) for one in outcome.tallies] == [
        ("flights", 601, 597, 1), ("empty", 0, 0, 0)
    ]
    (flights, empty) = sorted((row.asDict() for row in outcome.frames["ranges"].collect()), key=lambda row: -row["source_rows"])
    assert (flights["table"], flights["source_rows"], flights["peer_rows"], flights["stale"]) == ("flights", 600, 600, 1)
    assert (empty["equal"], empty["start"], empty["end"]) == (True, b"", None)


@pytest.mark.long
async def test_hundreds_of_tables_and_tables_of_one_site(spark: SparkSession, tmp_path: Path) -> None:
    schemas = [table(number) for number in range(1, 201)] + [table(1 << 63, "large"), table(301, "local", replication="local")]
    rows = {schema.id: dict([CODEC.encode_json_row({"id": schema.id & 7, "text": "x"})]) for schema in schemas[::2]}
    async with storage("rocksdb", "a", tmp_path, []) as a, storage("rocksdb", "b", tmp_path, []) as b:
        await a.fill(schemas, rows)
        await b.fill([schema for schema in schemas if schema.id not in (7, 8)], rows | {7: {}, 8: {}})
        await b.plant((301, b"only here", StoredRow(b"only here", b"", 1)))
        here, there = await a.source(), await b.source()
        outcome, found = run(spark, request(here, there, barrier(100)))
        turned, back = run(spark, request(there, here, barrier(100)))
    assert [(row["table"], row["kind"], row["key_text"]) for row in found] == [
        ("table7", "missing table", None), ("table8", "missing table", None), ("table7", "missing", "7"),
    ]
    assert [row["kind"] for row in back] == ["extra table", "extra table", "extra"]
    assert (outcome.good, turned.good, len(outcome.tables)) == (False, False, 201)
    assert (outcome.counters["GOODROWS"], turned.counters["GOODROWS"]) == (100, 100)
    assert outcome.remarks == ("table local is not replicated (local), and was not compared",)


async def test_an_empty_table_of_one_site(spark: SparkSession, tmp_path: Path) -> None:
    """An empty table that one site lacks is a finding without a row."""
    async with storage("rocksdb", "a", tmp_path, []) as a, storage("rocksdb", "b", tmp_path, []) as b:
        await a.fill([SCHEMA, table(2)], {1: ROWS})
        await b.fill([SCHEMA], {1: ROWS})
        here, there = await a.source(), await b.source()
        outcome, found = run(spark, request(here, there))
        only, nothing = run(spark, request(here, there, tables=("flights",)))
    assert [(row["table"], row["kind"]) for row in found] == [("table2", "missing table")]
    assert (outcome.good, outcome.counters["BADROWS"]) == (False, 0)
    assert (only.good, only.tables, nothing) == (True, ("flights",), [])


async def test_nothing_at_all_is_the_same(spark: SparkSession, tmp_path: Path) -> None:
    async with storage("rocksdb", "a", tmp_path, []) as a, storage("sqlite", "b", tmp_path, []) as b:
        outcome, found = run(spark, request(await a.source(), await b.source()))
    assert (outcome.good, outcome.counters["GOODROWS"], outcome.counters["RANGES"], found) == (True, 0, 0, [])


async def test_keys_of_zero_bytes_and_huge_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Bytes that no codec made, and ranges that are cut by bytes, not by rows."""
    keys = [b"\0" * length + end for length in range(12) for end in (b"", b"\1", b"\xff")]
    huge = {key: bytes([at]) * (1 << 20) for at, key in enumerate(keys)}
    async with storage("rocksdb", "a", tmp_path, []) as a, storage("sqlite", "b", tmp_path, []) as b:
        for site in (a, b):
            await site.fill([SCHEMA], {1: huge})
        await b.plant((1, b"\0\0", None), (1, b"\0\0\0\0\xfe", StoredRow(b"\0\0\0\0\xfe", b"", 1)))
        outcome, found = run(spark, request(await a.source(), await b.source()))
    assert [(bytes(row["key"]), row["kind"]) for row in found] == [(b"\0\0", "missing"), (b"\0\0\0\0\xfe", "extra")]
    assert (outcome.counters["GOODROWS"], outcome.counters["RANGES"]) == (35, 5)
    assert json.loads(found[0]["source_row"]) == {"damaged_bytes": huge[b"\0\0"].hex()}


async def test_snapshots_of_two_moments_and_of_two_schemas_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    async with storage("rocksdb", "a", tmp_path, LOG) as a, storage("rocksdb", "b", tmp_path, LOG[:-1]) as b:
        with pytest.raises(Refused, match="not of one moment"):
            run(spark, request(await a.source(), await b.source()))
        with pytest.raises(NotFound, match="no table 'x'"):
            run(spark, request(await a.source(), await a.source(), tables=("x",)))
        await b.fill([table(1, "flights", history_s=7), table(2, "empty")], {}, LOG[-1].last_seq)
        with pytest.raises(Refused, match="table 'flights': history_s is 0 on a, 7 on b"):
            run(spark, request(await a.source(), await b.source("second")))


async def test_the_views_alone(spark: SparkSession, tmp_path: Path) -> None:
    async with storage("rocksdb", "a", tmp_path, LOG) as a:
        reader = spark.read.format("twinlog").option("place", (await a.keep()).place)
        rows = reader.option("view", "rows").load()
        assert rows.count() == len(ROWS)
        assert {bytes(row["key"]): bytes(row["row"]) for row in rows.collect()} == ROWS
        digests = reader.option("view", "digests").option("cut", "true").option("tables", "flights,empty").load().collect()
        assert sorted((row["table"], row["rows"]) for row in digests) == [(1, 600), (2, 0)]


def test_a_password_is_in_no_plan(spark: SparkSession) -> None:
    url = "postgresql+psycopg://twinlog:secret@127.0.0.1:1/rows"
    options = {"view": "rows", "place": "postgresql:0-1", "url": url, "ranges": "[]"}
    frame = spark.read.format("twinlog").options(**options).load()
    assert frame.count() == 0
    assert "secret" not in frame._jdf.queryExecution().toString()
    assert "secret" not in repr(Settings.of(options))
