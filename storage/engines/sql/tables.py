"""The layout of an SQL database: the engine's own tables, and one table for each table of the log.

    twinlog_state      one row: whose database it is, the watermark, the progress of a base
    twinlog_tables     every table: its name in the database, its schema, how long its history is kept
    twinlog_epochs, twinlog_requests, twinlog_history, twinlog_notes
    flights, ...       typed columns under the schema's names, then twinlog_key, twinlog_version, twinlog_value

What always holds: `twinlog_key` is the encoded key and the primary key, so the database orders rows as every engine does, with
no collation in between; `twinlog_value` holds the stored bytes, and what the engine answers comes from there; a table
whose schema has not come (base data before its end) has only these three columns; a schema that came is shown by
ALTER TABLE, and where that cannot say it (columns of rows that are there already), by a new table that takes the rows.
Source: storage/engine.py, docs/decisions/2026-11-21-rows-in-sql.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
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
    quoted_name,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable, DropTable
from sqlalchemy.types import UserDefinedType

from storage.engines.sql.column_types import Cells, Shown, cells_of, shown_columns
from storage.engines.sql.names import KEY, OWN, ROW_VERSION, VALUE, table_names
from storage.rows.schema import TableSchema, decode_schema, encode_schema

FORMAT = 2
ATTRIBUTES_MAX = 1500  # PostgreSQL gives a table 1600 for its life, dropped ones included
PAGE_ROWS = 2000
HOME = "schema_translate_map"  # SQLAlchemy puts the schema that it names before every table that names none

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
    Column("shown", LargeBinary),  # the schema whose columns it has, where that is another one: NULL: it is not; empty: none
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
    """One table in the database. `shown` are its typed columns; without a schema there are none. `home`: the schema of the
    database that it lies in."""

    number: int
    name: str
    schema: TableSchema | None
    shown: tuple[Shown, ...]
    dialect: str
    home: str
    unshown: bytes | None = None  # as `twinlog_tables.shown` has it

    @cached_property
    def table(self) -> Table:
        """Every name in it is quoted, and the table's stands behind its schema's: no word of SQL, and no table of the
        database's own, is met instead."""
        typed = [Column(quoted_name(column.name, True), Raw(column.sql_type)) for column in self.shown]
        return Table(
            quoted_name(self.name, True), MetaData(), *typed, Column(KEY, LargeBinary, primary_key=True),
            Column(ROW_VERSION, BigInteger, nullable=False), Column(VALUE, LargeBinary, nullable=False),
            schema=quoted_name(self.home, True),
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
        return sql.SQL("SELECT {0}, {1}, {2} FROM {3} WHERE {0} = ANY(%b)").format(*names, sql.Identifier(self.home, self.name))

    def row(self, key: bytes, version: int, value: bytes) -> tuple[Any, ...]:
        """A row as the columns `names` take it."""
        return key, version, value, *self.cells(key, value)


_PLAIN = f"{OWN}table_"  # names of tables without typed columns
PutRows = Callable[[TablePlace, Sequence[Any]], None]  # upserts rows of key, version and value


@lru_cache(maxsize=64)  # a statement keeps what SQLAlchemy made of it
def upsert_into(table: Table, dialect: str) -> Any:
    """INSERT that replaces a row with the same primary key."""
    made: Any = (sqlite if dialect == "sqlite" else postgresql).insert(table)
    key = [column.name for column in table.primary_key.columns]
    return made.on_conflict_do_update(
        index_elements=key, set_={column.name: made.excluded[column.name] for column in table.columns if column.name not in key}
    )


def settle(connection: Connection) -> bool:
    """Fixes, for this connection and all that its engine makes, the schema of the database in which all tables are: the first
    of the search path. Returns False when that leads to none."""
    home: str | None = "main"
    if connection.dialect.name == "postgresql":
        home = connection.execute(text("SELECT pg_catalog.current_schema()")).scalar()
    if home is None:
        return False
    named = {HOME: {None: quoted_name(home, True)}}
    connection.engine.update_execution_options(**named)
    connection.execution_options(**named)
    return True


def home_of(connection: Connection) -> str:
    """Returns the schema of the database in which all tables are."""
    home: str = connection.get_execution_options()[HOME][None]
    return home


def place_of(
    connection: Connection, number: int, name: str, schema: bytes | None, shown: bytes | None = None
) -> TablePlace:
    """The table `number` under the name it has in the database, with the columns of the schema `shown`; None: of `schema`."""
    decoded, dialect = None if schema is None else decode_schema(schema), connection.dialect.name
    seen = decoded if shown is None else decode_schema(shown) if shown else None
    columns = () if seen is None else shown_columns(seen, dialect)
    return TablePlace(number, name, decoded, columns, dialect, home_of(connection), shown)


def driver_of(connection: Connection) -> psycopg.Connection[Any]:
    """PostgreSQL's own connection behind SQLAlchemy's, in the same transaction."""
    driver: psycopg.Connection[Any] | None = connection.connection.driver_connection
    assert driver is not None
    return driver


def quoted(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote_identifier(name)


def address(connection: Connection, place: TablePlace) -> str:
    """The table's name behind its schema's, both quoted."""
    return connection.dialect.identifier_preparer.format_table(place.table)


def run(connection: Connection, statement: str) -> None:
    """A statement as it stands, percent signs and colons included."""
    connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def is_taken(connection: Connection, name: str) -> bool:
    """Returns True when anything of the database has this name: a table, view, index, sequence or type, ours or somebody
    else's. PostgreSQL's array types do not count: it gives them another name when a table needs theirs. A module of SQLite
    counts: a connection that has not heard of a new table yet takes the module for it."""
    if connection.dialect.name == "sqlite":
        if any(module.lower() == name.lower() for (module,) in connection.execute(text("PRAGMA module_list"))):
            return True
        asked = "SELECT 1 FROM main.sqlite_master WHERE lower(name) = lower(:name)"
    else:
        asked = (
            "WITH home AS (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = :home) "
            "SELECT 1 FROM pg_catalog.pg_class, home WHERE relname = :name AND relnamespace = home.oid UNION ALL "
            "SELECT 1 FROM pg_catalog.pg_type AS one, home WHERE typname = :name AND typnamespace = home.oid "
            "AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_type AS element WHERE element.typarray = one.oid)"
        )
    wanted = {"name": name} if connection.dialect.name == "sqlite" else {"name": name, "home": home_of(connection)}
    return connection.execute(text(asked), wanted).first() is not None


def _free_name(connection: Connection, wanted: str, number: int) -> str:
    return next(name for name in table_names(wanted, number) if not is_taken(connection, name))


def create(connection: Connection, number: int, schema: bytes | None) -> TablePlace:
    """A new table. Somebody else's table of that name stays as it is: ours gets its number behind the name."""
    decoded = None if schema is None else decode_schema(schema)
    name = f"{_PLAIN}{number}" if decoded is None else _free_name(connection, decoded.name, number)
    place = place_of(connection, number, name, schema)
    connection.execute(CreateTable(place.table))
    connection.execute(insert(tables).values(id=signed(number), name=name, schema=schema, history_s=0, since=0))
    return place


def drop(connection: Connection, place: TablePlace) -> None:
    connection.execute(DropTable(place.table))
    forget(connection, place)


def change(connection: Connection, place: TablePlace, schema: bytes, put: PutRows | None) -> TablePlace:
    """The table of `place` as `schema` says it from now on. `put` upserts rows, for a table that must be made anew; None:
    this is a trial, and the rows stay behind."""
    decoded = decode_schema(schema)
    if decoded == place.schema:
        return place
    shown = shown_columns(decoded, place.dialect)
    before = {column.id: column for column in place.shown}
    added = [column for column in shown if column.id not in before]
    known = set() if place.schema is None else {column.id for column in place.schema.columns}
    is_plain = place.schema is None or place.name.startswith(_PLAIN)
    if is_plain or (added and (decoded.next_column_id > ATTRIBUTES_MAX or any(one.id in known for one in added))):
        return _made_anew(connection, place, schema, put)
    if place.schema is not None and decoded.name != place.schema.name:
        place = _renamed(connection, place, _free_name(connection, decoded.name, place.number))
    _alter(connection, place, shown)
    return place_of(connection, place.number, place.name, schema)


def leave_as_it_is(connection: Connection, place: TablePlace | None, number: int, schema: bytes) -> TablePlace:
    """The table `number` with `schema` from now on, and the columns that it has; a new one has none."""
    if place is None:
        place = replace(create(connection, number, None), unshown=b"")
    elif place.unshown is None:
        place = replace(place, unshown=b"" if place.schema is None else encode_schema(place.schema))
    return place_of(connection, number, place.name, schema, place.unshown)


def forget(connection: Connection, place: TablePlace) -> None:
    """The table is no longer one of ours, and stays where it is."""
    connection.execute(tables.delete().where(tables.c.id == signed(place.number)))


def _renamed(connection: Connection, place: TablePlace, name: str) -> TablePlace:
    run(connection, f"ALTER TABLE {address(connection, place)} RENAME TO {quoted(connection, name)}")
    return replace(place, name=name)


def _alter(connection: Connection, place: TablePlace, shown: Sequence[Shown]) -> None:
    def alter(what: str) -> None:
        run(connection, f"ALTER TABLE {address(connection, place)} {what}")

    def quote(column: str) -> str:
        return quoted(connection, column)

    now = {column.id: column.name for column in shown}
    kept = {column.id: column.name for column in place.shown}
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


def _made_anew(connection: Connection, place: TablePlace, schema: bytes, put: PutRows | None) -> TablePlace:
    """A new table with all rows of `place`, which is dropped."""
    old = replace(_renamed(connection, place, f"{OWN}old_{place.number}"), schema=None, shown=())
    forget(connection, place)
    made = create(connection, place.number, schema)
    key, version, value = (old.table.c[name] for name in (KEY, ROW_VERSION, VALUE))
    after: bytes | None = None
    while put is not None:
        page = select(key, version, value).order_by(key).limit(PAGE_ROWS)
        rows = connection.execute(page if after is None else page.where(key > after)).all()
        if not rows:
            break
        put(made, rows)
        after = rows[-1][0]
    connection.execute(DropTable(old.table))
    return made
