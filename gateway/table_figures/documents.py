"""The documents of what is known of a table beside its rows: how much it holds, and how it stands at the other site.

What always holds: a number that was not counted is called an estimate, and one that nobody knows is null. All tables share one
log, so how far the standby is behind is a figure of the site, never of a table; of a table it is known at which revision
of its schema each site is.
This module is pure.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from gateway.service.documents import Seconds
from storage.engine import TableSize
from storage.rows.schema import TableSchema

RowsAre = Literal["counted", "estimated", "unknown"]
Standing = Annotated[Literal["same", "behind", "ahead", "absent", "loading", "unknown"], Meta(
    description="the schema at the other site, seen from the asked one: the same revision, an older or newer one, no such "
    "table yet (or not any more), its base data is not whole, or not known"
)]


class TableSizeDocument(Struct, frozen=True):
    """The size of a table at a site, without old versions of rows. `bytes`: of keys and values, before any compression;
    `disk_bytes`: what the table takes in its database with its indexes, null where the database does not say; `age_s`: how old
    this is."""

    rows: Annotated[int, Meta(ge=0)] | None
    rows_are: RowsAre
    bytes: Annotated[int, Meta(ge=0)] | None
    disk_bytes: Annotated[int, Meta(ge=0)] | None
    age_s: Seconds | None


UNKNOWN_SIZE = TableSizeDocument(None, "unknown", None, None, None)


class OtherTableDocument(Struct, frozen=True):
    """The table at the other site. `revision` null: none is known there; `error`: why this site does not know, or why
    the database there does not take the newest schema."""

    site: str
    schema: Standing
    revision: int | None = None
    size: TableSizeDocument = UNKNOWN_SIZE
    error: str | None = None


class TableFiguresDocument(Struct, frozen=True):
    """All that the asked site knows of a table beside its rows. `revision`: of the schema there; it grows with each change."""

    name: str
    site: str
    revision: int
    size: TableSizeDocument
    other: OtherTableDocument


class TableHeld(Struct, frozen=True):
    """A table as a site has it now. `size`: only where one table was asked for, and it is known; `refused`: why its database
    does not take the next change of the schema."""

    id: int
    revision: int
    size: TableSizeDocument | None = None
    refused: str | None = None


class TablesHeld(Struct, frozen=True):
    """The tables of a site, without those that were dropped. `is_loading`: its base data is not whole; `has_more`: not all are
    here."""

    site: str
    is_loading: bool
    has_more: bool
    tables: list[TableHeld]


def size_document(size: TableSize, age_s: float) -> TableSizeDocument:
    rows_are: RowsAre = "unknown" if size.rows is None else "counted" if size.is_counted else "estimated"
    return TableSizeDocument(size.rows, rows_are, size.bytes, size.disk_bytes, round(max(0.0, age_s), 3))


class OtherTables:
    """The tables of the `other` site, as this one knows them. `held`: what that one answered last, `age_s` ago; `error`: why it
    did not answer since."""

    def __init__(self, other: str, held: TablesHeld | None, error: str = "", age_s: float = 0.0) -> None:
        self.site, self.error, self.age_s = other, error, max(0.0, age_s)
        self._held = held
        self._by_id = {} if held is None else {table.id: table for table in held.tables}

    @property
    def is_known(self) -> bool:
        return self._held is not None

    @property
    def is_loading(self) -> bool:
        return self._held is not None and self._held.is_loading

    def of(self, table: TableSchema) -> OtherTableDocument:
        """Says how a table of this site stands there."""
        held, found = self._held, self._by_id.get(table.id)
        if held is None:
            return OtherTableDocument(self.site, "unknown", error=self.error)
        if found is None:
            return OtherTableDocument(self.site, "loading" if held.is_loading else "unknown" if held.has_more else "absent")
        standing: Standing = "loading" if held.is_loading else _standing(table.revision, found.revision)
        return OtherTableDocument(self.site, standing, found.revision, self._now(found.size or UNKNOWN_SIZE), found.refused)

    def _now(self, size: TableSizeDocument) -> TableSizeDocument:
        return size if size.age_s is None else replace(size, age_s=round(size.age_s + self.age_s, 3))


def _standing(own: int, other: int) -> Standing:
    return "same" if own == other else "behind" if other < own else "ahead"
