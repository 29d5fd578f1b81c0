"""Names in a database: from the names of tables and columns to names that no database refuses or takes for something else.

What always holds: every name that a schema may have leads to one, which has at most 63 bytes (PostgreSQL cuts a longer one
off). It is none of the engine's (`twinlog_...`), none of the database's (`pg_...`, `sqlite_...`, `pragma_...`, system
columns), and no table is called `excluded`, which stands for the new row in an upsert; two columns of a table never have the
same one. It is the user's own name wherever that can be, else the id stands behind it. Each use quotes it, so a word of SQL is
a name like others.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count
from typing import Final

from storage.rows.schema import Column

NAME_BYTES_MAX = 63
OWN = "twinlog_"
KEY, ROW_VERSION, VALUE = "twinlog_key", "twinlog_version", "twinlog_value"
_STEM = 30  # letters that are kept where the id, of up to 20 digits, stands behind the name
_TABLE_PREFIXES: Final = (OWN, "pg_", "sqlite_", "pragma_")
_TABLES: Final = frozenset({"excluded"})
_COLUMN_PREFIXES: Final = (OWN,)
_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "oid"})


def table_names(wanted: str, number: int) -> Iterator[str]:
    """Yields names for the table `number`, without end, the best first: somebody else's table may have one of them."""
    return _names(wanted, number, _TABLE_PREFIXES, _TABLES)


def column_names(columns: Sequence[Column], fold: bool) -> dict[int, str]:
    """Column id -> name in the database. `fold`: the database takes A and a as the same."""
    taken: set[str] = set()
    names: dict[int, str] = {}
    for column in sorted(columns, key=lambda column: column.id):
        of_column = _names(column.name, column.id, _COLUMN_PREFIXES, _COLUMNS)
        name = next(name for name in of_column if (name.lower() if fold else name) not in taken)
        taken.add(name.lower() if fold else name)
        names[column.id] = name
    return names


def _names(wanted: str, number: int, prefixes: tuple[str, ...], words: Collection[str]) -> Iterator[str]:
    if len(wanted) <= NAME_BYTES_MAX and wanted.lower() not in words and not wanted.lower().startswith(prefixes):
        yield wanted
    name = f"{wanted[:_STEM]}_{number}"
    if name.lower().startswith(prefixes):
        name = f"t_{name}"
    yield name
    for again in count(2):
        yield f"{name}_{again}"
