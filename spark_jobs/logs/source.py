"""The views `log`, `frames` and `runs` of the data source: a WAL or a remote log as a table.

Options: `path` (folder, or hdfs:// address, of the log), `webhdfs` (addresses of NameNodes, separated by commas; without it
port 9870 of the path's host), `user` (on HDFS), `site` (what the column of that name says), `encryption_keys` (of an encrypted
log: references as in a site's file, `ID=file:PATH` or `ID=env:NAME`, separated by commas; each executor resolves them).
What always holds: a task reads whole segments, small ones together; every CRC is checked; where filters are pushed
(reading.py), of `log` only the payloads of frames that may hold wanted records are decoded; only columns of the schema are
made (give the read a schema of fewer columns).
`log` raises DamagedLog with file and offset, the others never: there damage is rows (logs/columns.py). All show what the files
hold: also frames that a later one cuts off, also a frame that stands in two remote segments. A segment is not split: only
walking from its header proves where a frame begins.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from spark_jobs.asked import ColumnRange, check_columns, pushes
from spark_jobs.logs.columns import (
    FRAMES_SCHEMA,
    LOG_SCHEMA,
    RUNS_SCHEMA,
    frame_batch,
    mark_batch,
)
from spark_jobs.logs.files import Log, Segment, Store, place_of, whole_log
from spark_jobs.logs.ranges import Ranges
from spark_jobs.logs.records import raise_damage, read_segment, records
from spark_jobs.logs.runs import run_batch
from spark_jobs.logs.stream import LogStreamReader
from spark_jobs.logs.walk import GONE, UNREADABLE, Mark, Walk, walk
from storage.log.frame import sound_header
from storage.log.segment import parse_header
from twinlog.errors import BrokenFrame, DfsError, LogError, words

SITE = "site"
TASK_BYTES = 16 << 20  # small segments are read together up to this
Batch = Callable[[Walk, Segment, str, StructType], pa.RecordBatch]
_HEAD_BYTES = 64 << 10  # in which the first frame of a segment most likely ends


@dataclass
class SegmentsPartition(InputPartition):
    """Segments that one task reads."""

    segments: tuple[Segment, ...]


class LogView:
    def schema(self) -> StructType:
        return LOG_SCHEMA

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
        check_columns(schema, LOG_SCHEMA)
        return RecordsReader(schema, options)

    def stream_reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceStreamReader:
        check_columns(schema, LOG_SCHEMA)
        return LogStreamReader(place_of(options), schema, options.get(SITE, ""))


class FramesView:
    def schema(self) -> StructType:
        return FRAMES_SCHEMA

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
        check_columns(schema, FRAMES_SCHEMA)
        return FramesReader(schema, options, frame_batch)


class RunsView:
    def schema(self) -> StructType:
        return RUNS_SCHEMA

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
        check_columns(schema, RUNS_SCHEMA)
        return FramesReader(schema, options, run_batch)


class _SegmentsReader(DataSourceReader):
    """`options`: of the read."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._log, self._schema, self._site = whole_log(place_of(options)), schema, options.get(SITE, "")
        self._pushes = pushes(options)
        self._ranges = Ranges()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """They spare work here; Spark applies them all the same."""
        if self._pushes:
            self._ranges.add(filters)
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        return packed(needed(self._log, self._ranges))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, SegmentsPartition)
        store = self._log.place.store()
        for segment in partition.segments:
            yield from self._segment(store, segment)

    @abstractmethod
    def _segment(self, store: Store, segment: Segment) -> Iterator[pa.RecordBatch]: ...


class RecordsReader(_SegmentsReader):
    def _segment(self, store: Store, segment: Segment) -> Iterator[pa.RecordBatch]:
        place = self._log.place
        try:
            data = read_segment(store, place, segment)
        except FileNotFoundError:
            return  # trimmed since it was listed
        found = walk(data, place.file(segment.name), segment, place.keyring())
        raise_damage(found, place, segment)
        yield from records(data, found, segment, self._site, self._schema, self._ranges)


class FramesReader(_SegmentsReader):
    """`batch_of`: makes the rows of a walk's frames."""

    def __init__(self, schema: StructType, options: Mapping[str, str], batch_of: Batch) -> None:
        super().__init__(schema, options)
        self._batch_of = batch_of

    def _segment(self, store: Store, segment: Segment) -> Iterator[pa.RecordBatch]:
        place = self._log.place
        try:
            data = read_segment(store, place, segment)
        except FileNotFoundError:
            found = Walk(marks=[Mark(GONE, 0, 0, segment.epoch, detail="trimmed while the log was being read")])
        except (OSError, DfsError) as error:
            detail = f"it cannot be read: {words(error)}"
            found = Walk(marks=[Mark(UNREADABLE, 0, segment.length, segment.epoch, detail=detail)])
        else:
            found = walk(data, place.file(segment.name), segment, place.keyring())
        yield mark_batch(found, segment, self._site, self._schema)
        if len(found.frames):
            yield self._batch_of(found, segment, self._site, self._schema)


def packed(segments: Sequence[Segment]) -> list[SegmentsPartition]:
    """Segments that follow one another, together up to TASK_BYTES."""
    parts: list[list[Segment]] = []
    size = 0
    for segment in segments:
        size += segment.length
        if not parts or size > TASK_BYTES:
            parts.append([])
            size = segment.length
        parts[-1].append(segment)
    return [SegmentsPartition(tuple(part)) for part in parts]


def needed(log: Log, ranges: Ranges) -> list[Segment]:
    """The segments that may hold something wanted."""
    named = [each for each in log.segments if ranges.segment.has(each.name) and ranges.epoch.meets(None, each.epoch)]
    if ranges.seq == ColumnRange():
        return named
    heads = {segment.ordinal: _head(log, segment) for segment in log.segments}
    return [segment for segment in named if ranges.seq.meets(*_bounds(log, segment, heads))]


def _bounds(log: Log, segment: Segment, heads: Mapping[int, tuple[int | None, int | None]]) -> tuple[int | None, int | None]:
    """(lowest, highest) sequence that may stand in a segment. In a WAL sequences ascend within an epoch, so the first frame of
    the next segment bounds this one (not its header's first_seq: it may be made ahead); a remote log repeats frames."""
    low = heads[segment.ordinal][0]
    after = log.segments[segment.ordinal + 1] if segment.ordinal + 1 < len(log.segments) else None
    if log.kind != "wal" or after is None or after.epoch != segment.epoch:
        return low, None
    first = heads[after.ordinal][1]
    return low, None if first is None else first - 1


def _head(log: Log, segment: Segment) -> tuple[int | None, int | None]:
    """(first_seq of the header, first sequence of the first frame if it is of the segment's epoch); None: not known."""
    place = log.place
    try:
        data = place.store().read(f"{place.folder.rstrip('/')}/{segment.name}", 0, _HEAD_BYTES)
        header = parse_header(data)
    except (OSError, DfsError, LogError):
        return None, None  # whoever reads it will say so
    try:
        frame = sound_header(memoryview(data), header.begin, sealed=True)
    except (BrokenFrame, LogError):
        return header.first_seq, None
    return header.first_seq, frame[6] if frame[5] == header.epoch else None
