"""Opening a database as a site's storage: the connection, its rights, whose it is; and what went wrong, in words.

What always holds: a database is one site's, and one process's at a time (PostgreSQL: an advisory lock of the writing
connection); what is wrong with it is found before anything is served, as a ConfigError that names `engine.url`; a password
is in no message. A connection that is cut is noticed within about ten seconds. Blocking.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from storage.engine import EngineState
from storage.engines.sql import tables as own
from storage.engines.sql.checks import SETTING, check_rights, check_shape, check_tables, refused
from storage.engines.sql.reading import load
from storage.engines.sql.tables import TablePlace
from twinlog.errors import ConfigError, EngineFailed

_LOCK_WAIT_S = 10.0  # a gateway that was killed leaves its session for a moment
CERTIFICATE = "sslrootcert names the server's CA, and the host is one that its certificate names"
_POLL_S = 0.1
_REFUSALS = ("0A", "22", "23", "2B", "42", "54", "P0")  # classes of SQLSTATE
_SQLITE_REFUSALS = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
_LOST = {
    "connect_timeout": 5, "keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000
}


@dataclass(frozen=True, slots=True)
class SqlSettings:
    """`url`: an SQLAlchemy address, postgresql+psycopg:// or sqlite:////. `pair`, `site`: whose storage it is."""

    url: str = field(repr=False)
    pair: str
    site: str
    password: str | None = field(default=None, repr=False)
    request_ttl_s: int = 24 * 3600
    lock_wait_s: float = 30.0  # for a table or file that somebody else has locked


@contextmanager
def sql_errors(what: str) -> Iterator[None]:
    """From this block what SQLAlchemy and the driver raise comes as EngineFailed."""
    try:
        yield
    except (SQLAlchemyError, psycopg.Error) as error:
        raise EngineFailed(f"{what}: {problem_of(error)}; look at the database of {SETTING}; the log has everything") from error


def problem_of(error: BaseException) -> str:
    """The database's own words, without statement and parameters."""
    original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    return " ".join(str(original).split())[:400].rstrip(".") or type(original).__name__


def is_refusal(error: BaseException) -> bool:
    """True when the database says no to the statement itself: repeated, it is refused again until somebody changes something.
    False for what passes: a lock, a lost connection, a full disk."""
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        return getattr(original, "sqlite_errorcode", 0) & 0xFF in _SQLITE_REFUSALS
    return (getattr(original, "sqlstate", None) or "")[:2] in _REFUSALS


def make_engine(settings: SqlSettings) -> Engine:
    """Raises ConfigError when the address is none. Connects to nothing."""
    try:
        url = make_url(settings.url)
        if settings.password is not None:
            url = url.set(password=settings.password)
        dialect = url.get_dialect().name
        if dialect == "sqlite":
            engine = create_engine(url, poolclass=QueuePool, connect_args={"check_same_thread": False})
            event.listen(engine, "connect", _sqlite_connected(round(settings.lock_wait_s * 1000)))
            event.listen(engine, "begin", _sqlite_begins)
            return engine
        if dialect != "postgresql" or url.get_driver_name() != "psycopg":
            raise refused(f"is for {url.drivername}", "it must begin with postgresql+psycopg:// or sqlite:///")
        told = {**_LOST, "application_name": f"twinlog-{settings.site}"}
        return create_engine(url, pool_size=4, max_overflow=32, pool_timeout=10, connect_args=told)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise refused("is no SQLAlchemy address", "write postgresql+psycopg://USER@HOST:PORT/DATABASE") from error


