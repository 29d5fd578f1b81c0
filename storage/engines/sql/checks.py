"""Checks that a database can be a site's storage: rights, and the shape of what is in it. Runs at start and at each reopening.

What always holds: what is wrong is found here, as a ConfigError that names `engine.url`, and not by the first row that meets
it; nothing is changed. Blocking.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Dialect, bindparam, inspect, text
from sqlalchemy import Table as SqlTable
from sqlalchemy.exc import CompileError

from storage.engines.sql import tables as own
from storage.engines.sql.tables import TablePlace
from twinlog.errors import ConfigError

SETTING = "engine.url"
_ELSE = "give the site a database of its own, or drop the tables of twinlog in it, and the site is filled by its peer"


def refused(problem: str, allowed: str) -> ConfigError:
    """Something about the database that an operator must put right."""
    return ConfigError(f"{SETTING}: {problem}; {allowed}", faults=[])


def check_rights(connection: Connection) -> None:
    """PostgreSQL: what the first new table, or the first large batch, would miss otherwise."""
    user, schema, database, creates, stages = connection.execute(text(
        "SELECT current_user, :home, current_database(), has_schema_privilege(:home, 'CREATE'), "
        "has_database_privilege(current_database(), 'TEMPORARY')"
    ), {"home": own.home_of(connection)}).one()
    if not creates:
        grant = f"GRANT CREATE, USAGE ON SCHEMA {schema} TO {user}"
        raise refused(f"lacks rights: {user} may not make tables in the schema {schema}", grant)
    if not stages:
        grant = f"GRANT TEMPORARY ON DATABASE {database} TO {user}"
        raise refused(f"lacks rights: {user} may not make temporary tables, through which rows go in", grant)


def check_tables(connection: Connection, places: Iterable[TablePlace]) -> None:
    """Ours, and the tables of the log: whose they are, their columns, types and keys."""
    tables = [*own.metadata.sorted_tables, *(place.table for place in places)]
    names = [table.name for table in tables]
    if connection.dialect.name == "postgresql":
        _check_owners(connection, names)
    inspector, home = inspect(connection), own.home_of(connection)
    columns = {name: found for (_, name), found in inspector.get_multi_columns(home, filter_names=names).items()}
    keys = {name: found for (_, name), found in inspector.get_multi_pk_constraint(home, filter_names=names).items()}
    for table in tables:
        key = keys[table.name]["constrained_columns"] if table.name in keys else []
        check_shape(connection.dialect, table, columns.get(table.name, []), key)


def _check_owners(connection: Connection, names: Sequence[str]) -> None:
    asked = text(
        "SELECT relname, pg_get_userbyid(relowner), current_user "
        "FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = :home AND relname = ANY(CAST(:names AS text[])) AND NOT pg_has_role(relowner, 'USAGE') "
        "ORDER BY relname LIMIT 1"
    ).bindparams(bindparam("names", list(names)), bindparam("home", own.home_of(connection)))
    for table, owner, user in connection.execute(asked):
        raise refused(
            f"lacks rights: the table {table} belongs to {owner}, not to {user}",
            f"let {user} own twinlog's tables (ALTER TABLE ... OWNER TO), or make it a member of {owner}",
        )


def check_shape(dialect: Dialect, table: SqlTable, there: Sequence[Any], key: Sequence[str]) -> None:
    """`there`: the columns that the inspector found; `key`: the names of its primary key."""
    found = {column["name"]: column for column in there}
    wanted = {column.name: column for column in table.columns}
    lacking = [name for name in wanted if name not in found]
    if lacking:
        raise refused(f"has a table {table.name} of another shape: it lacks {', '.join(lacking[:5])}", _ELSE)
    for name, column in wanted.items():
        is_type, should = _type_name(found[name]["type"], dialect), _type_name(column.type, dialect)
        if is_type != should:
            raise refused(f"has a table {table.name} of another shape: {name} is {is_type}, not {should}", _ELSE)
    ours = [column.name for column in table.primary_key.columns]
    if list(key) != ours:
        raise refused(
            f"has a table {table.name} of another shape: its primary key is ({', '.join(key)}), not ({', '.join(ours)})", _ELSE
        )
    for name, column in found.items():
        free = name not in wanted or wanted[name].nullable
        if free and not column["nullable"] and (name in wanted or column["default"] is None):
            remedy = f"ALTER TABLE {table.name} ALTER COLUMN {name} DROP NOT NULL"
            raise refused(f"has a table {table.name} that refuses rows: {name} is NOT NULL", remedy)


def _type_name(kind: Any, dialect: Dialect) -> str:
    try:
        told: str = kind.compile(dialect=dialect)
    except CompileError:
        return "of an unknown type"
    return told.lower().split(" collate ")[0]
