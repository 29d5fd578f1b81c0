"""The tables of a site, by name and by id: the engine's schemas, decoded once.

What always holds: the catalog is what the engine has applied; a DDL record that is applied changes it at once.
"""

from __future__ import annotations

from storage.engine import StorageEngine
from storage.rows.schema import TableSchema, decode_schema, restored
from twinlog.errors import Conflict, NotFound


class Catalog:
    """`writable`: the tables by id whose rows may be logged; a schema stays the same object until it changes."""

    def __init__(self, engine: StorageEngine) -> None:
        self._engine = engine
        self._by_name: dict[str, TableSchema] = {}
        self._sorted: list[TableSchema] | None = None
        self.dropped: list[TableSchema] = []  # those whose rows are kept, the last one first
        self._schemas: dict[int, bytes] = {}
        self._tables = engine.applied.tables  # those that were read, or equal ones
        self._dropping: int | None = None  # the table whose drop is on its way through the log
        self.writable: dict[int, TableSchema] = {}
        self.reload()

    def reload(self) -> None:
        """Reads every schema again: after DDL, a rejoin, or base data."""
        before, known = self._schemas, {table.id: table for table in (*self._by_name.values(), *self.dropped)}
        self._tables = self._engine.applied.tables
        self._schemas = schemas = self._tables.schemas()
        unchanged = {table_id for table_id, data in schemas.items() if before.get(table_id) == data and table_id in known}
        tables = [known[table_id] if table_id in unchanged else decode_schema(data) for table_id, data in schemas.items()]
        self._by_name = {table.name: table for table in tables if table.dropped_ms is None}
        self._sorted = None
        self.dropped = sorted((one for one in tables if one.dropped_ms is not None), key=lambda one: one.dropped_ms or 0)[::-1]
        self._note_writable()

    def drop_begins(self, table_id: int) -> None:
        self._dropping = table_id
        self._note_writable()

    def drop_ended(self) -> None:
        """The drop's fate in the log is known: it was applied, or nothing was logged."""
        self._dropping = None
        self._note_writable()

    def _note_writable(self) -> None:
        self.writable = {table.id: table for table in self._by_name.values() if table.id != self._dropping}

    def applied(self) -> None:
        """Something was applied. An engine replaces its tables as a whole, so the same object has the same schemas. HOT."""
        tables = self._engine.applied.tables
        if tables is self._tables:
            return
        if tables.schemas() != self._schemas:
            self.reload()
        self._tables = tables

    def get(self, name: str) -> TableSchema:
        """Raises NotFound."""
        table = self._by_name.get(name)
        if table is None:
            known = ", ".join(sorted(self._by_name)[:20]) or "none yet"
            raise NotFound(f"there is no table {name!r}; tables here: {known}", table=name)
        return table

    def find_dropped(self, name: str) -> TableSchema:
        """The table that had this name and was dropped last; or the one that is kept as `name`. Raises NotFound."""
        for table in self.dropped:
            if name in (table.name, restored(table).name):
                return table
        kept = ", ".join(f"{table.name}" for table in self.dropped[:20]) or "none"
        raise NotFound(f"no table {name!r} that was dropped is kept; kept are: {kept}", table=name)

    def find(self, name: str) -> TableSchema | None:
        return self._by_name.get(name)

    def check_current(self, table: TableSchema) -> None:
        """Raises Conflict when rows that were encoded with `table` may not be logged any more."""
        if self._dropping == table.id:  # behind the drop in the log, a row would outlive its table
            raise Conflict(f"table {table.name!r} is being dropped", table=table.name)
        current = self._by_name.get(table.name)
        if current is None or current.id != table.id or current.revision != table.revision:
            raise Conflict(f"table {table.name!r} changed while the request was on its way: send it again", table=table.name)

    def all(self) -> list[TableSchema]:
        """Returns the tables by name."""
        if self._sorted is None:
            self._sorted = [self._by_name[name] for name in sorted(self._by_name)]
        return list(self._sorted)
