"""The views of a log in Spark: the records as they were logged, ranges pushed down, damage told with file and offset."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from spark_jobs.reading import read_where
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from storage.log.segment import wal_name
from tests.spark_jobs.log_rig import flip, offset_of, write_wal
from tests.storage.log.frames import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOW_MS = 1_700_000_000_123


def a_log() -> list[Frame]:
    """Records of two tables, an update and a deletion; one frame is large enough to be compressed."""
    frames = []
    for number in range(12):
        first = 3 * number + 1
        rows = [
            Record(RecordKind.UPSERT, 1, b"k%d" % first, b"v" * (20_000 if number == 5 else 5)),
            Record(RecordKind.UPDATE, 2, b"u%d" % first, b"w"),
            Record(RecordKind.DELETE, 1, b"d%d" % first),
        ]
        frames.append(make_frame(
            epoch=1, first_seq=first, previous=first - 1, timestamp=(NOW_MS << 16) + first, committed=max(0, first - 4),
            records=rows,
        ))
    return frames


def view(spark: SparkSession, folder: Path, name: str = "log", schema: str = "") -> DataFrame:
    reader = spark.read.format("twinlog").option("view", name).option("path", str(folder)).option("site", "a")
    return (reader.schema(schema) if schema else reader).load()


def test_every_record_is_a_row(spark: SparkSession, tmp_path: Path) -> None:
    frames = a_log()
    folder = write_wal(tmp_path / "wal", [frames[:5], frames[5:]])
    rows = [row.asDict() for row in view(spark, folder).orderBy("seq").collect()]
    wanted = [
        (frame, record, frame.first_seq + place) for frame in frames for place, record in enumerate(frame.records)
    ]
    assert [
        (row["seq"], row["previous"], row["table"], row["operation"], bytes(row["key"]), bytes(row["row"])) for row in rows
    ] == [
        (seq, seq - 1, record.table, RecordKind(record.kind).name.lower(), record.key, record.value)
        for _, record, seq in wanted
    ]
    assert [row["timestamp"] for row in rows] == [(NOW_MS << 16) + seq for _, _, seq in wanted]
    assert {(row["log"], row["epoch"], row["site"]) for row in rows} == {(0, 1, "a")}
    assert rows[0]["at"] == datetime.fromtimestamp(NOW_MS / 1000, UTC).replace(tzinfo=None)
    assert [(row["segment"], row["offset"]) for row in rows if row["seq"] in (1, 4, 16)] == [
        (wal_name(1, 1), 64), (wal_name(1, 1), offset_of(frames, 1)), (wal_name(1, 2), 64),
    ]


def test_a_range_gives_its_rows_and_a_schema_its_columns(spark: SparkSession, tmp_path: Path) -> None:
    frames = a_log()
    folder = write_wal(tmp_path / "wal", [frames[:5], frames[5:]])
    place = {"path": str(folder)}
    found = read_where(spark, "seq between 8 and 20 and table = 1", place, "seq bigint, table bigint").orderBy("seq")
    assert [tuple(row) for row in found.collect()] == [(seq, 1) for seq in range(8, 21) if seq % 3 != 2]
    flip(folder / wal_name(1, 1), 100)  # so that whoever reads the first file fails
    assert read_where(spark, "seq > 30", place).count() == 6


def test_one_read_serves_queries_of_different_filters(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_wal(tmp_path / "wal", [run(1, 5), run(6, 5), run(11, 5)])
    log = view(spark, folder)
    assert [log.where("seq > 12").count(), log.count(), log.where("length(key) > 0").count()] == [3, 15, 15]
    assert sorted(row["seq"] for row in log.where("seq = 1").union(log.where("seq = 13")).collect()) == [1, 13]
    some = read_where(spark, "seq > 2", {"path": str(folder)})
    assert [some.where("seq > 12").count(), some.count(), some.where("length(key) > 0").count()] == [3, 13, 13]
    assert sorted(row["seq"] for row in some.where("seq = 3").union(some.where("seq = 13")).collect()) == [3, 13]


def test_damage_is_an_error_with_file_and_offset_in_one_view_and_rows_in_the_other(spark: SparkSession, tmp_path: Path) -> None:
    frames = run(1, 10)
    folder = write_wal(tmp_path / "wal", [frames])
    at = offset_of(frames, 4)
    flip(folder / wal_name(1, 1), at + 62)
    with pytest.raises(PySparkException, match=f"{wal_name(1, 1)}, offset {at}: "):
        view(spark, folder).count()
    rows = view(spark, folder, "frames").orderBy("offset").collect()
    assert [(row["entry"], row["offset"]) for row in rows if row["entry"] != "frame"] == [("segment", 0), ("damaged", at)]
    assert [row["seq"] for row in rows if row["entry"] == "frame"] == [1, 2, 3, 4, 6, 7, 8, 9, 10]


def test_what_cannot_be_read_names_the_option(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match=r"\(option path\) is not there"):
        view(spark, tmp_path / "nowhere").count()
    folder = write_wal(tmp_path / "wal", [run(1, 2)])
    with pytest.raises(PySparkException, match=r"no column colour string; it has log bigint, epoch bigint"):
        view(spark, folder, schema="colour string").count()
