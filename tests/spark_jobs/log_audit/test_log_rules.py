"""Lawful logs have no finding, and one fault is one finding: the cases that look alike, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from spark_jobs.log_audit.job import WAL, Audited, Here, audited, findings_of
from spark_jobs.logs.columns import RUNS_SCHEMA, mark_batch
from spark_jobs.logs.files import LogFolder, list_log
from spark_jobs.logs.walk import GONE, Mark, Walk
from storage.log.frame import Flags, Frame
from storage.log.segment import wal_name
from tests.spark_jobs.log_rig import epoch_start, flip, of_another_release, offset_of
from tests.spark_jobs.logs.noisy_logs import view
from tests.storage.log.frames import a_frame, run, segment_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

Files = Mapping[tuple[int, int], list[Frame]]  # (epoch, index) of the segment -> what stands in it
Told = tuple[str, str | None, int, int, int]  # kind, segment, offset, seq, last_seq
BUCKET = 1 << 20  # sequences that are put in order together


def put(folder: Path, files: Files) -> LogFolder:
    folder.mkdir()
    for (epoch, index), frames in files.items():
        (folder / wal_name(epoch, index)).write_bytes(segment_bytes(frames, epoch=epoch, index=index))
    return LogFolder(str(folder))


def read(spark: SparkSession, place: LogFolder, gone: int | None = None) -> Audited:
    """`gone`: the segment that was trimmed between the listing and the reading."""
    rows = view(place, folded=True)
    if gone is not None:
        segment = list_log(place).segments[gone]
        mark = mark_batch(Walk(marks=[Mark(GONE, 0, 0, segment.epoch)]), segment, "", RUNS_SCHEMA)
        kept = rows.filter(pa.compute.not_equal(rows["ordinal"], segment.ordinal))
        rows = pa.concat_tables([kept, pa.Table.from_batches([mark])])
    return audited(spark, "a", WAL, place, spark.createDataFrame(rows, RUNS_SCHEMA))


def told(spark: SparkSession, place: LogFolder, trimmed_to: int = 0, gone: int | None = None) -> list[Told]:
    log = read(spark, place, gone)
    found = Here.take(spark, log.located(findings_of(log, trimmed_to))).rows.to_pylist()
    return sorted((row["kind"], row["segment"], row["offset"], row["seq"], row["last_seq"]) for row in found)


def test_what_was_committed_is_missed_also_when_it_stands_behind_a_gap(spark: SparkSession, tmp_path: Path) -> None:
    """The frames from 15 on are cut off, so the gap before them is none; but they say that 19 was committed."""
    place = put(tmp_path / "wal", {(1, 1): [*run(1, 10), *run(15, 6)], (2, 1): [epoch_start(2, 21, 10)]})
    assert told(spark, place) == [("cut-committed", wal_name(2, 1), 64, 11, 19)]


def test_frames_that_are_cut_off_need_no_link(spark: SparkSession, tmp_path: Path) -> None:
    behind = [a_frame(seq, committed=10) for seq in range(15, 21)]
    place = put(tmp_path / "wal", {(1, 1): [*run(1, 10), *behind], (2, 1): [epoch_start(2, 21, 10)]})
    assert told(spark, place) == []


def test_asynchronous_frames_say_nothing_of_both_logs(spark: SparkSession, tmp_path: Path) -> None:
    frames = [a_frame(seq, committed=seq - 1, flags=int(Flags.ASYNC)) for seq in range(1, 11)]
    place = put(tmp_path / "wal", {(1, 1): frames, (2, 1): [epoch_start(2, 11, 5), a_frame(12, epoch=2)]})
    assert told(spark, place) == []


def test_what_the_other_site_holds_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    frames = run(1, 40)
    place = put(tmp_path / "wal", {(1, 1): frames[:10], (1, 2): frames[20:]})
    assert told(spark, place, trimmed_to=20) == []
    assert told(spark, place, trimmed_to=19) == [("gap", wal_name(1, 1), offset_of(frames, 10), 11, 20)]


def test_what_was_trimmed_while_the_log_was_read_is_not_missing(spark: SparkSession, tmp_path: Path) -> None:
    frames = run(1, 50)
    place = put(tmp_path / "wal", {(1, index): frames[10 * index - 10 : 10 * index] for index in range(1, 6)})
    assert told(spark, place, gone=1) == []
    (tmp_path / "wal" / wal_name(1, 4)).unlink()
    assert told(spark, place, gone=1) == [("gap", wal_name(1, 3), offset_of(frames[20:], 10), 31, 40)]


def test_another_site_may_have_written_before_a_life_of_this_one(spark: SparkSession, tmp_path: Path) -> None:
    """Epochs 2 and 4 were the other site's, and of the last one it has copied what its remote log still held."""
    own, copied = run(1, 10), run(25, 5, epoch=4)
    files = {(1, 1): own, (3, 1): [epoch_start(3, 16, 15), a_frame(17, epoch=3)], (5, 1): [*copied, epoch_start(5, 30, 29)]}
    place = put(tmp_path / "wal", files)
    assert told(spark, place) == []
    files[5, 1] = [*copied[:2], *copied[3:], epoch_start(5, 30, 29)]
    place = put(tmp_path / "with a gap", files)
    assert told(spark, place) == [("gap", wal_name(5, 1), offset_of(copied, 2), 27, 27)]


