"""Columns of the log's views, made as Arrow arrays: only those that were asked for, whole batches at a time.

`log`: a row for each record. `frames`: a row for each frame, and for each mark of the walk (logs/walk.py): damage, a torn
tail, the segment itself (`segment`: its header; `seq` is its first_seq). `runs`: as `frames`, with a row for each run of frames
(logs/runs.py): `timestamp` is the smallest of them, `last_timestamp`, `committed` and `waited_ms` (runs.py) are the largest,
`crc` is the first one's, `flags` says only whether they are asynchronous, and the arrays have an element for each frame.
What always holds: a batch has exactly the columns of the schema it was made for, in its order and with Spark's Arrow types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark_jobs.logs.files import Segment
from spark_jobs.logs.walk import Walk
from storage.log.frame import Frame
from storage.log.record import Record, RecordKind
from twinlog.errors import LogError, words

FRAME, RUN, SEGMENT = "frame", "run", "segment"
COUNTER_BITS = 16  # of a version; above them are milliseconds
OPERATIONS = {int(kind): kind.name.lower() for kind in RecordKind}


def _schema(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


LOG_SCHEMA = _schema(
    log=LongType(), epoch=LongType(), seq=LongType(), previous=LongType(), timestamp=LongType(), at=TimestampType(),
    table=LongType(), operation=StringType(), key=BinaryType(), row=BinaryType(), site=StringType(), segment=StringType(),
    offset=LongType(),
)
FRAMES_SCHEMA = _schema(
    entry=StringType(), log=LongType(), epoch=LongType(), seq=LongType(), last_seq=LongType(), previous=LongType(),
    timestamp=LongType(), committed=LongType(), flags=IntegerType(), crc=LongType(), site=StringType(),
    segment=StringType(), ordinal=IntegerType(), segment_epoch=LongType(), offset=LongType(), end=LongType(),
    detail=StringType(),
)
RUNS_SCHEMA = _schema(
    entry=StringType(), epoch=LongType(), seq=LongType(), last_seq=LongType(), previous=LongType(), timestamp=LongType(),
    last_timestamp=LongType(), committed=LongType(), flags=IntegerType(), crc=LongType(), frames=LongType(),
    waited_ms=LongType(), site=StringType(), segment=StringType(), ordinal=IntegerType(), segment_epoch=LongType(),
    offset=LongType(), end=LongType(), detail=StringType(), seqs=ArrayType(LongType()), offsets=ArrayType(LongType()),
    crcs=ArrayType(LongType()), committeds=ArrayType(LongType()),
)
_ARROW: dict[DataType, pa.DataType] = {
    LongType(): pa.int64(), IntegerType(): pa.int32(), StringType(): pa.string(), BinaryType(): pa.binary(),
    TimestampType(): pa.timestamp("us", tz="UTC"), ArrayType(LongType()): pa.list_(pa.int64()),
}


def arrow_schema(schema: StructType) -> pa.Schema:
    return pa.schema([pa.field(field.name, _ARROW[field.dataType], field.nullable) for field in schema])


class TakenFrame(NamedTuple):
    """A frame to make rows of, where it begins, and the places of its records that are wanted; None: all."""

    frame: Frame
    offset: int
    places: list[int] | None


class _Records:
    """The wanted records of some frames of one segment."""

    def __init__(self, taken: Sequence[TakenFrame], segment: Segment, site: str) -> None:
        self.taken, self.segment, self.site = taken, segment, site
        self.places = [range(each.frame.count) if each.places is None else each.places for each in taken]
        self.count = sum(map(len, self.places))

    def records(self) -> Iterator[Record]:
        for each, places in zip(self.taken, self.places, strict=True):
            records = each.frame.records
            yield from records if each.places is None else [records[place] for place in places]

    def same(self, value: Callable[[TakenFrame], int]) -> list[int]:
        """One value for all records of a frame."""
        found: list[int] = []
        for each, places in zip(self.taken, self.places, strict=True):
            found += [value(each)] * len(places)
        return found

    def counted(self, first: Callable[[Frame], int]) -> list[int]:
        """One more with each record of a frame."""
        return [first(each.frame) + place for each, places in zip(self.taken, self.places, strict=True) for place in places]

    def previous(self) -> list[int]:
        return [
            each.frame.first_seq + place - 1 if place else each.frame.previous
            for each, places in zip(self.taken, self.places, strict=True) for place in places
        ]


_RECORD_COLUMNS: dict[str, Callable[[_Records], Any]] = {
    "log": lambda rows: rows.same(lambda each: each.frame.log),
    "epoch": lambda rows: rows.same(lambda each: each.frame.epoch),
    "seq": lambda rows: rows.counted(lambda frame: frame.first_seq),
    "previous": _Records.previous,
    "timestamp": lambda rows: rows.counted(lambda frame: frame.timestamp),
    "at": lambda rows: [(version >> COUNTER_BITS) * 1000 for version in rows.counted(lambda frame: frame.timestamp)],
    "table": lambda rows: [record.table for record in rows.records()],
    "operation": lambda rows: [OPERATIONS[record.kind] for record in rows.records()],
    "key": lambda rows: [record.key for record in rows.records()],
    "row": lambda rows: [record.value for record in rows.records()],
    "site": lambda rows: pa.repeat(rows.site, rows.count),
    "segment": lambda rows: pa.repeat(rows.segment.name, rows.count),
    "offset": lambda rows: rows.same(lambda each: each.offset),
}


def record_batch(taken: Sequence[TakenFrame], segment: Segment, site: str, schema: StructType) -> pa.RecordBatch:
    """A row for each wanted record. Raises LogError for a payload that does not decode."""
    rows = _Records(taken, segment, site)
    try:
        return batch({field.name: _RECORD_COLUMNS[field.name](rows) for field in schema}, schema)
    except KeyError as error:
        raise LogError(f"{segment.name}: a record of kind {words(error)} is not known to this release") from error


def frame_batch(walk: Walk, segment: Segment, site: str, schema: StructType) -> pa.RecordBatch:
    """A row for each frame."""
    frames, count = walk.frames, len(walk.frames)
    columns: dict[str, Callable[[], Any]] = {
        "last_seq": lambda: walk.last_seqs, "offset": lambda: walk.offsets, "end": lambda: walk.ends,
        "entry": lambda: pa.repeat(FRAME, count), "detail": lambda: pa.nulls(count, pa.string()),
        **origin(segment, site, count),
    }
    return batch({name: columns[name]() if name in columns else frames[name] for name in schema.names}, schema)


def origin(segment: Segment, site: str, count: int) -> dict[str, Callable[[], pa.Array]]:
    """Columns that say where all of `count` rows are from."""
    return {
        "site": lambda: pa.repeat(site, count), "segment": lambda: pa.repeat(segment.name, count),
        "ordinal": lambda: pa.repeat(pa.scalar(segment.ordinal, pa.int32()), count),
        "segment_epoch": lambda: pa.repeat(pa.scalar(segment.epoch, pa.int64()), count),
    }


def mark_batch(walk: Walk, segment: Segment, site: str, schema: StructType) -> pa.RecordBatch:
    """A row for the segment, if it has a header, and one for each mark."""
    rows: list[dict[str, Any]] = []
    if walk.header is not None:
        rows.append({
            "entry": SEGMENT, "log": walk.header.log, "epoch": walk.header.epoch, "seq": walk.header.first_seq, "offset": 0,
            "end": walk.end, "last_seq": walk.last_seq,
        })
    for mark in walk.marks:
        rows.append({
            "entry": mark.kind, "epoch": mark.epoch, "seq": mark.seq, "last_seq": mark.last_seq, "offset": mark.offset,
            "end": mark.end, "detail": mark.detail,
        })
    same = {"site": site, "segment": segment.name, "ordinal": segment.ordinal, "segment_epoch": segment.epoch}
    return batch({name: [{**row, **same}.get(name) for row in rows] for name in schema.names}, schema)


def batch(columns: dict[str, Any], schema: StructType) -> pa.RecordBatch:
    """`columns`: Arrow arrays, numbers of any width, or Python's values."""
    target = arrow_schema(schema)
    arrays = [_array(values, target.field(name).type) for name, values in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, np.ndarray):
        values = values.astype(kind.to_pandas_dtype())
    return values if isinstance(values, pa.Array) else pa.array(values, kind)
