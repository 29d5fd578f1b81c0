"""How this room keeps its tables: SQLite files that lose nothing which was committed, or any other database by its URL.

What always holds: a committed transaction is on the disk (WAL with synchronous=FULL); a busy file is waited for, not failed;
blocking calls run one after the other on a thread of their own, and every call ends by its deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, MetaData, create_engine, event
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateTable

from storage.errors import Unavailable
from storage.threads import Worker

T = TypeVar("T")


class AlreadyThere(Exception):
    """A row was to be inserted, and its key is taken."""


class Database:
    """One connection, made on first use, and the tables of `metadata`. `name` is what messages call it."""

    def __init__(self, url: str, name: str, metadata: MetaData, deadline_s: float) -> None:
        self._engine = create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=0)
        if self._engine.dialect.name == "sqlite":
            event.listen(self._engine, "connect", _sqlite_settings(deadline_s))
        self._name, self._metadata, self._deadline_s = name, metadata, deadline_s
        self._worker = Worker(name)
        self._has_tables = False

    async def run(self, call: Callable[[Connection], T]) -> T:
        """`call` in one transaction on the thread. One that its caller gave up in the queue is not made any more.

        Raises Unavailable, then the outcome of a change is unknown; and AlreadyThere.
        """
        given_up = False

        def blocking() -> T:
            if given_up:
                raise self._silent("the caller gave up")
            return self._transact(call)

        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._worker.submit(blocking)
        except TimeoutError:
            raise self._silent(f"no answer in {self._deadline_s} s") from None
        finally:
            given_up = True

    async def close(self) -> None:
        """Ends the connection and the thread; a database that hangs is left to itself after the deadline."""
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._worker.submit(self._engine.dispose)
                await self._worker.close()
        except TimeoutError:
            return

    def _transact(self, call: Callable[[Connection], T]) -> T:
        try:
            with self._engine.begin() as connection:
                if not self._has_tables:
                    for table in self._metadata.sorted_tables:
                        connection.execute(CreateTable(table, if_not_exists=True))
                result = call(connection)
            self._has_tables = True
            return result
        except IntegrityError as error:
            raise AlreadyThere from error
        except SQLAlchemyError as error:
            raise self._silent(str(error)) from error

    def _silent(self, why: str) -> Unavailable:
        url = self._engine.url.render_as_string(hide_password=True)
        return Unavailable(
            f"the {self._name} at {url} does not answer: {why}; check that the database is up and can be reached from here",
            waiting_for=self._name,
        )


def _sqlite_settings(busy_timeout_s: float) -> Callable[[Any, Any], None]:
    def apply(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={round(busy_timeout_s * 1000)}")  # first: the next one may have to wait
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    return apply
