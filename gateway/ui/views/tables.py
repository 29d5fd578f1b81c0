"""The view *Tables*: those that the caller may know, in pages, and the rows of one, in key order: reads only.

What always holds: a name, key or value is data, and shown as such; a long value is cut and says so; a standby's rows are called
stale, with their age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.access.caller import Caller
from gateway.access.grants import READER, knowing
from gateway.api.api_context import ApiContext
from gateway.api.row_calls import moment_of_read
from gateway.api.scans import ScanParameters, plan_scan, read_page
from gateway.audits.notes import AuditRun
from gateway.table_figures.documents import UNKNOWN_SIZE, OtherTableDocument, OtherTables, TableSizeDocument
from gateway.ui import words
from gateway.ui.views import table_size
from storage.rows.codec import RowCodec
from storage.rows.schema import TableSchema
from twinlog.errors import InvalidInput, TwinlogError
from twinlog.key_text import part_to_path

TABLES_SHOWN = 200
ROWS_SHOWN = 50
CELL_MAX = 200


@dataclass(frozen=True, slots=True)
class TableRow:
    """A line of the list. `other`: how its schema stands at the other site; `level`: of the mark before it, empty for none."""

    name: str
    path: str
    rows: str
    bytes: str
    revision: int
    other: str
    level: str
    compared: str
    key: str
    columns: str
    history: str


@dataclass(frozen=True, slots=True)
class TablesFound:
    """`found` of `known` tables fit `wanted`; shown are `tables`, those of page `page` of `pages`."""

    tables: Sequence[TableSchema]
    known: int
    found: int
    wanted: str
    page: int
    pages: int


def tables_found(every: Sequence[TableSchema], caller: Caller, wanted: str, page: int) -> TablesFound:
    knows = knowing(caller.grants)
    known = [table for table in every if knows(table.name)]
    found = [table for table in known if wanted.lower() in table.name.lower()] if wanted else known
    pages = max(1, -(-len(found) // TABLES_SHOWN))
    page = min(max(1, page), pages)
    return TablesFound(
        found[(page - 1) * TABLES_SHOWN: page * TABLES_SHOWN], len(known), len(found), wanted, page, pages
    )


def table_rows(
    tables: Sequence[TableSchema], caller: Caller, sizes: Mapping[int, TableSizeDocument], other: OtherTables,
    compared: AuditRun | None,
) -> list[TableRow]:
    """`compared`: the last comparison of both sites, where the caller may see it."""
    names = frozenset(compared.tables) if compared is not None else frozenset()
    return [
        _row(
            table, sizes.get(table.id, UNKNOWN_SIZE) if table_size.is_granted(caller, table.name) else None, other.of(table),
            compared if table.name in names else None,
        ) for table in tables
    ]


def _row(table: TableSchema, size: TableSizeDocument | None, there: OtherTableDocument, compared: AuditRun | None) -> TableRow:
    names = [f"{column.name} {column.type}" for column in table.value_columns]
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    rows, content = (table_size.NOT_GRANTED, "") if size is None else (table_size.rows(size), table_size.content(size))
    return TableRow(
        table.name, table_path(table.name), rows, content, table.revision,
        table_size.standing(there), table_size.level(there), table_size.comparison(compared),
        ", ".join(f"{one.name} {one.type}" for one in table.key_columns), ", ".join(names[:6]) + more,
        words.duration(float(table.history_s)) if table.history_s else "none",
    )


def table_path(name: str) -> str:
    return f"/ui/tables/{quote(name, safe='')}"


@dataclass(frozen=True, slots=True)
class RowsShown:
    """`next_link`: the next page; `stale`: how old the rows are, at most; empty: they are the active's. `problem`: why there is
    nothing to show."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    versions: tuple[str, ...]
    next_token: str
    stale: str
    problem: str


def start_of(typed: str, key: str) -> str:
    """Returns the key to begin with as a path has it: what somebody typed, or else `key`, which is written so already."""
    return ",".join(part_to_path(part.strip()) for part in typed.split(",")) if typed else key


async def rows_shown(context: ApiContext, caller: Caller, name: str, start: str, token: str) -> RowsShown | None:
    """Returns the rows from key `start` on, which is as a path has it; None where the caller may not read them."""
    if not caller.grants.on(READER, name):
        return None
    codec = context.codec(name)
    columns = _columns(codec)
    try:
        moment = moment_of_read(context)
        scan = plan_scan(codec, ScanParameters(
            start=start or None, limit=ROWS_SHOWN, page_token=token or None,
        ), moment)
        found, following = await read_page(context, codec, scan)
        codec = context.codec_behind(codec)
    except TwinlogError as error:
        if isinstance(error, InvalidInput) and not start and not token:
            raise
        return RowsShown(columns, (), (), "", "", error.message)
    columns, decode = _columns(codec), codec.decoder(None, int64_text=True)
    rows = [decode(row.key, row.value) for row in found]
    stale = ""
    if moment is not None:
        vouched_s = context.service.cluster.vouched_s()
        stale = words.UNKNOWN if vouched_s is None else words.duration(context.service.cluster.age_s(vouched_s))
    return RowsShown(
        columns, tuple(tuple(cell(row.get(column)) for column in columns) for row in rows),
        tuple(words.moment(row.version >> 16) for row in found), following or "", stale, "",
    )


def _columns(codec: RowCodec) -> tuple[str, ...]:
    return (*(one.name for one in codec.schema.key_columns), *(one.name for one in codec.schema.value_columns))


def cell(value: Any) -> str:
    """A value as text; a long one is cut."""
    text = value if isinstance(value, str) else "null" if value is None else msgspec.json.encode(value, enc_hook=str).decode()
    return text if len(text) <= CELL_MAX else f"{text[:CELL_MAX]}… ({len(text):,} characters)"
