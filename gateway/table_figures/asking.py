"""Asks both sites for the figures of a table: for the API, and for the operator's page.

What always holds: what one site does not say keeps nothing back of the other; each wait has its end (gateway/site/looks.py).
"""

from __future__ import annotations

import asyncio

from gateway.service.port import SiteService
from gateway.table_figures.documents import UNKNOWN_SIZE, OtherTables, TableFiguresDocument
from storage.rows.schema import TableSchema
from switchover.monitor.findings import OTHER
from twinlog.errors import TwinlogError


async def other_tables(service: SiteService, table: int | None = None) -> OtherTables:
    """Asks what the other site has of one table, or of all."""
    try:
        return OtherTables(OTHER[service.site], await service.looks.other_tables(table))
    except TwinlogError as error:
        return OtherTables(OTHER[service.site], error.message)


async def figures_of(service: SiteService, table: TableSchema) -> TableFiguresDocument:
    sizes, other = await asyncio.gather(service.looks.table_sizes([table.id]), other_tables(service, table.id))
    return TableFiguresDocument(
        table.name, service.site, table.revision, sizes.get(table.id, UNKNOWN_SIZE), other.of(table)
    )
