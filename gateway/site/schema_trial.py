"""The trial of a schema change at both sites' engines, before it is logged: what a database refuses must not get into the log.

What always holds: a change that either engine refuses now is refused to the client with the database's words, and nothing is
logged. The other site's word is asked for once, within a deadline; a site that does not give it (it is down, cut off, busy or
loading base data) holds nothing up. Its engine may then refuse the change when it meets it: it says so, tries again and again,
and resumes once the database takes it.
Source: docs/decisions/2026-11-22-a-change-that-a-database-refuses.md.
"""

from __future__ import annotations

import structlog

from storage.engine import StorageEngine
from switchover.other_site import OtherSite
from twinlog.errors import EngineFailed, InvalidInput, TwinlogError, Unavailable

PREPARE_TIMEOUT_S = 3.0
log = structlog.get_logger("twinlog.tables")


class SchemaTrial:
    """`site` and `peer` are the names of the two sites, for what a client reads."""

    def __init__(self, engine: StorageEngine, other: OtherSite, *, site: str, peer: str) -> None:
        self._engine, self._other, self._site, self._peer = engine, other, site, peer

    async def check(self, name: str, table: int, schema: bytes | None) -> None:
        """Raises InvalidInput when an engine refuses the change of the table `name`, Unavailable if this site's cannot say."""
        try:
            await self._engine.prepare_schema(table, schema)
        except InvalidInput as error:
            raise _refused(name, self._site, error.message) from error
        except EngineFailed as error:  # its words may name addresses, which are the operators' affair
            log.warning("a change of a table cannot be tried", table=name, detail=error.message)
            raise Unavailable(
                f"the storage of site {self._site} cannot try this change of table {name!r} now, and nothing was logged: "
                "somebody may hold the table in an open transaction; try again",
                retry_after_s=1, table=name,
            ) from error
        problem = await self._ask_peer(name, table, schema)
        if problem:
            raise _refused(name, self._peer, problem)

    async def _ask_peer(self, name: str, table: int, schema: bytes | None) -> str:
        try:
            return (await self._other.prepare(table, schema, PREPARE_TIMEOUT_S)).refused
        except TwinlogError as error:
            log.warning(
                "a table is changed without the other site's word", table=name, peer=self._peer, code=error.code,
                detail=error.message,
            )
            return ""


def _refused(name: str, site: str, problem: str) -> InvalidInput:
    return InvalidInput(
        f"the storage of site {site} refuses this change of table {name!r}, and nothing was logged: {problem}",
        table=name, site=site,
    )
