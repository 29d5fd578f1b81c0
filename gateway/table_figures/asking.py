"""Asks both sites for the figures of a table, for the API.

What always holds: what one site does not say keeps nothing back of the other; each wait has its end (gateway/site/looks.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gateway.service.port import SiteService
from gateway.table_figures.documents import UNKNOWN_SIZE, OtherTables, TableFiguresDocument, TableSizeDocument
from storage.rows.schema import TableSchema
from switchover.monitor.findings import OTHER
from twinlog.errors import TwinlogError


async def other_tables(service: SiteService, table: int) -> OtherTables:
    """Asks what the other site has of one table."""
    try:
        return OtherTables(OTHER[service.site], await service.looks.other_tables(table))
    except TwinlogError as error:
        return OtherTables(OTHER[service.site], None, error.message)


async def figures_of(service: SiteService, table: TableSchema) -> TableFiguresDocument:
    sizes, other = await asyncio.gather(service.looks.table_sizes([table.id]), other_tables(service, table.id))
    return figures_in(service, table, sizes, other)


def figures_in(
    service: SiteService, table: TableSchema, sizes: Mapping[int, TableSizeDocument], other: OtherTables
) -> TableFiguresDocument:
    """The figures of a table, of what both sites said."""
    return TableFiguresDocument(
        table.name, service.site, table.revision, sizes.get(table.id, UNKNOWN_SIZE), other.of(table)
    )
