"""One consistent view of an SQL database: a read transaction of its own, open until it is closed.

What always holds: `seq` and everything read are of one moment. While it is open PostgreSQL keeps the row versions of that
moment, and locks the tables that were read against changes of their schema: the engine ends it before such a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from storage.disk.workers import Worker
from storage.engine import EngineState, RequestOutcome, StoredRow
from storage.engines.meaning import snapshot_ended
from storage.engines.sql import reading
from storage.engines.sql.opening import sql_errors
from storage.engines.sql.tables import TablePlace

T = TypeVar("T")


class SqlSnapshot:
    """Made on the reading thread, while nothing is being applied; read there only."""

    def __init__(
        self, connection: Connection, places: Mapping[int, TablePlace], reader: Worker, open_ones: set[SqlSnapshot]
    ) -> None:
        self.seq = reading.applied_seq(connection)  # this first read is the moment
        self._connection: Connection | None = connection
        self._places, self._reader, self._open_ones = places, reader, open_ones

    async def state(self) -> EngineState:
        return await self._read(lambda one: reading.load(one)[0])

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, bytes_max: int | None = None
    ) -> Sequence[StoredRow]:
        place = self._places.get(table)
        return await self._read(lambda one: reading.rows(one, place, start, end, reverse, limit, bytes_max))

    async def request_outcomes(self, after: str | None, *, limit: int) -> Sequence[tuple[str, RequestOutcome]]:
        return await self._read(lambda one: reading.outcomes(one, after, limit))

    async def _read(self, read: Callable[[Connection], T]) -> T:
        connection = self._connection
        if connection is None:
            raise snapshot_ended()

        def work() -> T:
            with sql_errors("the snapshot ended: begin the read again"):
                return read(connection)

        return await self._reader.read(work)

    def close(self) -> None:
        """Reads that have begun come to their end. Closing twice is fine."""
        connection, self._connection = self._connection, None
        self._open_ones.discard(self)
        if connection is not None:
            self._reader.submit(lambda: _close(connection))


def _close(connection: Connection) -> None:
    with suppress(SQLAlchemyError):
        connection.close()
