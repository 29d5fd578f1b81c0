"""The tables of a site, by name and by id: the engine's schemas, decoded once.

What always holds: the catalog is what the engine has applied; a DDL record that is applied changes it at once.
"""

from __future__ import annotations

from storage.engine import StorageEngine
from storage.rows.schema import TableSchema, decode_schema
from twinlog.errors import Conflict, NotFound


class Catalog:
    def __init__(self, engine: StorageEngine) -> None:
        self._engine = engine
        self._by_name: dict[str, TableSchema] = {}
        self._schemas: dict[int, bytes] = {}
        self.dropping: int | None = None  # the table whose drop is on its way through the log
        self.reload()

    def reload(self) -> None:
        """Read every schema again: after DDL, a rejoin, or base data."""
        self._schemas = schemas = self._engine.applied.schemas()
        tables = [decode_schema(data) for data in schemas.values()]
        self._by_name = {table.name: table for table in tables}

    def applied(self) -> None:
        """Something was applied. Comparing the schemas is cheaper than looking at every record's kind: they are few."""
        if self._engine.applied.schemas() != self._schemas:
            self.reload()

    def get(self, name: str) -> TableSchema:
        """Raises NotFound."""
        table = self._by_name.get(name)
        if table is None:
            known = ", ".join(sorted(self._by_name)[:20]) or "none yet"
            raise NotFound(f"there is no table {name!r}; tables here: {known}", table=name)
        return table

    def find(self, name: str) -> TableSchema | None:
        return self._by_name.get(name)

    def check_current(self, table: TableSchema) -> None:
        """Raises Conflict when rows that were encoded with `table` may not be logged any more."""
        if self.dropping == table.id:  # behind the drop in the log, a row would outlive its table
            raise Conflict(f"table {table.name!r} is being dropped", table=table.name)
        current = self._by_name.get(table.name)
        if current is None or current.id != table.id or current.revision != table.revision:
            raise Conflict(f"table {table.name!r} changed while the request was on its way: send it again", table=table.name)

    def all(self) -> list[TableSchema]:
        return [self._by_name[name] for name in sorted(self._by_name)]
