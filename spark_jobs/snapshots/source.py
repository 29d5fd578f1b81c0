"""The views `rows` and `digests` of the data source: a kept snapshot of a site's storage, read in parallel by key.

| option | meaning |
|---|---|
| place | where the snapshot is: rocksdb:FOLDER, postgresql:SNAPSHOT, sqlite:FILE |
| url | SQLAlchemy address of the database, for PostgreSQL |
| ranges | JSON of snapshot.KeyRange: exactly these are read |
| tables | without `ranges`: names, separated by commas; absent: every table |
| cut | of `digests`: `true` cuts what is read into ranges of some thousand rows, and answers a row for each |
| partitions | at most so many tasks (default 8) |

Columns: below; `table` is the table's id, `row` the stored bytes; `end` is null at the end of a table, and the ranges of a
table follow each other in key order without a gap. Everything is read as Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StructField, StructType

from spark_jobs.snapshots.digests import Digest, cut_digests, digest_of
from spark_jobs.snapshots.dividing import packed, pieces_of
from spark_jobs.snapshots.snapshot import KeyRange, SnapshotReader, decode_ranges, open_snapshot
from storage.engines.entries.write import VERSION_BYTES
from twinlog.errors import InvalidInput

PARTITIONS = 8
BATCH_ROWS = 4096
BATCH_BYTES = 8 << 20

DIGESTS = StructType([
    StructField("table", LongType(), False), StructField("start", BinaryType(), False), StructField("end", BinaryType()),
    StructField("rows", LongType(), False), StructField("bytes", LongType(), False),
    StructField("digest", BinaryType(), False),
])
ROWS = StructType([
    StructField("table", LongType(), False), StructField("range", IntegerType(), False),
    StructField("key", BinaryType(), False), StructField("version", LongType(), False),
    StructField("row", BinaryType(), False),
])
_ARROW: dict[DataType, pa.DataType] = {LongType(): pa.int64(), IntegerType(): pa.int32(), BinaryType(): pa.binary()}


@dataclass(frozen=True)
class Part(InputPartition):
    """The ranges that one task reads."""

    ranges: tuple[KeyRange, ...]


@dataclass(frozen=True)
class Settings:
    """A view's options."""

    place: str
    url: str = field(repr=False)
    ranges: tuple[KeyRange, ...] | None
    tables: tuple[str, ...] | None
    cut: bool
    partitions: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Raises InvalidInput."""
        if "place" not in options:
            raise InvalidInput("the option place is missing: it says where the snapshot is")
        given = options.get("ranges")
        tables = options.get("tables")
        return cls(
            options["place"], options.get("url", ""), None if given is None else tuple(decode_ranges(given)),
            None if tables is None else tuple(tables.split(",")), options.get("cut") == "true",
            int(options.get("partitions", PARTITIONS)),
        )


class _Reader(DataSourceReader):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> Sequence[InputPartition]:
        ranges = self._settings.ranges
        parts = packed(self._pieces() if ranges is None else ranges, self._settings.partitions)
        return [Part(tuple(part)) for part in parts] or [Part(())]  # Spark has no scan without a task

    def _pieces(self) -> list[KeyRange]:
        with open_snapshot(self._settings.place, self._settings.url) as snapshot:
            catalog, names = snapshot.catalog(), self._settings.tables
            return pieces_of(snapshot, catalog.tables if names is None else [catalog.named(name).id for name in names])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        if not partition.ranges:
            return
        with open_snapshot(self._settings.place, self._settings.url) as snapshot:
            yield from self._batches(snapshot, partition.ranges)

    def _batches(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class DigestsReader(_Reader):
    def _batches(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
        found = self._digests(snapshot, ranges)
        while batch := list(islice(found, BATCH_ROWS)):
            yield _batch(zip(*((table, *digest) for table, digest in batch), strict=True), DIGESTS)

    def _digests(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[tuple[int, Digest]]:
        for one in ranges:
            rows = snapshot.walk(one.table, one.start, one.end)
            digests = cut_digests(rows, one.start, one.end) if self._settings.cut else [digest_of(rows, one.start, one.end)]
            for digest in digests:
                yield one.table, digest


class RowsReader(_Reader):
    def _batches(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
        for one in ranges:
            rows = snapshot.walk(one.table, one.start, one.end)
            while batch := _some(rows):
                keys, stored = zip(*batch, strict=True)
                versions = [int.from_bytes(packed_row[:VERSION_BYTES], "big") for packed_row in stored]
                values = [packed_row[VERSION_BYTES:] for packed_row in stored]
                yield _batch([[one.table] * len(keys), [one.number] * len(keys), keys, versions, values], ROWS)


def _some(rows: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The next of `rows`: BATCH_ROWS, or up to the one that brings them to BATCH_BYTES."""
    found: list[tuple[bytes, bytes]] = []
    size = 0
    for key, stored in islice(rows, BATCH_ROWS):
        found.append((key, stored))
        size += len(key) + len(stored)
        if size >= BATCH_BYTES:
            break
    return found


def _batch(columns: Iterable[Sequence[object]], wanted: StructType) -> pa.RecordBatch:
    """Integers of 64 bits without a sign, as ids and versions may be, become those with one."""
    schema = pa.schema([pa.field(column.name, _ARROW[column.dataType], column.nullable) for column in wanted])
    arrays = []
    for values, kind in zip(columns, schema.types, strict=True):
        unsigned = kind == pa.int64()
        arrays.append(pa.array(values, pa.uint64()).view(kind) if unsigned else pa.array(values, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class DigestsView:
    """As source.py asks for it."""

    def schema(self) -> StructType:
        return DIGESTS

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
        return DigestsReader(Settings.of(options))


class RowsView:
    """As source.py asks for it."""

    def schema(self) -> StructType:
        return ROWS

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
        return RowsReader(Settings.of(options))
