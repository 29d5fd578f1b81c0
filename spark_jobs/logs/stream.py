"""The view `log` as a stream: every whole frame of every segment once, while the log grows and is trimmed behind.

An offset is `{"segments": {name: end}, "epoch": e, "seq": s}`: how far each segment that is still there was read, and the last
sequence that was. What always holds: only whole frames with a sound CRC are passed over, so a write on its way is read when it
is there; damage, and frames that were trimmed before they were read, stop the stream with an error, for neither may look
like the end. As in a batch, what is read stands in the files; a frame that failed is cut off by a later one's `previous`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark_jobs.logs.files import Log, LogFolder, Segment, list_log
from spark_jobs.logs.ranges import Ranges
from spark_jobs.logs.records import raise_damage, records
from spark_jobs.logs.walk import Walk, add_frames, walk
from storage.log.frame import MAGIC
from storage.log.segment import HEADER_BYTES, HEADER_BYTES_MAX, cipher_of, parse_header
from twinlog.errors import BrokenHeader, DamagedLog, LogGap, NotFound

Offset = dict[str, Any]


@dataclass
class PiecePartition(InputPartition):
    """The frames in the bytes [begin, end) of a segment."""

    segment: Segment
    begin: int
    end: int


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, place: LogFolder, schema: StructType, site: str) -> None:
        self._place, self._schema, self._site = place, schema, site
        self._once = False
        self._target: Offset | None = None  # of a stream that reads what there is now

    def initialOffset(self) -> Offset:
        list_log(self._place)  # a wrong path is said at once
        return {"segments": {}, "epoch": 0, "seq": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        """Returns an offset without an end: the first `latestOffset` finds the end, and need not read all."""
        self._once, self._target = True, None

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        if self._target is None:
            found = latest(list_log(self._place), start)
            if not self._once:
                return found
            self._target = found
        return self._target

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        listed = {segment.name: segment for segment in list_log(self._place).segments}
        pieces = []
        for name, upto in end["segments"].items():
            begin = start["segments"].get(name, HEADER_BYTES)
            if upto <= begin:
                continue
            if name not in listed:
                raise NotFound(f"{self._place.file(name)} was trimmed before this stream had read it: {_AGAIN}")
            pieces.append(PiecePartition(listed[name], begin, upto))
        return pieces

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PiecePartition)
        end, name = partition.end, partition.segment.name
        header = parse_header(_read(self._place, partition.segment, 0, HEADER_BYTES_MAX))
        begin = max(partition.begin, header.begin)
        data = _read(self._place, partition.segment, begin, end - begin)
        cipher = cipher_of(header, self._place.keyring(), self._place.file(name))
        found = Walk(alignment=header.alignment, cipher=cipher, begin=begin)
        reached = begin + add_frames(data, 0, found)
        if reached != end:
            file = self._place.file(name)
            raise DamagedLog(f"{file}, offset {reached}: a frame that was sound is not any more", file=file, offset=reached)
        for batch in records(data, found, partition.segment, self._site, self._schema, Ranges()):
            yield _moved(batch, begin)


_AGAIN = "begin anew with another checkpoint, from what is still held or from a snapshot"


def latest(log: Log, start: Mapping[str, Any]) -> Offset:
    """Returns the end up to which every segment can be read now. Raises DamagedLog; LogGap when frames were trimmed before they
    were read."""
    place = log.place
    before: Mapping[str, int] = start["segments"]
    at = (int(start["epoch"]), int(start["seq"]))
    trimmed = bool(before) and max(before) not in {segment.name for segment in log.segments}
    ends: dict[str, int] = {}
    for segment in log.segments:
        end = before.get(segment.name, HEADER_BYTES)
        try:
            begin, found = _grown(place, segment, end)
        except FileNotFoundError:
            trimmed = trimmed or bool(before)
            continue
        except BrokenHeader:
            continue  # it was just made, or was torn at birth
        if len(found.frames):
            epoch, previous = int(found.frames["epoch"][0]), int(found.frames["previous"][0])
            if trimmed and epoch == at[0] and previous > at[1]:
                raise LogGap(
                    f"{place.file(segment.name)}: its first frame continues sequence {previous}, and this stream has read up to"
                    f" {at[1]}: what is between was trimmed before it was read; {_AGAIN}",
                    held_seq=at[1], offered_previous=previous,
                )
            trimmed = False
            at = max(at, (int(found.frames["epoch"][-1]), found.last_seq))
            end = begin + found.end
        ends[segment.name] = end
    return {"segments": ends, "epoch": at[0], "seq": at[1]}


def _grown(place: LogFolder, segment: Segment, end: int) -> tuple[int, Walk]:
    """Returns where the frames behind `end` begin, and those frames, with offsets from there. Raises BrokenHeader,
    FileNotFoundError, DamagedLog."""
    try:
        if end > HEADER_BYTES and not _has_more(place, segment, end):  # most segments, at most looks
            return end, Walk()
        header = parse_header(_read(place, segment, 0, HEADER_BYTES_MAX))
        begin, found = max(end, header.begin), Walk(alignment=header.alignment)
        if not _has_more(place, segment, begin):
            return begin, found
        data = _read(place, segment, begin, None)
        reached = add_frames(data, 0, found)
        sound = data[reached:] == bytes(max(0, len(data) - reached))
    except BrokenHeader:
        _check(place, segment)
        raise
    if not sound:
        _check(place, segment)
    return begin, found


def _has_more(place: LogFolder, segment: Segment, at: int) -> bool:
    return _read(place, segment, at, len(MAGIC)) not in (b"", bytes(len(MAGIC)))


def _check(place: LogFolder, segment: Segment) -> None:
    """Raises the damage of a segment; a write on its way and a torn tail pass."""
    raise_damage(walk(_read(place, segment, 0, None), place.file(segment.name), segment, place.keyring()), place, segment)


def _read(place: LogFolder, segment: Segment, offset: int, length: int | None) -> bytes:
    return place.store().read(f"{place.folder.rstrip('/')}/{segment.name}", offset, length)


def _moved(batch: pa.RecordBatch, begin: int) -> pa.RecordBatch:
    """Offsets in the file instead of in the piece."""
    place = batch.schema.get_field_index("offset")
    if place < 0:
        return batch
    return batch.set_column(place, batch.schema.field(place), pc.add(batch.column(place), begin))