def test_a_life_may_begin_with_a_segment_that_holds_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """As after its first frame failed; epoch 2, up to 24, was the other site's."""
    place = put(tmp_path / "wal", {(1, 1): run(1, 10), (3, 2): [epoch_start(3, 26, 24), a_frame(27, epoch=3)]})
    (tmp_path / "wal" / wal_name(3, 1)).write_bytes(segment_bytes([], epoch=3, first_seq=25))
    assert told(spark, place) == []


def test_a_life_may_begin_with_a_segment_that_was_made_ahead(spark: SparkSession, tmp_path: Path) -> None:
    """As when those before it were trimmed: what its header promises at the earliest was in them."""
    place = put(tmp_path / "wal", {(1, 1): run(1, 10), (3, 2): run(30, 5, epoch=3)})
    (tmp_path / "wal" / wal_name(3, 2)).write_bytes(segment_bytes(run(30, 5, epoch=3), epoch=3, index=2, first_seq=26))
    assert told(spark, place) == []


def test_a_chain_that_begins_within_a_run_and_is_cut_stands_up_to_there(spark: SparkSession, tmp_path: Path) -> None:
    """A frame with the first of three sequences of another one, so that what links to the third begins a chain."""
    files = {(1, 1): run(1, 10, count=3), (1, 2): run(31, 10), (1, 3): [a_frame(19)], (2, 1): [epoch_start(2, 41, 30)]}
    linked = read(spark, put(tmp_path / "wal", files)).linked.rows.to_pylist()
    assert [(row["epoch"], row["seq"], row["upto"]) for row in linked] == [(1, 1, 21), (1, 22, 30), (2, 41, 41)]


def test_a_gap_within_what_one_writer_wrote_is_one_also_between_segments(spark: SparkSession, tmp_path: Path) -> None:
    frames = run(1, 30)
    place = put(tmp_path / "wal", {(1, 1): frames[:10], (1, 2): frames[12:]})
    assert told(spark, place) == [("gap", wal_name(1, 1), offset_of(frames, 10), 11, 12)]


def test_a_segment_that_cannot_be_read_accounts_for_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    frames = run(1, 30)
    place = put(tmp_path / "wal", {(1, index): frames[10 * index - 10 : 10 * index] for index in (1, 2, 3)})
    of_another_release(tmp_path / "wal" / wal_name(1, 2))
    ((kind, segment, *_),) = told(spark, place)
    assert (kind, segment) == ("unreadable", wal_name(1, 2))


def test_a_torn_tail_does_not_account_for_a_link_into_an_earlier_frame(spark: SparkSession, tmp_path: Path) -> None:
    before = run(1, 5, count=2)  # the last one holds 9 and 10; it is cut, and what was torn came after it
    place = put(tmp_path / "wal", {(1, 1): [*before, a_frame(11)], (1, 2): [a_frame(12, previous=9)]})
    flip(tmp_path / "wal" / wal_name(1, 1), offset_of(before, 5) + 80)
    assert told(spark, place) == [("broken-link", wal_name(1, 1), offset_of(before, 4), 9, 9)]


def test_a_start_that_is_damaged_is_damage_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    files = {(1, 1): run(1, 10), (2, 1): [epoch_start(2, 11, 10), *run(12, 3, epoch=2)]}
    place = put(tmp_path / "wal", files)
    flip(tmp_path / "wal" / wal_name(2, 1), 64 + 80)
    ((kind, segment, offset, *_),) = told(spark, place)
    assert (kind, segment, offset) == ("damaged", wal_name(2, 1), 64)


def test_a_start_that_is_not_the_first_frame_is_none(spark: SparkSession, tmp_path: Path) -> None:
    place = put(tmp_path / "wal", {(1, 1): run(1, 10), (2, 1): [a_frame(11, epoch=2)], (2, 2): [epoch_start(2, 12, 11)]})
    assert told(spark, place) == [("epoch-without-start", wal_name(2, 1), 64, 11, 11)]


def test_copied_frames_of_another_site_need_no_start(spark: SparkSession, tmp_path: Path) -> None:
    copied = run(11, 5, epoch=2)  # what was left in its remote log; its own WAL began with its start
    place = put(tmp_path / "wal", {(1, 1): run(1, 10), (3, 1): [*copied, epoch_start(3, 16, 15)]})
    assert told(spark, place) == []


@pytest.mark.parametrize("count", [1, 3])
def test_an_epoch_that_is_put_in_order_in_parts_is_one(spark: SparkSession, tmp_path: Path, count: int) -> None:
    frames = run(BUCKET - 20, 20, count=count)
    place = put(tmp_path / "wal", {(1, 1): frames})
    assert told(spark, place) == []
    place = put(tmp_path / "with a gap", {(1, 1): [*frames[:18], *frames[19:]]})
    assert [each[0] for each in told(spark, place)] == ["gap"]


def test_a_frame_that_stands_twice_is_counted_once(spark: SparkSession, tmp_path: Path) -> None:
    frames = run(1, 20)
    log = read(spark, put(tmp_path / "wal", {(1, 1): frames[:12], (1, 2): frames[9:]}))
    assert sum(log.limits.rows["frames"].to_pylist()) == 20
