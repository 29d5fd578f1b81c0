"""Every word that a database has of its own, and a life of tables and columns that are called like that, on a real engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any

from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.names import column_names
from storage.engines.sql.writing import COPY_ROWS_MIN
from storage.log.record import Record
from storage.rows.schema import NAME, TableSchema, alter, parse_table
from tests.storage.engines.engine_rig import Log, delete, drop_table
from tests.storage.engines.sql.rig import postgres
from tests.storage.engines.sql.test_sql_engine import ddl, row

Look = Callable[[str], tuple[Sequence[str], list[tuple[Any, ...]]]]


def _words(text: str) -> list[str]:
    return text.split()


# https://www.sqlite.org/lang_keywords.html; sqlite3_keyword_name() is not within reach of Python.
SQLITE_KEYWORDS = _words("""
abort action add after all alter always analyze and as asc attach autoincrement before begin between by cascade case cast
check collate column commit conflict constraint create cross current current_date current_time current_timestamp database
default deferrable deferred delete desc detach distinct do drop each else end escape except exclude exclusive exists explain
fail filter first following for foreign from full generated glob group groups having if ignore immediate in index indexed
initially inner insert instead intersect into is isnull join key last left like limit match materialized natural no not
nothing notnull null nulls of offset on or order others outer over partition plan pragma preceding primary query raise range
recursive references regexp reindex release rename replace restrict returning right rollback row rows savepoint select set
table temp temporary then ties to transaction trigger unbounded union unique update using vacuum values view virtual when
where window with without within
""")
SQLITE_CATALOG = _words("""
sqlite_master sqlite_schema sqlite_temp_master sqlite_temp_schema sqlite_sequence sqlite_stat1 sqlite_stat2 sqlite_stat3
sqlite_stat4 sqlite_dbpage sqlite_stmt sqlite_autoindex_t_1 sqlite_x sqlite_ rowid _rowid_ oid main temp json_each json_tree
generate_series dbstat bytecode tables_used
""")
OURS = _words("""
excluded twinlog_state twinlog_tables twinlog_epochs twinlog_requests twinlog_history twinlog_notes twinlog_requests_version
twinlog_stage_1 twinlog_old_1 twinlog_table_1 twinlog_key twinlog_version twinlog_value twinlog_moving_1 twinlog_moving_2
twinlog_ t_twinlog_key pg_ one param_1 flights_pkey public _flights
""")


def postgresql_words() -> list[str]:
    """Keywords, and the names of tables, views, types and schemas of the catalogs, and of every row's hidden columns."""
    with postgres().connect() as connection:
        found = connection.execute(
            "SELECT word FROM pg_get_keywords() "
            "UNION SELECT relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname IN ('pg_catalog', 'information_schema') AND relkind IN ('r', 'v') "
            "UNION SELECT typname FROM pg_type WHERE typelem = 0 AND typrelid = 0 UNION SELECT nspname FROM pg_namespace "
            "UNION SELECT attname FROM pg_attribute WHERE attnum < 0"
        ).fetchall()
    return [word for (word,) in found]


def sqlite_words() -> list[str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        listed = [
            name for what in ("pragma_list", "module_list")
            for (name,) in connection.execute(f"SELECT name FROM pragma_{what}")
        ]
    return [*SQLITE_KEYWORDS, *SQLITE_CATALOG, *listed, *(f"pragma_{name}" for name in listed)]


def usable(words: Iterable[str]) -> list[str]:
    """Those that a table or column may have, some also in capitals, and some too long for PostgreSQL."""
    plain = {word for word in words if NAME.fullmatch(word)}
    capitals = {word.upper() for word in sorted(plain)[::7]} | {word.upper() for word in OURS}
    long = {word.ljust(64 + len(word) % 60, "_") for word in sorted(plain)[::40]}
    return sorted(plain | capitals | long)


def all_words() -> list[str]:
    return usable([*postgresql_words(), *sqlite_words(), *OURS])


def named(number: int, name: str, columns: Sequence[str]) -> TableSchema:
    """A table whose key is its first column."""
    listed = [{"name": column, "type": "int64"} for column in columns]
    return parse_table({"name": name, "primary_key": [columns[0]], "columns": listed}, number)


class Lives:
    """Tables that are made, written, read, scanned, altered and dropped. `look` answers a person's query: names, rows."""

    def __init__(self, engine: SqlEngine, look: Look) -> None:
        self._engine, self._look = engine, look
        self._log = Log()
        self._last = 0
        self._home = "main" if engine.is_sqlite else "public"

    async def live(self, wanted: Iterable[tuple[str, Sequence[str]]]) -> None:
        """Tables with these names and columns, one life each, side by side."""
        tables = []
        for name, columns in wanted:
            self._last += 1
            tables.append(named(self._last, name, columns))
        rows = [row(one, {column.name: column.id for column in one.columns}) for one in tables]
        await self._apply(*map(ddl, tables), *rows)
        await self._check(tables, rows)
        turned = [alter(one, {"rename": _turned(one)}) for one in tables if len(one.columns) > 1]
        await self._apply(*map(ddl, turned))
        await self._check([*turned, *(one for one in tables if len(one.columns) == 1)], rows)
        replaced = [alter(one, _replaced(one)) for one in turned if len(one.columns) > 2]
        await self._apply(*map(ddl, replaced))
        many = [row(one, {one.primary_key[0]: 100 + n}) for one in replaced for n in range(COPY_ROWS_MIN)]
        await self._apply(*many)
        for table in replaced:
            assert len(await self._engine.scan(table.id, None, None, reverse=False, limit=99)) == COPY_ROWS_MIN + 1
        await self._apply(*(delete(record.key, record.table) for record in rows))
        await self._apply(*(drop_table(table.id) for table in tables))
        assert self._engine.applied.schemas() == {}

    async def _apply(self, *records: Record) -> None:
        if records:
            await self._engine.apply([self._log.frame(*records)])

    async def _check(self, tables: Sequence[TableSchema], rows: Sequence[Record]) -> None:
        """The engine answers, and a person finds each table, with its columns in the order of their ids and their values,
        under the name that `twinlog_tables` has for it."""
        of = {record.table: record for record in rows}
        physical = dict(self._look(f'SELECT id, name FROM "{self._home}".twinlog_tables')[1])
        assert physical.keys() == {table.id for table in tables}
        for table in tables:
            record = of[table.id]
            stored = await self._engine.get(table.id, record.key)
            assert stored is not None
            assert stored.value == record.value
            assert await self._engine.scan(table.id, None, None, reverse=True, limit=9) == [stored]
            names, shown = self._look(f'SELECT * FROM "{self._home}"."{physical[table.id]}"')
            assert shown == [(*sorted(column.id for column in table.columns), *shown[0][-3:])], table.name
            fold = self._engine.is_sqlite
            assert list(names[:-3]) == [name for _, name in sorted(column_names(table.columns, fold).items())]


def _turned(table: TableSchema) -> dict[str, str]:
    """Every column gets the name of the next one."""
    names = [column.name for column in table.columns]
    return dict(zip(names, [*names[1:], names[0]], strict=True))


def _replaced(table: TableSchema) -> dict[str, Any]:
    """Half of the columns outside the key go, and new ones of another type come under their names."""
    names = [column.name for column in table.value_columns[::2]]
    return {"drop": names, "add": [{"name": name, "type": "string", "default": "it's \\ %s :x"} for name in names]}
