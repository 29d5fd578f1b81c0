"""The time that records waited for the remote log, read from their WAL, and logs that do not hold it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.log_audit.charts import POINTS_MAX, lag, lag_chart
from spark_jobs.logs.columns import RUNS_SCHEMA
from spark_jobs.logs.files import LogFolder
from spark_jobs.logs.runs import waited_ms
from storage.log.frame import Flags, Frame, make_frame
from storage.log.record import Record, RecordKind
from tests.spark_jobs.log_rig import walk_file, write_wal
from tests.spark_jobs.logs.noisy_logs import view

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_MS = 1_700_000_000_000


def a_frame(seq: int, at_ms: int, committed: int, flags: int = 0) -> Frame:
    return make_frame(
        epoch=1, first_seq=seq, previous=seq - 1, timestamp=(NOW_MS + at_ms) << 16, committed=committed, flags=flags,
        records=[Record(RecordKind.UPSERT, 1, b"k", b"v")],
    )


STALLED = [
    a_frame(1, 0, 0), a_frame(2, 5, 1), a_frame(3, 100, 1), a_frame(4, 1500, 1), a_frame(5, 1600, 4), a_frame(6, 1603, 4),
]


def test_a_frame_says_how_long_the_oldest_uncommitted_record_had_waited(tmp_path: Path) -> None:
    (file,) = write_wal(tmp_path / "wal", [STALLED]).iterdir()
    assert waited_ms(walk_file(file)).tolist() == [0, 0, 95, 1495, 0, 3]


def test_what_waits_since_an_earlier_segment_waits_at_least_since_this_one_begins(tmp_path: Path) -> None:
    files = sorted(write_wal(tmp_path / "wal", [STALLED[:2], STALLED[2:]]).iterdir())
    assert waited_ms(walk_file(files[1])).tolist() == [0, 1400, 0, 3]


def test_the_longest_wait_of_each_time_and_none_of_asynchronous_ones(spark: SparkSession, tmp_path: Path) -> None:
    frames = [a_frame(seq, 10 * seq, max(0, seq - 2 - 4 * (seq == 500))) for seq in range(1, 1001)]
    behind = [a_frame(seq, 10 * seq, 1000, Flags.ASYNC) for seq in range(1001, 1201)]
    place = LogFolder(str(write_wal(tmp_path / "wal", [frames[:600], frames[600:] + behind])))
    table = spark.createDataFrame(view(place, folded=False), RUNS_SCHEMA)
    points = [(row["at_ms"], row["waited_ms"]) for row in lag(table).collect()]
    assert len(points) == POINTS_MAX
    assert points[0][0] == NOW_MS + 10
    assert points[-1][0] == NOW_MS + 10 + 50 * (POINTS_MAX - 1)
    assert sorted(waited for _, waited in points) == [10] * (POINTS_MAX - 1) + [50]
    assert dict(points)[NOW_MS + 10 + 50 * 99] == 50


@pytest.mark.parametrize("found", [{}, {"wal of a": []}])
def test_logs_without_synchronous_frames_have_no_points(found: dict[str, list[tuple[int, int]]]) -> None:
    assert lag_chart(found).series == ()
