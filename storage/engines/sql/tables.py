"""The layout of an SQL database: the engine's own tables, and one table for each table of the log.

    twinlog_state      one row: whose database it is, the watermark, the progress of a base
    twinlog_tables     every table: its name in the database, its schema, how long its history is kept
    twinlog_epochs, twinlog_requests, twinlog_history, twinlog_notes
    flights, ...       typed columns under the schema's names, then twinlog_key, twinlog_version, twinlog_value

What always holds: `twinlog_key` is the encoded key and the primary key, so the database orders rows as every engine does, with
no collation in between; `twinlog_value` holds the stored bytes, and what the engine answers comes from there; a table of
which no schema has come (base data before its end) has only these three columns; a schema that came is shown by
ALTER TABLE, and where that cannot say it (columns of rows that are there already), by a new table that takes the rows.
Source: storage/engine.py, docs/decisions/2026-11-21-rows-in-sql.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    bindparam,
    insert,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable
from sqlalchemy.types import UserDefinedType

from storage.engines.sql.column_types import KEY, NAME_BYTES_MAX, ROW_VERSION, VALUE, Cells, Shown, cells_of, shown_columns
from storage.rows.schema import TableSchema, decode_schema

FORMAT = 1
ATTRIBUTES_MAX = 1500  # PostgreSQL gives a table 1600 for its life, dropped ones included
PAGE_ROWS = 2000
OWN = "twinlog_"

metadata = MetaData()
state = Table(
    "twinlog_state", metadata,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("format", Integer, nullable=False),
    Column("pair", Text, nullable=False), Column("site", Text, nullable=False),
    Column("seq", BigInteger, nullable=False), Column("epoch", BigInteger, nullable=False),
    Column("timestamp", BigInteger, nullable=False),
    Column("base", LargeBinary),  # progress of an unfinished base
    Column("flushes", BigInteger, nullable=False),  # counted, so that there is something to make durable
)
tables = Table(
    "twinlog_tables", metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False), Column("name", Text, nullable=False),
    Column("schema", LargeBinary),  # NULL: none has come
    Column("history_s", BigInteger, nullable=False), Column("since", BigInteger, nullable=False),
)
epochs = Table(
    "twinlog_epochs", metadata,
    Column("epoch", BigInteger, primary_key=True, autoincrement=False), Column("first_seq", BigInteger, nullable=False),
    Column("previous", BigInteger, nullable=False), Column("site", Text, nullable=False), Column("kind", Text, nullable=False),
)
requests = Table(
    "twinlog_requests", metadata,
    Column("key", LargeBinary, primary_key=True),  # UTF-8: a text may hold U+0000
    Column("digest", LargeBinary, nullable=False), Column("epoch", BigInteger, nullable=False),
    Column("seq", BigInteger, nullable=False), Column("version", BigInteger, nullable=False),
    Column("count", BigInteger, nullable=False), Column("was_async", Boolean, nullable=False),
    Index("twinlog_requests_version", "version"), Index("twinlog_requests_seq", "seq"),
)
history = Table(
    "twinlog_history", metadata,
    Column("table_id", BigInteger, nullable=False), Column("key", LargeBinary, nullable=False),
    Column("until", BigInteger, nullable=False),  # version of what replaced it
    Column("version", BigInteger, nullable=False), Column("value", LargeBinary, nullable=False),
    PrimaryKeyConstraint("table_id", "key", "until"),
)
notes = Table("twinlog_notes", metadata, Column("name", Text, primary_key=True), Column("value", LargeBinary, nullable=False))


def signed(number: int) -> int:
    """A table id of 64 bits as SQL's bigint holds it."""
    return number - (1 << 64) if number >= 1 << 63 else number


def unsigned(number: int) -> int:
    return number + (1 << 64) if number < 0 else number


class Raw(UserDefinedType[Any]):
    """A column type by its name in the database; values go through as they are."""

    cache_ok = True

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def get_col_spec(self, **_: Any) -> str:
        return self.spec


