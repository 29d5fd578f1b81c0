"""The records of one segment of a log, as batches of the view `log`, and the damage that forbids them.

What always holds: only the payloads of frames that may hold wanted records are decoded; damage is raised, never passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.types import StructType

from spark_jobs.asked import ColumnRange
from spark_jobs.logs.columns import TakenFrame, record_batch
from spark_jobs.logs.files import LogFolder, Segment, Store
from spark_jobs.logs.ranges import Ranges
from spark_jobs.logs.walk import DAMAGED, MISPLACED, UNREADABLE, Walk
from twinlog.errors import DamagedLog

BATCH_RECORDS = 10_000
BATCH_BYTES = 8 << 20


def read_segment(store: Store, place: LogFolder, segment: Segment) -> bytes:
    return store.read(f"{place.folder.rstrip('/')}/{segment.name}")


def raise_damage(found: Walk, place: LogFolder, segment: Segment) -> None:
    """Raises DamagedLog for what a table of the log's records cannot pass over in silence."""
    bad = next((mark for mark in found.marks if mark.kind in (DAMAGED, MISPLACED, UNREADABLE)), None)
    if bad is not None:
        file = place.file(segment.name)
        raise DamagedLog(
            f"{file}, offset {bad.offset}: {bad.detail}; `twinlog audit run log-audit` reports every fault of the log",
            file=file, offset=bad.offset,
        )


def records(
    data: bytes, found: Walk, segment: Segment, site: str, schema: StructType, ranges: Ranges
) -> Iterator[pa.RecordBatch]:
    """Batches of the wanted records. Raises LogError for a payload that cannot be decoded."""
    taken: list[TakenFrame] = []
    count = size = 0
    epochs, firsts = found.frames["epoch"].tolist(), found.frames["seq"].tolist()
    for offset, epoch, first, last in zip(found.offsets.tolist(), epochs, firsts, found.last_seqs.tolist(), strict=True):
        if not ranges.epoch.has(epoch) or not ranges.seq.meets(first, last):
            continue
        frame = found.frame_at(data, offset)
        places = _wanted(frame.records, ranges.table)
        if places == []:
            continue
        taken.append(TakenFrame(frame, offset, places))
        count += frame.count
        size += len(frame.data)
        if count >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield record_batch(taken, segment, site, schema)
            taken, count, size = [], 0, 0
    if taken:
        yield record_batch(taken, segment, site, schema)


def _wanted(found: Sequence[Any], table: ColumnRange) -> list[int] | None:
    """Places of the records of wanted tables; None: all of them."""
    if table == ColumnRange():
        return None
    return [place for place, record in enumerate(found) if table.has(record.table)]
