"""The log as a stream: each record once, however the log grows, and whenever the stream stops and starts again."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from spark_jobs.logs.columns import LOG_SCHEMA
from spark_jobs.logs.files import LogFolder, list_log
from spark_jobs.logs.stream import LogStreamReader, latest
from storage.log.frame import Frame
from storage.log.segment import HEADER_BYTES, remote_name, wal_name
from tests.spark_jobs.log_rig import flip, offset_of
from tests.storage.log.frames import run, segment_bytes
from twinlog.errors import DamagedLog, InvalidInput, LogGap

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

START = {"segments": {}, "epoch": 0, "seq": 0}
FRAMES = run(1, 30, count=2)


def put(folder: Path, index: int, frames: list[Frame], *, torn: bytes = b"", zeros: int = 5000) -> Path:
    """A segment as it stands at one moment, preallocated."""
    folder.mkdir(exist_ok=True)
    data = segment_bytes(frames, index=index, zeros=0) + torn
    file = folder / wal_name(1, index)
    file.write_bytes(data + bytes(zeros))
    return file


def far(folder: Path, start: object = START) -> dict[str, object]:
    return latest(list_log(LogFolder(str(folder))), start)  # type: ignore[arg-type]


def test_a_write_on_its_way_is_read_when_it_is_there(tmp_path: Path) -> None:
    put(tmp_path, 1, FRAMES[:5], torn=FRAMES[5].data[:-3])
    first = far(tmp_path)
    assert first == {"segments": {wal_name(1, 1): offset_of(FRAMES, 5)}, "epoch": 1, "seq": 10}
    assert far(tmp_path, first) == first
    put(tmp_path, 1, FRAMES[:7])
    assert far(tmp_path, first) == {"segments": {wal_name(1, 1): offset_of(FRAMES, 7)}, "epoch": 1, "seq": 14}


@pytest.mark.parametrize("torn", [0, 40, 200])
def test_padded_frames_are_read_each_once_also_when_an_append_is_on_its_way(tmp_path: Path, torn: int) -> None:
    """`torn`: how much of a frame and its padding is there; the frame has fewer bytes than 200."""
    folder = tmp_path / "000000000001"
    folder.mkdir()
    file, name = folder / remote_name(wal_name(1, 1), 0), f"000000000001/{remote_name(wal_name(1, 1), 0)}"
    file.write_bytes(segment_bytes([], first_seq=1, alignment=512, zeros=0))
    offset = far(tmp_path)
    assert offset["segments"] == {name: HEADER_BYTES}
    read: list[int] = []
    reader = LogStreamReader(LogFolder(str(tmp_path)), LOG_SCHEMA, "")
    for held in (5, 5, 6, 12):
        file.write_bytes(segment_bytes(FRAMES[:held], alignment=512, zeros=0) + FRAMES[held].data.ljust(512, b"\0")[:torn])
        before, offset = offset, far(tmp_path, offset)
        for part in reader.partitions(before, offset):  # type: ignore[arg-type]
            read += [seq for batch in reader.read(part) for seq in batch.column("seq").to_pylist()]
    assert read == list(range(1, len(read) + 1))
    assert len(read) == (26 if torn == 200 else 24)
    assert offset["segments"] == {name: 512 * (len(read) // 2 + 1)}


def test_segments_come_and_go(tmp_path: Path) -> None:
    put(tmp_path, 1, FRAMES[:5])
    first = far(tmp_path)
    put(tmp_path, 2, FRAMES[5:9])
    (tmp_path / wal_name(1, 3)).write_bytes(bytes(100))  # being made
    second = far(tmp_path, first)
    assert second["segments"] == {wal_name(1, 1): offset_of(FRAMES, 5), wal_name(1, 2): offset_of(FRAMES[5:], 4)}
    os.unlink(tmp_path / wal_name(1, 1))
    put(tmp_path, 3, [])
    third = far(tmp_path, second)
    assert third["segments"] == {wal_name(1, 2): offset_of(FRAMES[5:], 4), wal_name(1, 3): HEADER_BYTES}
    assert third["seq"] == 18


def test_what_was_trimmed_unread_is_an_error(tmp_path: Path) -> None:
    put(tmp_path, 1, FRAMES[:5])
    first = far(tmp_path)
    os.unlink(tmp_path / wal_name(1, 1))
    put(tmp_path, 3, FRAMES[9:12])
    with pytest.raises(LogGap, match=r"continues sequence 18, and this stream has read up to 10: .* trimmed before it"):
        far(tmp_path, first)
    put(tmp_path, 2, FRAMES[5:9])
    assert far(tmp_path, first)["seq"] == 24


def test_damage_is_an_error_and_not_the_end(tmp_path: Path) -> None:
    file = put(tmp_path, 1, FRAMES[:9])
    flip(file, offset_of(FRAMES, 4) + 70)
    with pytest.raises(DamagedLog, match=f"{wal_name(1, 1)}, offset {offset_of(FRAMES, 4)}"):
        far(tmp_path)


def test_a_wrong_path_is_said_at_once(tmp_path: Path) -> None:
    from spark_jobs.logs.columns import LOG_SCHEMA

    with pytest.raises(InvalidInput, match=r"\(option path\) is not there"):
        LogStreamReader(LogFolder(str(tmp_path / "nowhere")), LOG_SCHEMA, "").initialOffset()


@pytest.mark.long
def test_every_record_comes_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    wal, out, checkpoint = tmp_path / "wal", tmp_path / "out", tmp_path / "checkpoint"

    def go_on() -> None:
        stream = (
            spark.readStream.format("twinlog").option("path", str(wal)).load().select("seq", "offset", "segment")
            .writeStream.format("parquet").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            .start(str(out))
        )
        stream.awaitTermination()

    put(wal, 1, FRAMES[:8], torn=FRAMES[8].data[:40])
    go_on()
    put(wal, 1, FRAMES[:12])
    put(wal, 2, FRAMES[12:20])
    go_on()
    go_on()  # nothing new
    os.unlink(wal / wal_name(1, 1))
    put(wal, 2, FRAMES[12:25])
    put(wal, 3, FRAMES[25:])
    go_on()
    rows = spark.read.parquet(str(out)).orderBy("seq").collect()
    assert [row["seq"] for row in rows] == list(range(1, 61))
    assert {row["seq"]: (row["segment"], row["offset"]) for row in rows}[47] == (wal_name(1, 2), offset_of(FRAMES[12:], 11))


def test_a_query_that_was_stopped_or_failed_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """The sink keeps a batch by its id, as Spark asks of one: a batch that failed comes again under the same id."""
    wal, taken, failing = tmp_path / "wal", dict[int, list[int]](), list[bool]()

    def take(batch: DataFrame, number: int) -> None:
        seqs = [row["seq"] for row in batch.select("seq").collect()]
        if failing and failing.pop():
            raise RuntimeError("the sink is away")
        taken[number] = seqs

    def query() -> StreamingQuery:
        log = spark.readStream.format("twinlog").option("path", str(wal)).load()
        return log.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    put(wal, 1, FRAMES[:8], torn=FRAMES[8].data[:40])
    first = query()
    first.processAllAvailable()
    put(wal, 1, FRAMES[:10])
    first.processAllAvailable()
    first.stop()
    assert sorted(chain.from_iterable(taken.values())) == list(range(1, 21))

    put(wal, 1, FRAMES[:12])
    put(wal, 2, FRAMES[12:16])
    failing.append(True)
    second = query()
    with pytest.raises(StreamingQueryException, match="the sink is away"):
        second.processAllAvailable()
    assert not second.isActive
    assert sorted(chain.from_iterable(taken.values())) == list(range(1, 21)), "the batch that failed left nothing"

    put(wal, 2, FRAMES[12:25])
    third = query()
    third.processAllAvailable()
    os.unlink(wal / wal_name(1, 1))
    put(wal, 3, FRAMES[25:])
    third.processAllAvailable()
    third.stop()
    assert sorted(chain.from_iterable(taken.values())) == list(range(1, 61)), "nothing twice, nothing missing"
