"""The frames of a log that stand, and the places of their bytes: the chain of a log that was read in parallel.

What always holds: the rule is the product's own (storage/log/chain.py), asked with headers alone; a frame that stands is named
by segment and offset, once, wherever else a copy of it lies; a damaged log is an error here, never a shorter log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_jobs.job import FORMAT
from spark_jobs.logs.columns import FRAME, FRAMES_SCHEMA
from spark_jobs.logs.files import LogFolder, whole_log
from spark_jobs.logs.walk import DAMAGED, GONE, MISPLACED, UNREADABLE
from storage.log.chain import standing, tail_after
from storage.log.frame import Frame
from twinlog.errors import DamagedLog

_COLUMNS = (
    "entry", "log", "epoch", "seq", "last_seq", "previous", "timestamp", "committed", "flags", "crc", "segment", "ordinal",
    "offset", "end", "detail",
)
_BAD = (DAMAGED, MISPLACED, UNREADABLE, GONE)


class PlacedFrame(Frame):
    """A frame's header, and where the whole of it stands. `data` is no frame here: CRC and time, which distinguish two.
    `length`: of the whole of it in its file, in bytes; it differs where one segment is encrypted."""

    __slots__ = ("length", "offset", "segment")

    def __init__(self, row: dict[str, Any]) -> None:
        super().__init__(
            log=row["log"], epoch=row["epoch"], first_seq=row["seq"], count=row["last_seq"] - row["seq"] + 1,
            previous=row["previous"], timestamp=row["timestamp"], committed=row["committed"], flags=row["flags"],
            data=row["crc"].to_bytes(8, "little") + row["timestamp"].to_bytes(8, "little"),
        )
        self.segment: str = row["segment"]
        self.offset: int = row["offset"]
        self.length: int = row["end"] - row["offset"]


def placed_frames(spark: SparkSession, place: LogFolder) -> list[PlacedFrame]:
    """Every sound frame of the log, copies too, in the order of its segments. Raises DamagedLog, NotFound, DfsError,
    KeyUnavailable."""
    whole_log(place)  # what is wrong with the place or its keys is said here, and not by Spark
    options = {"view": "frames", **place.options}
    schema = FRAMES_SCHEMA.__class__([FRAMES_SCHEMA[name] for name in _COLUMNS])
    view = spark.read.format(FORMAT).options(**options).schema(schema).load()
    wanted = view.where(f.col("entry").isin(FRAME, *_BAD)).orderBy("ordinal", "offset")
    found: list[PlacedFrame] = []
    for batch in wanted.toArrow().to_batches():
        for row in batch.to_pylist():
            if row["entry"] != FRAME:
                file = place.file(row["segment"])
                raise DamagedLog(
                    f"{file}, offset {row['offset']}: {row['detail']}; `twinlog audit run log-audit` reports every "
                    "fault of the log", file=file, offset=row["offset"],
                )
            found.append(PlacedFrame(row))
    return found


def standing_frames(frames: Iterable[PlacedFrame], applied_seq: int | None = None, applied_epoch: int = 0) -> list[PlacedFrame]:
    """Those that stand, in order; with `applied_seq` those that continue from there. Raises LogGap, DamagedLog."""
    kept = standing(frames) if applied_seq is None else tail_after(frames, applied_seq, applied_epoch)
    return cast(list[PlacedFrame], kept)
