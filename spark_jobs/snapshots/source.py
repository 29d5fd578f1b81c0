"""The views `rows` and `digests` of the data source: a kept snapshot of a site's storage, read in parallel by key.

| option | meaning |
|---|---|
| place | where the snapshot is: rocksdb:FOLDER, postgresql:SNAPSHOT, sqlite:FILE |
| url | SQLAlchemy address of the database, for PostgreSQL |
| ranges | JSON of snapshot.KeyRange: exactly these are read |
| tables | without `ranges`: names, separated by commas; absent: every table |
| cut | of `digests`: `true` cuts what is read into ranges of some thousand rows, and answers a row for each |
| partitions | at most so many tasks (default 8) |

Columns: below; `table` is the table's id, `range` the number of the KeyRange (0 without the option `ranges`), `row` the stored
bytes; `end` is null at the end of a table, and the ranges of a table follow each other in key order without a gap. Only columns
of the schema are made (give the read a schema of fewer columns). Everything is read as Arrow batches.
What always holds: where filters are pushed (reading.py), `rows` reads only the tables and keys that they may want, and applies
every comparison itself: the physical plan shows these, and Spark does not apply them again. For `digests` only filters on the
table spare work: a digest is over all rows of its range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow as pa  # type: ignore[import-untyped]
from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import BinaryType, DataType, IntegerType, LongType, StructField, StructType

from spark_jobs.asked import ColumnRange, can_keep, check_columns, column_of, kept, pushes
from spark_jobs.snapshots.digests import Digest, cut_digests, digest_of
from spark_jobs.snapshots.dividing import narrowed, packed, pieces_of
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
    """`columns`: the schema of the read, a part of the view's."""

    def __init__(self, columns: StructType, options: Mapping[str, str]) -> None:
        self._settings, self._columns, self._pushes = Settings.of(options), columns, pushes(options)
        self._tables, self._keys = ColumnRange(), ColumnRange()  # that are wanted

    def partitions(self) -> Sequence[InputPartition]:
        parts = packed(self._wanted(), self._settings.partitions)
        return [Part(tuple(part)) for part in parts] or [Part(())]  # Spark has no scan without a task

    def _wanted(self) -> list[KeyRange]:
        if self._settings.ranges is not None:
            return narrowed((one for one in self._settings.ranges if self._tables.has(_signed(one.table))), self._keys)
        with open_snapshot(self._settings.place, self._settings.url) as snapshot:
            catalog, names = snapshot.catalog(), self._settings.tables
            tables = catalog.tables if names is None else [catalog.named(name).id for name in names]
            pieces = pieces_of(snapshot, [table for table in tables if self._tables.has(_signed(table))], self._keys)
        return [replace(piece, number=0) for piece in pieces]  # nobody gave ranges: how a table is cut is nobody's matter

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        if not partition.ranges:
            return
        with open_snapshot(self._settings.place, self._settings.url) as snapshot:
            yield from self._batches(snapshot, partition.ranges)

    def _batches(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class DigestsReader(_Reader):
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """A filter on the table spares work; Spark applies all filters."""
        for each in filters:
            if self._pushes and column_of(each) == "table":
                self._tables.narrow_by(each)
        return filters

    def _batches(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
        found = self._digests(snapshot, ranges)
        while batch := list(islice(found, BATCH_ROWS)):
            values = zip(*((table, *digest) for table, digest in batch), strict=True)
            yield _batch(dict(zip(DIGESTS.names, values, strict=True)), self._columns)

    def _digests(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[tuple[int, Digest]]:
        for one in ranges:
            rows = snapshot.walk(one.table, one.start, one.end)
            digests = cut_digests(rows, one.start, one.end) if self._settings.cut else [digest_of(rows, one.start, one.end)]
            for digest in digests:
                yield one.table, digest


Found = tuple[KeyRange, bytes, bytes]  # a row: the range that it was found in, its key, and its packed value
_VALUES: dict[str, Callable[[Sequence[Found]], list[object]]] = {  # of a column of ROWS
    "table": lambda rows: [one.table for one, _, _ in rows],
    "range": lambda rows: [one.number for one, _, _ in rows],
    "key": lambda rows: [key for _, key, _ in rows],
    "version": lambda rows: [int.from_bytes(stored[:VERSION_BYTES], "big") for _, _, stored in rows],
    "row": lambda rows: [stored[VERSION_BYTES:] for _, _, stored in rows],
}


class RowsReader(_Reader):
    def __init__(self, columns: StructType, options: Mapping[str, str]) -> None:
        super().__init__(columns, options)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Returns the filters that Spark must apply: those that are no comparison of a column with values."""
        self._filters = [each for each in filters if self._pushes and can_keep(each)]
        for each in self._filters:
            if column_of(each) == "key":
                self._keys.narrow_by(each)
            elif column_of(each) == "table":
                self._tables.narrow_by(each)
        return [each for each in filters if each not in self._filters]

    def _batches(self, snapshot: SnapshotReader, ranges: Sequence[KeyRange]) -> Iterator[pa.RecordBatch]:
        """HOT."""
        found: list[Found] = []
        size = 0
        for one in ranges:
            for key, stored in snapshot.walk(one.table, one.start, one.end):
                found.append((one, key, stored))
                size += len(key) + len(stored)
                if len(found) == BATCH_ROWS or size >= BATCH_BYTES:
                    yield self._batch(found)
                    found, size = [], 0
        if found:
            yield self._batch(found)

    def _batch(self, rows: Sequence[Found]) -> pa.RecordBatch:
        columns = {name: _VALUES[name](rows) for name in self._columns.names}
        return kept(_batch(columns, self._columns), self._filters)


def _signed(number: int) -> int:
    """An integer of 64 bits without a sign as the column that has one shows it."""
    return number - (1 << 64) if number >> 63 else number


def _batch(columns: Mapping[str, Sequence[object]], wanted: StructType) -> pa.RecordBatch:
    """The `wanted` of the columns. Integers of 64 bits without a sign, as ids and versions may be, become those with one."""
    schema = pa.schema([pa.field(column.name, _ARROW[column.dataType], column.nullable) for column in wanted])
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        unsigned = kind == pa.int64()
        arrays.append(pa.array(columns[name], pa.uint64()).view(kind) if unsigned else pa.array(columns[name], kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class DigestsView:
    """As source.py asks for it."""

    def schema(self) -> StructType:
        return DIGESTS

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
        check_columns(schema, DIGESTS)
        return DigestsReader(schema, options)


class RowsView:
    """As source.py asks for it."""

    def schema(self) -> StructType:
        return ROWS

    def reader(self, schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
        check_columns(schema, ROWS)
        return RowsReader(schema, options)
