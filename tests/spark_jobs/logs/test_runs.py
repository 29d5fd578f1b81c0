"""Runs of frames say what the frames themselves say: of logs with many faults, the same is found with and without folding."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs.log_audit.job import REMOTE, WAL, Audited, Here, audited, findings_of, lacking
from spark_jobs.logs import runs
from spark_jobs.logs.columns import COUNTER_BITS, RUNS_SCHEMA
from spark_jobs.logs.files import LogFolder, Segment, list_log
from spark_jobs.logs.walk import Walk
from storage.log.frame import Flags, make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import wal_name
from tests.spark_jobs.log_rig import offset_of, put_in, walk_file, write_wal
from tests.spark_jobs.logs.noisy_logs import FIRST_SEQ, history, in_segments, spoil, view, walks, write
from tests.storage.log.frames import a_frame, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

SEEDS = 2
BLOCK_BITS = 5  # so that small logs have many blocks


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "BLOCK_BITS", BLOCK_BITS)


def noisy(folder: Path, seed: int) -> tuple[LogFolder, LogFolder]:
    """A WAL and its remote log."""
    noise = random.Random(seed)
    written = history(noise, epochs=4, frames=110)
    places = []
    for remote in (False, True):
        segments = in_segments(noise, written, copies=remote)
        spoil(noise, segments, faults=6)
        places.append(write(noise, folder / ("dfs" if remote else "wal"), segments, damaged=3, remote=remote))
    return places[0], places[1]


def steps(found: Walk, begins: list[int]) -> list[tuple[int, int]]:
    return list(zip(begins, [*begins[1:], len(found.frames)], strict=False))


@pytest.mark.parametrize("seed", range(10))
def test_the_frames_of_a_run_go_on_from_one_to_the_next(tmp_path: Path, seed: int) -> None:
    folded = 0
    for place in noisy(tmp_path, seed):
        for found, _ in walks(place):
            begins = runs.run_begins(found).tolist()
            frames = found.frames
            for begin, end in steps(found, begins):
                part = slice(begin, end)
                assert len(set(frames["epoch"][part].tolist())) == 1
                assert len(set((frames["flags"][part] & Flags.ASYNC).tolist())) == 1
                assert len(set((frames["seq"][part] >> BLOCK_BITS).tolist())) == 1
                for at in range(begin + 1, end):
                    assert frames["previous"][at] == found.last_seqs[at - 1] == frames["seq"][at] - 1
                    assert found.offsets[at] == found.ends[at - 1]
                folded += end - begin - 1
    assert folded > 100


def test_bytes_between_two_frames_end_a_run(tmp_path: Path) -> None:
    frames = run(1, 10)
    (file,) = write_wal(tmp_path / "wal", [frames]).iterdir()
    put_in(file, offset_of(frames, 5), b"no frame " * 9)
    found = walk_file(file)
    assert found.frames["seq"].tolist() == list(range(1, 11))
    assert runs.run_begins(found).tolist() == [0, 5]


def test_an_epoch_that_goes_on_in_the_same_segment_ends_a_run(tmp_path: Path) -> None:
    (file,) = write_wal(tmp_path / "wal", [[*run(1, 4, epoch=1), *run(5, 6, epoch=2)]], epoch=2).iterdir()
    assert runs.run_begins(walk_file(file)).tolist() == [0, 4]


def test_a_run_tells_the_earliest_the_latest_and_the_longest_wait_of_its_frames(tmp_path: Path) -> None:
    """(made at ms, committed) of each frame: the clock goes back once, and so does what is known to be committed."""
    made = [(50, 1), (10, 0), (40, 3), (90, 2), (70, 5), (200, 6)]
    frames = [
        make_frame(epoch=1, first_seq=seq, previous=seq - 1, timestamp=ms << COUNTER_BITS, committed=committed,
                   records=[Record(RecordKind.UPSERT, 1, b"k", b"v")])
        for seq, (ms, committed) in enumerate(made, 1)
    ]
    (file,) = write_wal(tmp_path / "wal", [frames]).iterdir()
    found = walk_file(file)
    assert runs.waited_ms(found).tolist() == [
        0,  # nothing: it says that it is committed itself
        0,  # the first one, which was made later by its clock
        0,
        50,  # since the third, made at 40
        0,
        0,
    ]
    segment = Segment(file.name, 0, 1, file.name, 0)
    (row,) = runs.fold(found, runs.run_begins(found), segment, "a", RUNS_SCHEMA).to_pylist()
    assert (row["timestamp"] >> COUNTER_BITS, row["last_timestamp"] >> COUNTER_BITS) == (10, 200)
    assert (row["committed"], row["waited_ms"], row["frames"]) == (6, 50, 6)


def test_a_wait_is_counted_from_the_first_frame_above_what_is_committed_also_out_of_order(tmp_path: Path) -> None:
    order = [1, 5, 2, 3, 4, 6]
    frames = [
        make_frame(epoch=1, first_seq=seq, previous=seq - 1, timestamp=(10 * at) << COUNTER_BITS,
                   committed=4 if seq == 6 else seq, records=[Record(RecordKind.UPSERT, 1, b"k", b"v")])
        for at, seq in enumerate(order)
    ]
    (file,) = write_wal(tmp_path / "wal", [frames]).iterdir()
    assert runs.waited_ms(walk_file(file))[-1] == 40, "since sequence 5, made at 10"


def rows(spark: SparkSession, place: LogFolder, *, folded: bool) -> list[tuple[Any, ...]]:
    frame = spark.createDataFrame(view(place, folded=folded), RUNS_SCHEMA)
    every = runs.frames_of(frame, runs.runs_of(frame).select(*runs.KEY))
    wanted = ("epoch", "seq", "last_seq", "previous", "committed", "flags", "crc", "ordinal", "segment_epoch", "offset", "end",
              "block", "bucket", "frames")
    return sorted(tuple(row) for row in every.select(*wanted).collect())


def test_unfolding_gives_back_every_frame(spark: SparkSession, tmp_path: Path) -> None:
    for place in noisy(tmp_path, 1):
        assert rows(spark, place, folded=True) == rows(spark, place, folded=False)


def test_runs_that_share_a_sequence_are_named_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    segments = {
        (1, 1): run(1, 30),
        (1, 2): [a_frame(5)],
        (1, 3): [a_frame(20)],  # not with the one before it, but with the first
        (1, 4): [a_frame(40, count=5)],
        (1, 5): [a_frame(44, count=2)],  # with one sequence of the one before it
        (1, 6): [a_frame(46)],
        (2, 1): [a_frame(46, epoch=2)],
    }
    place = write(random.Random(1), tmp_path / "wal", segments, damaged=0, remote=False)
    frame = spark.createDataFrame(view(place, folded=True), RUNS_SCHEMA)
    named = {row["ordinal"] for row in runs.overlapping(frame).collect()}
    assert [segment.name for segment in list_log(place).segments if segment.ordinal in named] == [
        wal_name(1, index) for index in (1, 2, 3, 4, 5)
    ]


def told(
    spark: SparkSession, places: tuple[LogFolder, LogFolder], trimmed_to: int | None, *, folded: bool
) -> list[tuple[Any, ...]]:
    logs: list[Audited] = []
    own: list[Here] = []
    for log, place in zip((WAL, REMOTE), places, strict=True):
        kept = spark.createDataFrame(view(place, folded=folded), RUNS_SCHEMA)
        logs.append(audited(spark, "a", log, place, kept))
        own.append(Here.take(spark, logs[-1].located(findings_of(logs[-1], trimmed_to or 0))))
    between = lacking(spark, logs[0], logs[1], own[1].frame, trimmed_to).collect()
    found = [*own[0].rows.to_pylist(), *own[1].rows.to_pylist(), *(row.asDict() for row in between)]
    frames = [sum(log.limits.rows["frames"].to_pylist()) for log in logs]
    return [tuple(frames), *sorted(tuple(row.values()) for row in found)]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_folding_changes_no_finding(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    places = noisy(tmp_path, seed)
    trimmed_to = (None, FIRST_SEQ + 300)[seed % 2]
    folded = told(spark, places, trimmed_to, folded=True)
    assert folded == told(spark, places, trimmed_to, folded=False)
    assert len({row[0] for row in folded[1:]}) > 3, folded  # kinds