@dataclass(frozen=True)
class TablePlace:
    """One table in the database. `shown` are its typed columns; without a schema there are none."""

    number: int
    name: str
    schema: TableSchema | None
    shown: tuple[Shown, ...]
    dialect: str

    @cached_property
    def table(self) -> Table:
        typed = [Column(column.name, Raw(column.sql_type)) for column in self.shown]
        return Table(
            self.name, MetaData(), *typed, Column(KEY, LargeBinary, primary_key=True),
            Column(ROW_VERSION, BigInteger, nullable=False), Column(VALUE, LargeBinary, nullable=False),
        )

    @cached_property
    def names(self) -> list[str]:
        """The names of all columns, in the order in which `cells` and the upsert take them."""
        return [KEY, ROW_VERSION, VALUE, *(column.name for column in self.shown)]

    @cached_property
    def cells(self) -> Cells:
        if self.schema is None:
            return lambda key, value: ()
        return cells_of(self.schema, self.shown)

    @cached_property
    def upsert(self) -> Any:
        return upsert_into(self.table, self.dialect)

    @cached_property
    def point(self) -> Any:
        """Version and value of the row whose key is `one`."""
        table = self.table
        return select(table.c[ROW_VERSION], table.c[VALUE]).where(table.c[KEY] == bindparam("one"))

    @cached_property
    def of_keys(self) -> sql.Composed:
        """The query, for psycopg, of key, version and value of the rows whose keys are in one array."""
        names = [sql.Identifier(name) for name in (KEY, ROW_VERSION, VALUE)]
        return sql.SQL("SELECT {0}, {1}, {2} FROM {3} WHERE {0} = ANY(%b)").format(*names, sql.Identifier(self.name))

    def row(self, key: bytes, version: int, value: bytes) -> tuple[Any, ...]:
        """A row as the columns `names` take it."""
        return key, version, value, *self.cells(key, value)


PutRows = Callable[[TablePlace, Sequence[Any]], None]  # upserts rows of key, version and value


def upsert_into(table: Table, dialect: str) -> Any:
    """INSERT that replaces a row with the same primary key."""
    made: Any = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    key = [column.name for column in table.primary_key.columns]
    return made.on_conflict_do_update(
        index_elements=key, set_={column.name: made.excluded[column.name] for column in table.columns if column.name not in key}
    )


def place_of(number: int, name: str, schema: bytes | None, dialect: str) -> TablePlace:
    """The table `number` under the name it has in the database."""
    decoded = None if schema is None else decode_schema(schema)
    return TablePlace(number, name, decoded, () if decoded is None else shown_columns(decoded, dialect), dialect)


def driver_of(connection: Connection) -> psycopg.Connection[Any]:
    """PostgreSQL's own connection behind SQLAlchemy's, in the same transaction."""
    driver: psycopg.Connection[Any] | None = connection.connection.driver_connection
    assert driver is not None
    return driver


def quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)


def run(connection: Connection, statement: str) -> None:
    """A statement as it stands, percent signs and colons included."""
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def is_taken(connection: Connection, name: str) -> bool:
    """Returns True when anything of the database has this name: a table, view, index or sequence, ours or somebody else's."""
    if connection.dialect.name == "sqlite":
        asked = "SELECT 1 FROM sqlite_master WHERE lower(name) = lower(:name)"
    else:
        asked = (
            "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE relname = :name AND nspname = current_schema()"
        )
    return connection.execute(text(asked), {"name": name}).first() is not None


def _names(wanted: str, number: int) -> Iterator[str]:
    if len(wanted) <= NAME_BYTES_MAX and not wanted.lower().startswith(OWN):
        yield wanted
    name = f"{wanted[:40]}_{number}"
    while True:
        yield name if not name.lower().startswith(OWN) else f"t_{name}"
        name += "_"


