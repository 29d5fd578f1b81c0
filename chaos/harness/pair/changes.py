"""The coordinator's table of changes, read past all links: in a file of SQLite, or in a PostgreSQL of its own.

What always holds: it is read, and never written; what cannot be read now raises Unavailable, and may be read later; the changes
of a pair come in the order in which they were made, for each one holds the pair's row until it is done.
Source: switchover/register/sql.py.
"""

from __future__ import annotations

import os
import socket
import sqlite3
from abc import abstractmethod
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psycopg

from gateway.demo.files import PAIR
from switchover.register.port import PairState
from twinlog.errors import Unavailable, words

CONNECT_S = 2
_NEWEST = "select max(id) from {table} where pair = {mark}"
_SINCE = "select id, value from {table} where pair = {mark} and id > {mark} order by id"
_decode = msgspec.json.Decoder(PairState).decode
Change = tuple[int, PairState]


class Changes(Protocol):
    @abstractmethod
    def since(self, last_id: int) -> list[Change]:
        """Returns the changes above `last_id`, by their ids; where the table went back, its newest one. Raises Unavailable."""

    @abstractmethod
    def give_up(self) -> None:
        """A call that is under way in another thread ends, and each later one raises."""

    @abstractmethod
    def close(self) -> None:
        """Nothing is called any more."""


class SqliteChanges(Changes):
    """In the file `database`. The first gateway makes it, and at times one of them locks it."""

    def __init__(self, database: Path) -> None:
        self._database = database

    def since(self, last_id: int) -> list[Change]:
        try:
            with closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as connection:
                return _since(connection, "history", "?", last_id)
        except sqlite3.OperationalError as error:
            if any(told in str(error) for told in ("no such table", "unable to open", "locked")):
                raise Unavailable(words(error)) from error
            raise

    def give_up(self) -> None:
        """There is nothing to end: SQLite answers at once."""

    def close(self) -> None:
        """There is nothing to close: each look opens the file anew."""


class PostgresChanges(Changes):
    """In the database at `url`, an address of SQLAlchemy, which is there when its server is. That one comes and goes."""

    def __init__(self, url: Callable[[], str]) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None
        self._given_up = False

    def since(self, last_id: int) -> list[Change]:
        if self._given_up:
            raise Unavailable("nobody waits for it any more")
        try:
            if self._connection is None:
                address = self._url().replace("+psycopg", "")
                self._connection = psycopg.connect(address, autocommit=True, connect_timeout=CONNECT_S)
            return _since(self._connection, "twinlog_coordinator.history", "%s", last_id)
        except psycopg.errors.UndefinedTable as error:  # the first gateway is still to make it
            raise Unavailable(words(error)) from error
        except psycopg.OperationalError as error:
            self.close()
            raise Unavailable(words(error)) from error

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def give_up(self) -> None:
        """A server that is stopped does not answer, and nobody waits for it: its connection is shut down."""
        self._given_up, connection = True, self._connection
        with suppress(psycopg.Error, OSError):
            if connection is not None:
                with socket.socket(fileno=os.dup(connection.fileno())) as shared:
                    shared.shutdown(socket.SHUT_RDWR)


def _since(connection: Any, table: str, mark: str, last_id: int) -> list[Change]:
    newest = connection.execute(_NEWEST.format(table=table, mark=mark), (PAIR,)).fetchone()[0]
    since = last_id if newest is None or newest >= last_id else newest - 1  # it went back
    rows = connection.execute(_SINCE.format(table=table, mark=mark), (PAIR, since)).fetchall()
    return [(number, _decode(value)) for number, value in rows]