def _sqlite_connected(wait_ms: int) -> Callable[[Any, Any], None]:
    def connected(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say so
        for pragma in (f"busy_timeout={wait_ms}", "journal_mode=WAL", "synchronous=NORMAL"):
            connection.execute(f"PRAGMA {pragma}")

    return connected


def _sqlite_begins(connection: Connection) -> None:
    how = "BEGIN IMMEDIATE" if connection.get_execution_options().get("writes") else "BEGIN"
    connection.exec_driver_sql(how)


@dataclass(frozen=True)
class SqlParts:
    """The writing connection with what the database holds; everything of it is durable."""

    writer: Connection
    state: EngineState
    places: dict[int, TablePlace]
    notes: dict[str, bytes]


def open_database(engine: Engine, settings: SqlSettings, notes: Callable[[Connection], dict[str, bytes]]) -> SqlParts:
    """The database, with the engine's tables made when it has none. Raises ConfigError."""
    try:
        writer = engine.connect().execution_options(writes=True)
    except (SQLAlchemyError, psycopg.Error) as error:
        raise _unreachable(engine, error) from error
    try:
        with writer.begin():
            if own.HOME not in engine.get_execution_options() and not own.settle(writer):
                raise refused("leads to no schema for tables", "create the schema, or set search_path for the user")
        if engine.dialect.name == "postgresql":
            _prepare_session(writer, settings.lock_wait_s)
        with writer.begin():
            _make_tables(writer, settings)
        make_durable(writer)
        with writer.begin():
            state, places = load(writer)
            check_tables(writer, places.values())
            opened = SqlParts(writer, state, places, notes(writer))
        return opened
    except (SQLAlchemyError, psycopg.Error) as error:
        writer.invalidate()
        writer.close()
        raise _unusable(engine, error) from error
    except BaseException:
        writer.invalidate()
        writer.close()
        raise


def _prepare_session(writer: Connection, lock_wait_s: float) -> None:
    """The writing connection: one process's only; the log is synced already, so a commit need not wait for the disk."""
    until_s = time.monotonic() + _LOCK_WAIT_S
    with writer.begin():
        encoding = writer.execute(text("SHOW server_encoding")).scalar()
        if encoding != "UTF8":
            raise refused(f"is a database with encoding {encoding}", "create it with ENCODING 'UTF8'")
        check_rights(writer)
        lock = text("SELECT pg_try_advisory_lock(hashtext('twinlog'), hashtext(:home))")
        while not writer.execute(lock, {"home": own.home_of(writer)}).scalar():
            if time.monotonic() > until_s:
                raise refused("is in use by another gateway", "give each site a database of its own; stop the other process")
            time.sleep(_POLL_S)
        waiting = f"lock_timeout = {round(lock_wait_s * 1000)}"
        for setting in (waiting, "synchronous_commit = off", "client_min_messages = warning", "timezone = 'UTC'"):
            writer.execute(text(f"SET {setting}"))


def let_go(writer: Connection, engine: Engine) -> None:
    """Closes every connection. The writing one is cut, so that the database releases its lock."""
    with suppress(SQLAlchemyError):
        writer.invalidate()
    with suppress(SQLAlchemyError):
        writer.close()
    engine.dispose()


def make_durable(writer: Connection) -> None:
    """Everything committed so far survives a crash of the machine."""
    count = own.state.update().values(flushes=own.state.c.flushes + 1)
    if writer.dialect.name == "sqlite":
        driver = writer.connection.driver_connection
        assert driver is not None
        driver.execute("PRAGMA synchronous=FULL")
        try:
            with writer.begin():
                writer.execute(count)
        finally:
            driver.execute("PRAGMA synchronous=NORMAL")
        return
    with writer.begin():
        wait_for_disk(writer)
        writer.execute(count)


def wait_for_disk(connection: Connection) -> None:
    """The open transaction's commit returns once it is on the disk, whatever the server's default. SQLite: nothing to say."""
    if connection.dialect.name != "sqlite":
        connection.execute(text("SET LOCAL synchronous_commit = on"))


def _make_tables(writer: Connection, settings: SqlSettings) -> None:
    """The engine's own tables, and whose they are."""
    found = inspect(writer)
    home = own.home_of(writer)
    missing = [table for table in own.metadata.sorted_tables if not found.has_table(table.name, schema=home)]
    if own.state not in missing:
        _check_owner(writer, settings)
    for table in missing:
        if own.is_taken(writer, table.name):
            raise refused(f"holds something else under the name {table.name}", "give the site a database of its own")
    if missing:
        own.metadata.create_all(writer, missing)
    if own.state in missing:
        first = {"seq": 0, "epoch": 0, "timestamp": 0, "base": None, "flushes": 0}
        whose = {"one": 1, "format": own.FORMAT, "pair": settings.pair, "site": settings.site}
        writer.execute(insert(own.state).values(whose | first))


def _check_owner(writer: Connection, settings: SqlSettings) -> None:
    found, name, home = inspect(writer), own.state.name, own.home_of(writer)
    key = found.get_pk_constraint(name, schema=home)["constrained_columns"]
    check_shape(writer.dialect, own.state, found.get_columns(name, schema=home), key)
    marked = writer.execute(select(own.state)).one_or_none()
    if marked is None:
        raise refused("holds an empty table twinlog_state", "drop twinlog's tables in it, and the site is filled by its peer")
    if marked.format != own.FORMAT:
        raise refused(f"is of format {marked.format}, this release reads {own.FORMAT}", "it belongs to another release")
    if (marked.pair, marked.site) != (settings.pair, settings.site):
        raise refused(
            f"is the storage of site {marked.site} of pair {marked.pair}, not of site {settings.site} of pair {settings.pair}",
            "give each site a database of its own",
        )


def _unreachable(engine: Engine, error: BaseException) -> ConfigError:
    problem = problem_of(error)
    lower = problem.lower()
    if "password" in lower or "authentication" in lower or "no pg_hba" in lower or ("role" in lower and "not exist" in lower):
        return refused(
            f"{_shown(engine)} refuses the user: {problem}", "give engine.password as env:NAME or file:PATH; check the user"
        )
    if "not exist" in lower:
        return refused(f"{_shown(engine)} has no such database: {problem}", "create it, with ENCODING 'UTF8'")
    if "certificate" in lower:
        return refused(f"{_shown(engine)} is not believed: {problem}", CERTIFICATE)
    return refused(f"{_shown(engine)} cannot be reached: {problem}", "check host and port, and that the database is up")


def _unusable(engine: Engine, error: BaseException) -> ConfigError:
    problem, state = problem_of(error), getattr(getattr(error, "orig", None), "sqlstate", None)
    if state == "25006" or "readonly" in problem.lower() or "read-only" in problem.lower():
        return refused(f"{_shown(engine)} is read-only: {problem}", "name the primary, and one that takes writes")
    if state == "42501":
        return refused(
            f"{_shown(engine)} lacks rights: {problem}", "the user must own the schema's tables: GRANT CREATE, USAGE ON SCHEMA"
        )
    return refused(f"{_shown(engine)} cannot be used: {problem}", "look at the database's own log")


def _shown(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=True)
