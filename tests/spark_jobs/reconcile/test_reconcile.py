"""The job reconcile: what became of each row that a rejoin put aside, on kept snapshots of real storage."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.job import JobRequest, Outcome
from spark_jobs.reconcile import job as reconcile
from spark_jobs.reconcile.tail import read_tail
from spark_jobs.snapshots.snapshot import KeyRange
from storage.engine import StoredRow
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from storage.rows.codec import RowCodec
from switchover.quarantine import _Content
from tests.spark_jobs.log_rig import Silent, write_wal
from tests.spark_jobs.snapshots.snapshot_rig import barrier, frames, request, storage, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = table(1, "flights")
CODEC = RowCodec(SCHEMA)
ROWS = dict(CODEC.encode_json_row({"id": number, "text": f"row {number}"}) for number in range(10))
BEFORE = frames([SCHEMA], {1: ROWS})
END = BEFORE[-1].last_seq
TAIL_EPOCH, NOW_EPOCH, LATER = 1, 2, 1 << 20


def key(number: int) -> bytes:
    return CODEC.encode_key({"id": number})


def upsert(number: int, text: str) -> Record:
    where, value = CODEC.encode_json_row({"id": number, "text": text})
    return Record(RecordKind.UPSERT, 1, where, value)


def frame(records: list[Record], timestamp: int, *, epoch: int = NOW_EPOCH, seq: int = END + 1) -> Frame:
    return make_frame(epoch=epoch, first_seq=seq, previous=seq - 1, timestamp=timestamp, committed=END, records=records)


CHANGED = RowCodec(SCHEMA).encode_changes({"text": "put aside"})
SAME = upsert(6, "same")
TAIL = frame([
    upsert(0, "superseded by a write"), upsert(1, "lost, an older one stands"), upsert(20, "lost, deleted by nobody"),
    Record(RecordKind.DELETE, 1, key(3)), Record(RecordKind.DELETE, 1, key(4)), Record(RecordKind.UPDATE, 1, key(5), CHANGED),
    SAME, upsert(7, "deleted later"), upsert(2, "first"), Record(RecordKind.UPDATE, 1, key(2), CHANGED),
    Record(RecordKind.BARRIER, key=b"x"),
], LATER, epoch=TAIL_EPOCH)
# what the pair did instead, later than the tail's records, but for row 4
SINCE = frame([
    upsert(0, "newer"), Record(RecordKind.DELETE, 1, key(3)), Record(RecordKind.DELETE, 1, key(7)),
], 2 * LATER)
OUTCOMES = {
    0: "superseded", 1: "lost", 2: "lost", 3: "applied", 4: "lost", 5: "lost", 6: "applied", 7: "superseded", 20: "lost",
}


def put_aside(folder: Path, *kept: Frame) -> Path:
    """As rejoin.py writes it: frames, and a manifest beside them."""
    folder.mkdir()

    async def at_once() -> AsyncGenerator[list[Frame], None]:
        yield list(kept)

    content = _Content("a", kept[0])
    (folder / "000000000001-12.frames").write_bytes(_whole(content.bytes_of(at_once)))
    (folder / "000000000001-12.json").write_bytes(_whole(content.manifest_of(at_once, {})))
    return folder


def _whole(parts: AsyncGenerator[bytes, None]) -> bytes:
    """All parts, which wait for nothing: no loop is needed."""
    async def joined() -> bytes:
        return b"".join([part async for part in parts])

    try:
        joined().send(None)
    except StopIteration as end:
        return bytes(end.value)
    raise AssertionError("it waits")


def run(spark: SparkSession, asked: JobRequest, **settings: str) -> tuple[Outcome, dict[Any, dict[str, Any]]]:
    outcome = reconcile.run(spark, replace(asked, options=settings), Silent())
    rows = [row.asDict() for row in outcome.frames["reconciled"].collect()]
    return outcome, {None if row["key_text"] is None else int(row["key_text"]): row for row in rows}


@pytest.mark.long
async def test_every_row_has_its_outcome_and_the_lost_ones_are_findings(spark: SparkSession, tmp_path: Path) -> None:
    tail = put_aside(tmp_path / "quarantine", TAIL)
    wal = write_wal(tmp_path / "wal", [[SINCE]], epoch=NOW_EPOCH)
    log = [*BEFORE, SINCE]
    async with storage("rocksdb", "a", tmp_path, log) as a, storage("sqlite", "b", tmp_path, log) as b:
        stands = StoredRow(SAME.key, SAME.value, LATER + 6)
        for site in (a, b):
            await site.plant((1, SAME.key, stands))
        at = replace(barrier(SINCE.last_seq), epoch=NOW_EPOCH)
        asked = request(replace(await a.source(), wal=str(wal)), await b.source(), at)
        outcome, rows = run(spark, asked, tail=str(tail))
        by_keys, told = run(spark, asked, tail=str(tail / "000000000001-12.json"))
        no_log, without = run(spark, replace(asked, source=replace(asked.source, wal="")), tail=str(tail))
        await b.plant((1, SAME.key, None))
        torn, one_side = run(spark, replace(asked, peer=await b.source("second")), tail=str(tail))
    assert {number: row["kind"] for number, row in rows.items()} == OUTCOMES
    assert sorted(int(row["key_text"]) for row in outcome.findings.collect()) == [1, 2, 4, 5, 20]
    assert not outcome.good
    assert outcome.counters == {
        "RECORDS": 10, "ROWS": 9, "TABLES_CHANGED": 0, "APPLIED": 2, "SUPERSEDED": 2, "LOST": 5,
    }
    assert json.loads(rows[2]["row"]) == {"id": 2, "text": "put aside"}
    assert (rows[2]["records"], rows[2]["operation"], rows[2]["version"], rows[2]["seq"]) == (2, "upsert", LATER + 9, END + 10)
    assert json.loads(rows[5]["row"]) == {"id": 5, "text": "put aside"}
    assert json.loads(rows[1]["source_row"]) == json.loads(rows[1]["peer_row"]) == {"id": 1, "text": "row 1"}
    assert (rows[4]["row"], rows[4]["operation"], rows[20]["source_row"]) == (None, "delete", None)
    assert {number: row["kind"] for number, row in told.items()} == OUTCOMES
    assert all(row["row"] is None for row in told.values())
    assert {number: row["kind"] for number, row in without.items()} == {**OUTCOMES, 7: "lost"}
    assert "no log of site a is known here" in no_log.remarks[0]
    assert "later deletes are known" in by_keys.remarks[0]
    assert (one_side[6]["kind"], one_side[6]["source_kind"], one_side[6]["peer_kind"]) == ("lost", "applied", "lost")
    assert torn.counters["LOST"] == 6


async def test_a_table_that_only_the_tail_made_is_lost_with_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    made = frames([table(2, "new")], {2: {key(1): ROWS[key(1)]}})
    log = [frame(each.records, LATER + n, epoch=TAIL_EPOCH, seq=END + 1 + n) for n, each in enumerate(made)]
    async with storage("rocksdb", "a", tmp_path, BEFORE) as a, storage("rocksdb", "b", tmp_path, BEFORE) as b:
        asked = request(await a.source(), await b.source())
        outcome, rows = run(spark, asked, tail=str(put_aside(tmp_path / "quarantine", *log)))
        nothing, _ = run(spark, replace(asked, tables=("flights",)), tail=str(tmp_path / "quarantine"))
    assert [(row["table"], row["operation"], row["kind"]) for row in rows.values()] == [
        ("new", "table", "lost"), ("new", "upsert", "lost"),
    ]
    assert (outcome.good, outcome.counters["TABLES_CHANGED"]) == (False, 1)
    assert (nothing.good, nothing.counters["ROWS"], nothing.findings.count()) == (True, 0, 0)


async def test_what_stands_in_another_table_of_the_same_number_stands_for_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """Both sites made a table, each without the other; the rows of the one that stays are later ones, under the same keys."""
    made = frames([table(1, "planes")], {1: {key(1): ROWS[key(1)]}})
    log = [frame(each.records, 1 + n, epoch=TAIL_EPOCH, seq=END + 1 + n) for n, each in enumerate(made)]
    since = [frame([upsert(1, "of flights")], LATER)]
    whole = [*BEFORE, *since]
    async with storage("rocksdb", "a", tmp_path, whole) as a, storage("sqlite", "b", tmp_path, whole) as b:
        asked = request(await a.source(), await b.source(), replace(barrier(since[-1].last_seq), epoch=NOW_EPOCH))
        _, rows = run(spark, asked, tail=str(put_aside(tmp_path / "quarantine", *log)))
    assert [(row["table"], row["operation"], row["kind"]) for row in rows.values()] == [
        ("planes", "table", "lost"), ("planes", "upsert", "lost"),
    ]
    assert {row["source_row"] for row in rows.values()} == {None}


async def test_nothing_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """A WAL as a tail: both sites have all of it."""
    tail = write_wal(tmp_path / "aside", [BEFORE])
    async with storage("rocksdb", "a", tmp_path, BEFORE) as a, storage("rocksdb", "b", tmp_path, BEFORE) as b:
        outcome, rows = run(spark, request(await a.source(), await b.source()), tail=str(tail))
    assert (outcome.good, outcome.findings.count(), {row["kind"] for row in rows.values()}) == (True, 0, {"applied"})


def test_what_is_no_tail(tmp_path: Path) -> None:
    folder = put_aside(tmp_path / "quarantine", TAIL)
    file = folder / "000000000001-12.frames"
    file.write_bytes(file.read_bytes()[:-1])
    (tmp_path / "loss.json").write_text('{"records_at_risk": 7}')
    (tmp_path / "empty").mkdir()
    for path, said in (
        (file, r"offset 0: .*name its manifest"), (tmp_path / "loss.json", "no list `keys`"),
        (tmp_path / "x", "there is nothing at"), (tmp_path / "empty", "is empty"),
    ):
        with pytest.raises(Exception, match=said):
            read_tail(path)


def test_many_keys_are_read_as_few_ranges() -> None:
    keys = [(1, b"a"), (1, b"b"), (1, b"c"), (2, b"a")]
    assert ranges(keys, 10) == [(1, b"a", b"a\0"), (1, b"b", b"b\0"), (1, b"c", b"c\0"), (2, b"a", b"a\0")]
    assert ranges(keys, 3) == [(1, b"a", b"b\0"), (1, b"c", b"c\0"), (2, b"a", b"a\0")]


def ranges(keys: list[tuple[int, bytes]], points_max: int) -> list[tuple[int, bytes, bytes | None]]:
    found: list[KeyRange] = reconcile.ranges_of(keys, points_max)
    return [(one.table, one.start, one.end) for one in found]
