"""The database of this room: a SQLite file, or PostgreSQL by its URL, that loses nothing which was committed.

What always holds: a committed transaction is on the disk (WAL with synchronous=FULL; synchronous_commit=on); a busy file is
waited for, not failed; on PostgreSQL the tables lie in a schema of their own, so that coordinator, journal and a site's
rows may share a database; a connection that broke while it was idle is made anew before it is used; nothing is read from or
kept in a SQLite file that is not at its place any more, which would be one register for each process that has it open;
blocking calls run one after the other on a thread of their own, and every call ends by its deadline.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection, MetaData, Table, create_engine, event, inspect, text
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError
from sqlalchemy.pool import QueuePool
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateSchema, CreateTable
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from storage.disk.workers import Worker
from twinlog.errors import ConfigError, Unavailable

T = TypeVar("T")


class AlreadyThere(Exception):
    """A row was to be inserted, and its key is taken."""


class Database:
    """One connection, made on first use, and the tables of `metadata`. `name` is what messages call it."""

    def __init__(self, url: str, name: str, metadata: MetaData, deadline_s: float) -> None:
        engine = create_engine(url, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_pre_ping=True)
        self._is_sqlite = engine.dialect.name == "sqlite"
        event.listen(engine, "connect", (_sqlite_settings if self._is_sqlite else _server_settings)(deadline_s))
        self._schema = None if self._is_sqlite else f"twinlog_{name}"
        self._engine = engine.execution_options(schema_translate_map={None: self._schema})
        self._path = engine.url.database if self._is_sqlite else None
        self._file: tuple[int, int] | None = None  # what the open connection reads and writes
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
        """Ends the connection and the thread; where a database hangs, both end when it answers, and nobody waits for that."""
        disposed = self._worker.submit(self._engine.dispose)
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._worker.close()
                await disposed
        except TimeoutError:
            return

    def _transact(self, call: Callable[[Connection], T]) -> T:
        if self._file is not None and self._file != self._file_there():
            self._engine.dispose()
            self._file, self._has_tables = None, False
        try:
            with self._engine.begin() as connection:
                self._file = self._file or self._file_there()
                if not self._has_tables:
                    self._make_tables(connection)
                result = call(connection)
            self._has_tables = True
        except IntegrityError as error:
            raise AlreadyThere from error
        except SQLAlchemyError as error:
            said = error.orig if isinstance(error, DBAPIError) else error  # without the statement
            raise self._silent(str(said)) from error
        if self._file != self._file_there():
            raise self._silent("its file was replaced in this moment")
        return result

    def _file_there(self) -> tuple[int, int] | None:
        """Returns which file is at its place; None: it is no file, or there is none."""
        try:
            seen = os.stat(self._path) if self._path else None
        except OSError:
            return None
        return None if seen is None else (seen.st_dev, seen.st_ino)

    def _make_tables(self, connection: Connection) -> None:
        """Makes the tables that are missing. On a server two sites may do so at the same time, and one waits for the other."""
        if self._schema is not None:
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": self._schema})
            if not inspect(connection).has_schema(self._schema):  # who may not make one may use one that is there
                connection.execute(CreateSchema(self._schema))
        for table in self._metadata.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
            self._add_columns(connection, table)
            self._add_indexes(connection, table)

    def _add_columns(self, connection: Connection, table: Table) -> None:
        """A database of an earlier release gets the columns that it lacks and that may be empty. Raises ConfigError."""
        there = {column["name"] for column in inspect(connection).get_columns(table.name, schema=self._schema)}
        quoted, dialect = connection.dialect.identifier_preparer.quote, connection.dialect
        place = quoted(table.name) if self._schema is None else f"{quoted(self._schema)}.{quoted(table.name)}"
        for column in table.columns:
            if column.name in there:
                continue
            if not column.nullable:
                raise ConfigError(
                    f"the {self._name} at {self._url} is of another release: its table {table.name} has no column "
                    f"{column.name}; stop the site, move that database away, and start the site: it makes a new one"
                )
            connection.execute(text(f"ALTER TABLE {place} ADD COLUMN {CreateColumn(column).compile(dialect=dialect)}"))

    def _add_indexes(self, connection: Connection, table: Table) -> None:
        there = {index["name"] for index in inspect(connection).get_indexes(table.name, schema=self._schema)}
        for index in table.indexes:
            if index.name not in there:
                connection.execute(CreateIndex(index))

    @property
    def _url(self) -> str:
        return self._engine.url.render_as_string(hide_password=True)

    def _silent(self, why: str) -> Unavailable:
        check = (
            f"check that the database is up, can be reached from here, takes writes, and knows the user and password of"
            f" {self._name}.url"
        )
        if "certificate" in why.lower():
            check = f"in {self._name}.url, sslrootcert names the server's CA, and the host is one that its certificate names"
        return Unavailable(f"the {self._name} at {self._url} does not answer: {why}; {check}", waiting_for=self._name)


def _server_settings(deadline_s: float) -> Callable[[Any, Any], None]:
    def apply(connection: Any, _record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = on")
            cursor.execute(f"SET statement_timeout = {round(deadline_s * 1000)}")  # else those behind would wait too
        connection.commit()

    return apply


def _retry_while_locked(timeout_s: float, change: Callable[[], object]) -> None:
    """SQLite does not wait by itself where two make the same new file a journaled one: waiting could be for ever there."""
    Retrying(
        retry=retry_if_exception_type(sqlite3.OperationalError), stop=stop_after_delay(timeout_s),
        wait=wait_random(0.001, 0.02), reraise=True,
    )(change)


def _sqlite_settings(busy_timeout_s: float) -> Callable[[Any, Any], None]:
    def apply(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout={round(busy_timeout_s * 1000)}")  # first: the next one may have to wait
        _retry_while_locked(busy_timeout_s, lambda: cursor.execute("PRAGMA journal_mode=WAL"))
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.close()

    return apply
