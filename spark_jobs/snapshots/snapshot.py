"""A kept snapshot of a site's storage as an audit reads it: its place, its catalog, and its rows by key.

What always holds: every engine gives a row as the same bytes, the encoded key and `packed` (8 bytes of version, big endian,
then the stored value: storage/engines/entries/write.py), in the order of the keys; all that is read from one snapshot is of
one moment.
Which engine it is shows only in the place. Source: storage/engine.py, docs/decisions/2026-11-21-audits-at-a-barrier.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import msgspec

from storage.engine import TableSet
from storage.rows.schema import TableSchema, decode_schema
from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, NotFound, Refused

PLACES = "rocksdb:FOLDER, postgresql:SNAPSHOT or sqlite:FILE"


@dataclass(frozen=True, slots=True)
class SnapshotCatalog:
    """Up to where the snapshot is applied, and its tables by id."""

    seq: int
    epoch: int
    tables: Mapping[int, TableSchema]

    def named(self, name: str) -> TableSchema:
        """Raises NotFound."""
        for schema in self.tables.values():
            if schema.name == name:
                return schema
        known = ", ".join(sorted(schema.name for schema in self.tables.values())[:20])
        raise NotFound(f"the snapshot holds no table {name!r}; it holds {known or 'none'}")


class SnapshotReader(Protocol):
    """One kept snapshot, open. Not for two threads at once."""

    def catalog(self) -> SnapshotCatalog:
        """Raises Refused when the snapshot is of a site that was being loaded."""

    def walk(self, table: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """(key, packed) of the rows of `[start, end)` in key order; nothing of a table that is not there. One at a time."""

    def cuts(self, table: int, start: bytes, end: bytes | None, rows: int) -> list[bytes]:
        """Keys, ascending, inside `[start, end)`, that cut these rows into pieces of about `rows` rows; none for a few rows."""


class KeyRange(msgspec.Struct, frozen=True, array_like=True):
    """The keys `[start, end)` of a table; `end` None: to its end. `number` counts the table's ranges from 0, `weight` is about
    what reading it costs, in bytes."""

    table: int
    number: int
    start: bytes
    end: bytes | None
    weight: int


_decode_ranges = msgspec.json.Decoder(list[KeyRange]).decode


def decode_ranges(given: str) -> list[KeyRange]:
    """The inverse of `encode_ranges`. Raises InvalidInput."""
    return decoded(_decode_ranges, given, lambda what: InvalidInput(f"the option ranges cannot be read: {what}"))


def encode_ranges(ranges: Sequence[KeyRange]) -> str:
    """As an option of the data source."""
    return msgspec.json.encode(ranges).decode()


def open_snapshot(place: str, url: str) -> AbstractContextManager[SnapshotReader]:
    """The snapshot at `place` (KeptSnapshot.place); `url`: SQLAlchemy address of the database, for PostgreSQL.

    Raises InvalidInput for a place that is none, NotFound when the snapshot is gone, EngineFailed.
    """
    kind, _, target = place.partition(":")
    if kind == "memory":
        raise InvalidInput("the site keeps its rows in memory: no other process can read a snapshot of it")
    if not target or kind not in ("rocksdb", "postgresql", "sqlite"):
        raise InvalidInput(f"{place!r} is no place of a snapshot: it is {PLACES}")
    if kind == "rocksdb":
        from spark_jobs.snapshots.rocks import open_rocks

        return open_rocks(target)
    from spark_jobs.snapshots.sql import open_postgresql, open_sqlite

    return open_sqlite(target) if kind == "sqlite" else open_postgresql(target, url)


def catalog_of(seq: int, epoch: int, base: bytes | None, tables: TableSet) -> SnapshotCatalog:
    """From what an engine found in its snapshot. `base`: the progress of an unfinished base. Raises Refused."""
    if base is not None:
        raise Refused("the snapshot is of a site that is being loaded from its peer: wait until that is done, then audit again")
    return SnapshotCatalog(seq, epoch, {number: decode_schema(schema) for number, schema in tables.schemas().items()})
