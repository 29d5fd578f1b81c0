"""The tables of an attached run: named so that nobody else's are touched, read back from each site, and dropped at the end.

What always holds: a site is asked for its own rows, by the API alone and at one moment of that site; a standby by stale reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec

from chaos.asking import shown
from chaos.history.history import DumpedRow, TableUse
from twinlog import AsyncClient
from twinlog.calls import MSGPACK, Page
from twinlog.errors import NotFound, TwinlogError
from twinlog.flow import Call

PAGE_ROWS = 500
TABLE_S = 60.0  # to read one from one site, or to drop it


async def read_site(pair: AsyncClient, site: str, prefix: str, uses: Sequence[TableUse]) -> dict[str, dict[str, DumpedRow]]:
    """The rows of the run's tables as `site` itself holds them: name without `prefix` -> key -> row. Raises TwinlogError."""
    return {use.name: await _read_table(pair, site, prefix + use.name) for use in uses}


async def _read_table(pair: AsyncClient, site: str, name: str) -> dict[str, DumpedRow]:
    rows: dict[str, DumpedRow] = {}
    asked = {"limit": str(PAGE_ROWS), "snapshot": "true", "stale": "true"}
    while True:
        path = f"/v1/tables/{name}/rows?{urlencode(asked)}"
        reply = await pair.send(Call("GET", path, {"Accept": MSGPACK}, site=site), deadline_s=TABLE_S)
        page = msgspec.msgpack.decode(reply.content, type=Page)
        for row, version in zip(page.rows, page.versions, strict=True):
            found = shown(row, version)
            rows[found.key] = DumpedRow(found.row, found.version)
        if page.next_page_token is None:
            return rows
        asked["page_token"] = page.next_page_token


async def drop(pair: AsyncClient, prefix: str, uses: Sequence[TableUse]) -> list[str]:
    """Drops the run's tables. The names of those that may still be there, each with why."""
    async def dropped(name: str) -> str:
        try:
            async with asyncio.timeout(TABLE_S):
                await pair.drop_table(name, confirm=name)
        except NotFound:
            return ""
        except (TwinlogError, TimeoutError) as error:
            return f"{name} ({error or 'no answer in time'})"
        return ""

    return list(filter(None, [await dropped(prefix + use.name) for use in uses]))
