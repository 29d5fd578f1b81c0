"""The size of a table in an SQL database: a small one is counted, of a larger one a sample is read.

What always holds: a bounded number of rows or pages is read, whatever the database's own statistics say: they are empty
after a crash, and old before the next ANALYZE. PostgreSQL reads pages by chance (TABLESAMPLE SYSTEM), and counts the rows that
it sees there. In SQLite, rows have numbers (`oid`, a name that no column has): the share of them that is in use, of some drawn
by chance, stands for all. Blocking, on a connection that is given.
"""

from __future__ import annotations

from random import Random
from typing import Any

from sqlalchemy import Connection, func, literal_column, select, tablesample, text

from storage.engine import TableSize
from storage.engines.sizes import sampling
from storage.engines.sql.names import KEY, VALUE
from storage.engines.sql.tables import TablePlace

COUNTED_PAGES = 1024
PAGES_READ = 256
NUMBERS_TRIED = 500
_SEED = 20_261_128
_IN_CATALOG = text(
    "SELECT pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint AS pages,"
    " pg_catalog.pg_total_relation_size(c.oid) AS bytes"
    " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = :home AND c.relname = :name"
)


def table_size(connection: Connection, place: TablePlace | None) -> TableSize | None:
    """None: there is no such table."""
    if place is None:
        return None
    return _of_sqlite(connection, place) if place.dialect == "sqlite" else _of_postgresql(connection, place)


def _of_postgresql(connection: Connection, place: TablePlace) -> TableSize | None:
    found = connection.execute(_IN_CATALOG, {"home": place.home, "name": place.name}).one_or_none()
    if found is None or found.bytes is None:
        return None
    if found.pages <= COUNTED_PAGES:
        rows, size = connection.execute(_sums(place.table)).one()
        return TableSize(rows, True, int(size or 0), found.bytes)
    part = PAGES_READ / found.pages
    some = tablesample(place.table, func.system(100 * part), seed=literal_column(str(_SEED)))
    rows, size = connection.execute(_sums(some)).one()
    if not rows:  # what is left of many rows that were deleted: no sample finds it
        return TableSize(None, False, None, found.bytes)
    return TableSize(sampling.about(rows / part), False, sampling.about(int(size) / part), found.bytes)


def _sums(rows: Any) -> Any:
    return select(func.count(), func.sum(func.length(rows.c[KEY]) + func.length(rows.c[VALUE]))).select_from(rows)


def _of_sqlite(connection: Connection, place: TablePlace) -> TableSize:
    table = place.table
    first = select(table.c[KEY], table.c[VALUE]).limit(sampling.COUNTED_ROWS + 1).subquery()
    rows, size = connection.execute(_sums(first)).one()
    if rows <= sampling.COUNTED_ROWS:
        return TableSize(rows, True, int(size or 0))
    number: Any = literal_column("oid")
    low, high = (connection.execute(select(end(number)).select_from(table)).scalar_one() for end in (func.min, func.max))
    random = Random(_SEED)
    drawn = {random.randint(low, high) for _ in range(NUMBERS_TRIED)}
    used = connection.execute(select(func.count()).select_from(table).where(number.in_(drawn))).scalar_one()
    sample = used / len(drawn) * (high - low + 1)
    estimate = sampling.between(sample, rows, high - low + 1)
    return TableSize(estimate, False, sampling.about(estimate * size / rows))

