"""The tables of a site, by name and by id: the engine's schemas, decoded once.

What always holds: the catalog is what the engine has applied; a DDL record that is applied changes it at once.
"""

from __future__ import annotations

from storage.engine import StorageEngine
from storage.rows.schema import TableSchema, decode_schema
from twinlog.errors import NotFound


class Catalog:
    def __init__(self, engine: StorageEngine) -> None:
        self._engine = engine
        self._by_name: dict[str, TableSchema] = {}
        self._schemas: dict[int, bytes] = {}
        self.reload()

    def reload(self) -> None:
        """Read every schema again: after DDL, a rejoin, or base data."""
        self._schemas = schemas = self._engine.schemas()
        tables = [decode_schema(data) for data in schemas.values()]
        self._by_name = {table.name: table for table in tables}

    def applied(self) -> None:
        """Something was applied. Comparing the schemas is cheaper than looking at every record's kind: they are few."""
        if self._engine.schemas() != self._schemas:
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

    def all(self) -> list[TableSchema]:
        return [self._by_name[name] for name in sorted(self._by_name)]
