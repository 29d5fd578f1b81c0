"""A snapshot of an SQL engine: an exported snapshot of PostgreSQL, or a copy of an SQLite file.

What always holds: nothing is written; every reader of an exported snapshot sees the same moment, which ends with the
gateway's process that exported it. Rows stream from the server, a few hundred at a time in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import psycopg
from sqlalchemy import ColumnElement, Connection, Engine, create_engine, func, literal, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from spark_jobs.snapshots.snapshot import SnapshotCatalog, catalog_of
from storage.engines.entries.write import VERSION_BYTES
from storage.engines.sql import tables as own
from storage.engines.sql.names import KEY, ROW_VERSION, VALUE
from storage.engines.sql.reading import load
from storage.engines.sql.tables import TablePlace
from twinlog.errors import ConfigError, EngineFailed, NotFound, Refused

_FETCHED_ROWS = 500
_BYTES_A_ROW = 200  # about, where only a table's size is known
_SAMPLED_PAGES = 4  # of PostgreSQL, for each piece
_EXPORTED = re.compile(r"[0-9A-F]+(-[0-9A-F]+)*")


class SqlReader:
    """Make it with `open_postgresql` or `open_sqlite`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @cached_property
    def _found(self) -> tuple[SnapshotCatalog, dict[int, TablePlace]]:
        with _sql_errors():
            if not own.settle(self._connection):
                raise NotFound("the search path of the database's user leads to no schema: look at the role's search_path")
            kept = self._connection.execute(select(own.state.c.format)).scalar()
            if kept != own.FORMAT:
                raise Refused(f"the database is of format {kept}, this release reads {own.FORMAT}")
            state, places = load(self._connection)
        return catalog_of(state.seq, state.epoch, state.base, state.tables), places

    def catalog(self) -> SnapshotCatalog:
        return self._found[0]

    def walk(self, table: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """HOT."""
        place = self._found[1].get(table)
        if place is None:
            return
        columns = place.table.c
        wanted = select(columns[KEY], columns[ROW_VERSION], columns[VALUE]).order_by(columns[KEY])
        wanted = wanted.where(*_within(place, start, end))
        with (
            _sql_errors(),
            self._connection.execute(wanted, execution_options={"yield_per": _FETCHED_ROWS}) as answer,
        ):
            for rows in answer.partitions():
                for key, version, value in rows:
                    yield key, version.to_bytes(VERSION_BYTES, "big") + value

    def cuts(self, table: int, start: bytes, end: bytes | None, rows: int) -> list[bytes]:
        """PostgreSQL: from the keys on a few of its pages; SQLite: from its index, read once."""
        place = self._found[1].get(table)
        if place is None:
            return []
        with _sql_errors():
            if place.dialect == "sqlite":
                return self._every(place, start, end, rows)
            asked = text("SELECT pg_table_size(to_regclass(:name)), pg_relation_size(to_regclass(:name)) / 8192")
            size, pages = self._connection.execute(asked, {"name": own.address(self._connection, place)}).one()
            pieces = size // (rows * _BYTES_A_ROW)
            if pieces < 2:
                return []
            percent = min(100.0, 100.0 * _SAMPLED_PAGES * pieces / pages)
            sampled = select(place.table.tablesample(func.system(percent), seed=literal(1)).c[KEY])
            keys = sorted(self._connection.execute(sampled).scalars())
        found = {keys[len(keys) * step // pieces] for step in range(1, pieces)} if keys else set()
        return sorted(key for key in found if start < key and (end is None or key < end))

    def _every(self, place: TablePlace, start: bytes, end: bytes | None, rows: int) -> list[bytes]:
        key = place.table.c[KEY]
        numbered = select(key, func.row_number().over(order_by=key).label("n")).where(*_within(place, start, end)).subquery()
        every = select(numbered.c[KEY]).where(numbered.c.n % rows == 0).order_by(numbered.c[KEY])
        return list(self._connection.execute(every).scalars().all())


def _within(place: TablePlace, start: bytes, end: bytes | None) -> list[ColumnElement[bool]]:
    """The conditions for the keys `[start, end)`."""
    key = place.table.c[KEY]
    return [*([key >= start] if start else []), *([] if end is None else [key < end])]


@contextmanager
def open_postgresql(exported: str, url: str) -> Iterator[SqlReader]:
    """The snapshot that a transaction exported as `exported`. Raises ConfigError, NotFound, EngineFailed."""
    if _EXPORTED.fullmatch(exported) is None:
        raise NotFound(f"{exported!r} is no exported snapshot of PostgreSQL")
    try:
        address = make_url(url)
        if address.drivername != "postgresql+psycopg":
            raise ConfigError(f"the address of the database is for {address.drivername}: it must begin with postgresql+psycopg://")
        engine = create_engine(address, poolclass=NullPool, isolation_level="REPEATABLE READ")
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise ConfigError("the address of the database is none: write postgresql+psycopg://USER@HOST:PORT/DATABASE") from error
    with _connected(engine) as connection:
        with _sql_errors():
            try:
                connection.exec_driver_sql("SET TRANSACTION READ ONLY")
                connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{exported}'")
            except DBAPIError as error:
                if not isinstance(error.orig, psycopg.errors.UndefinedObject | psycopg.errors.InvalidParameterValue):
                    raise
                raise NotFound(
                    f"PostgreSQL no longer holds the snapshot {exported}: the gateway that took it has ended, or released it; "
                    "take a new barrier"
                ) from error
        yield SqlReader(connection)


@contextmanager
def open_sqlite(file: str) -> Iterator[SqlReader]:
    """The copy of a database in `file`. Raises NotFound, EngineFailed."""
    if not Path(file).is_file():
        raise NotFound(f"there is no file {file}: the snapshot was released, or is on another machine; take a new barrier")
    engine = create_engine(f"sqlite:///file:{quote(file)}?mode=ro&immutable=1&uri=true", poolclass=NullPool)
    with _connected(engine) as connection:
        yield SqlReader(connection)


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    try:
        with _sql_errors():
            connection = engine.connect()
        with connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _sql_errors() -> Iterator[None]:
    """Turns what SQLAlchemy and the driver raise in this block into EngineFailed, in the database's own words."""
    try:
        yield
    except (SQLAlchemyError, psycopg.Error) as error:
        original = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        said = " ".join(str(original).split())[:400] or type(original).__name__
        raise EngineFailed(f"the snapshot cannot be read: {said}") from error