def create(connection: Connection, number: int, schema: bytes | None) -> TablePlace:
    """A new table. Somebody else's table of that name stays as it is: ours gets its number behind the name."""
    decoded = None if schema is None else decode_schema(schema)
    if decoded is None:
        name = f"{OWN}table_{number}"
    else:
        name = next(name for name in _names(decoded.name, number) if not is_taken(connection, name))
    place = place_of(number, name, schema, connection.dialect.name)
    connection.execute(CreateTable(place.table))
    connection.execute(insert(tables).values(id=signed(number), name=name, schema=schema, history_s=0, since=0))
    return place


def drop(connection: Connection, place: TablePlace) -> None:
    run(connection, f"DROP TABLE {quoted(connection, place.name)}")
    connection.execute(tables.delete().where(tables.c.id == signed(place.number)))


def change(connection: Connection, place: TablePlace, schema: bytes, put: PutRows) -> TablePlace:
    """The table of `place` as `schema` says it from now on. `put` upserts rows, for a table that must be made anew."""
    decoded = decode_schema(schema)
    shown = shown_columns(decoded, place.dialect)
    before = {column.id: column for column in place.shown}
    added = [column for column in shown if column.id not in before]
    known = set() if place.schema is None else {column.id for column in place.schema.columns}
    if place.schema is None or (added and (decoded.next_column_id > ATTRIBUTES_MAX or any(one.id in known for one in added))):
        return _made_anew(connection, place, schema, put)
    name = place.name
    if decoded.name != place.schema.name:
        name = next(name for name in _names(decoded.name, place.number) if not is_taken(connection, name))
        run(connection, f"ALTER TABLE {quoted(connection, place.name)} RENAME TO {quoted(connection, name)}")
    _alter(connection, name, place.shown, shown)
    return place_of(place.number, name, schema, place.dialect)


def _alter(connection: Connection, name: str, before: Sequence[Shown], shown: Sequence[Shown]) -> None:
    def alter(what: str) -> None:
        run(connection, f"ALTER TABLE {quoted(connection, name)} {what}")

    def quote(column: str) -> str:
        return quoted(connection, column)

    now = {column.id: column.name for column in shown}
    kept = {column.id: column.name for column in before}
    for number in kept.keys() - now.keys():
        alter(f"DROP COLUMN {quote(kept[number])}")
    renamed = [number for number in kept.keys() & now.keys() if kept[number] != now[number]]
    for number in renamed:  # two may change names with each other
        alter(f"RENAME COLUMN {quote(kept[number])} TO {quote(f'{OWN}moving_{number}')}")
    for number in renamed:
        alter(f"RENAME COLUMN {quote(f'{OWN}moving_{number}')} TO {quote(now[number])}")
    for column in shown:
        if column.id not in kept:
            default = "" if column.default is None else f" DEFAULT {_literal(column.default, connection.dialect.name)}"
            alter(f"ADD COLUMN {quote(column.name)} {column.sql_type}{default}")


def _literal(value: Any, dialect: str) -> str:
    if dialect == "sqlite":
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        if isinstance(value, bool | int):
            return str(int(value))
        if isinstance(value, float):
            return "NULL" if value != value else {"inf": "9e999", "-inf": "-9e999"}.get(repr(value), repr(value))
    written = f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)
    return "'" + written.replace("'", "''").replace("\0", "") + "'"


def _made_anew(connection: Connection, place: TablePlace, schema: bytes, put: PutRows) -> TablePlace:
    """A new table with all rows of `place`, which is dropped."""
    away = f"{OWN}old_{place.number}"
    run(connection, f"ALTER TABLE {quoted(connection, place.name)} RENAME TO {quoted(connection, away)}")
    connection.execute(tables.delete().where(tables.c.id == signed(place.number)))
    made = create(connection, place.number, schema)
    old = place_of(place.number, away, None, place.dialect).table
    after: bytes | None = None
    while True:
        page = select(old.c[KEY], old.c[ROW_VERSION], old.c[VALUE]).order_by(old.c[KEY]).limit(PAGE_ROWS)
        rows = connection.execute(page if after is None else page.where(old.c[KEY] > after)).all()
        if not rows:
            break
        put(made, rows)
        after = rows[-1][0]
    run(connection, f"DROP TABLE {quoted(connection, away)}")
    return made
