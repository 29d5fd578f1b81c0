"""Kept snapshots of an SQL database: PostgreSQL exports one of an open transaction, SQLite copies itself into a file. Blocking.

What always holds: a PostgreSQL snapshot is held by a connection of its own, which has read no table and so locks none; it ends
with that connection, and before a change of a schema, which older snapshots do not survive whole. A SQLite copy is a
database of its own, whole and on the disk. Source: storage/engine.py (`keep_snapshot`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psycopg
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from storage.engine import KeptSnapshot
from storage.engines.kept_snapshots import SnapshotFolder
from storage.engines.meaning import by_age
from storage.engines.sql.opening import sql_errors
from twinlog.errors import EngineFailed, words

_NO_TIMEOUTS = text(
    "SELECT set_config(name, '0', true) FROM pg_settings "
    "WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout', 'statement_timeout')"
)


class SqlSnapshots(Protocol):
    """All but `held` in a thread, one at a time, while nothing is being applied."""

    def held(self) -> list[KeptSnapshot]: ...
    def keep(self, name: str, seq: int, epoch: int, taken_ms: int) -> None: ...
    def release(self, name: str) -> None: ...
    def end_connections(self) -> None:
        """Before a change of a schema, and before the database is let go: what lives in a connection ends."""

    def pinned_bytes(self) -> int: ...


def snapshots_of(engine: Engine) -> SqlSnapshots:
    """Returns the kept snapshots of a database that is open."""
    if engine.dialect.name == "sqlite":
        assert engine.url.database is not None
        return _Copies(Path(engine.url.database))
    return _Exported(lambda: engine.connect().execution_options(isolation_level="REPEATABLE READ"))


class _Session(NamedTuple):
    kept: KeptSnapshot
    connection: Connection
    driver: psycopg.Connection[Any]

    def is_alive(self) -> bool:
        """Looks without waiting: nobody else uses the connection, so all that can come from the server is its end."""
        try:
            self.driver.pgconn.consume_input()
        except psycopg.Error:
            return False
        return self.driver.pgconn.status == psycopg.pq.ConnStatus.OK


class _Exported:
    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._sessions: dict[str, _Session] = {}

    def held(self) -> list[KeptSnapshot]:
        return sorted((session.kept for session in self._sessions.copy().values() if session.is_alive()), key=by_age)

    def keep(self, name: str, seq: int, epoch: int, taken_ms: int) -> None:
        held = self._sessions.get(name)
        if held is not None and (held.kept.seq, held.kept.epoch) == (seq, epoch) and held.is_alive():
            return
        self.release(name)
        with sql_errors("no snapshot could be kept"):
            connection = self._connect()
            try:
                driver = connection.connection.driver_connection
                assert isinstance(driver, psycopg.Connection)
                connection.detach()  # from the pool, whose connections are few, and for reads
                connection.execute(_NO_TIMEOUTS)
                exported = connection.execute(text("SELECT pg_export_snapshot()")).scalar_one()
            except BaseException:
                _close(connection)
                raise
        kept = KeptSnapshot(name, seq, epoch, taken_ms, f"postgresql:{exported}")
        self._sessions[name] = _Session(kept, connection, driver)

    def release(self, name: str) -> None:
        session = self._sessions.pop(name, None)
        if session is not None:
            _close(session.connection)

    def end_connections(self) -> None:
        for name in list(self._sessions):
            self.release(name)

    def pinned_bytes(self) -> int:
        """Returns 0: what the server cannot vacuum meanwhile is not known here."""
        return 0


def _close(connection: Connection) -> None:
    with suppress(SQLAlchemyError, psycopg.Error):
        connection.close()


class _Copies:
    def __init__(self, database: Path) -> None:
        self._database = database
        self._folder = SnapshotFolder(database.with_name(database.name + ".kept"), "sqlite", "rows.db")

    def held(self) -> list[KeptSnapshot]:
        return self._folder.held()

    def keep(self, name: str, seq: int, epoch: int, taken_ms: int) -> None:
        self._folder.keep(name, seq, epoch, taken_ms, self._copy)

    def _copy(self, path: Path) -> None:
        try:
            with closing(sqlite3.connect(self._database, isolation_level=None)) as connection:
                connection.execute("VACUUM INTO ?", (str(path),))
        except sqlite3.Error as error:
            raise EngineFailed(f"no snapshot could be kept: {words(error)}") from error
        with path.open("rb") as file:
            os.fsync(file.fileno())

    def release(self, name: str) -> None:
        self._folder.release(name)

    def end_connections(self) -> None: ...

    def pinned_bytes(self) -> int:
        return self._folder.pinned_bytes()
