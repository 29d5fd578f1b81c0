"""The rows and sizes of tables as metrics, a series for each table.

What always holds: no scrape waits for the storage: it shows what is known, and begins to ask for a few tables whose size is
old; TABLES_MAX tables have series, the oldest ones, so that the series of a table stay while others come; what nobody has
measured for OLD_S is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gateway.metrics.catalogue import Figures
from gateway.table_figures.sizes import TableSizes
from storage.clock import Clock
from storage.rows.schema import TableSchema

TABLES_MAX = 100
ASKED_MAX = 5  # at a scrape: a size may need a sample of 0.1 s, and others read meanwhile
AGAIN_S = 300.0
OLD_S = 900.0


class TableSeries:
    """`tables`: those that are not dropped; `clock` is the site's."""

    def __init__(self, sizes: TableSizes, tables: Callable[[], Sequence[TableSchema]], clock: Clock) -> None:
        self._sizes, self._tables, self._clock = sizes, tables, clock
        self._asked_s: dict[int, float] = {}  # by table id: when it was last asked for, whatever came of it
        self._asking: asyncio.Task[object] | None = None

    def figures(self) -> Figures:
        """Returns what is known, and begins to ask for what is old."""
        tables = sorted(self._tables(), key=lambda table: table.id)[:TABLES_MAX]
        self._ask([table.id for table in tables])
        known = self._sizes.known([table.id for table in tables])
        shown = [
            (table.name, size) for table in tables
            if (size := known.get(table.id)) and size.age_s is not None and size.age_s < OLD_S
        ]
        return {
            "table_rows": {(name,): float(size.rows) for name, size in shown if size.rows is not None},
            "table_bytes": {(name,): float(size.bytes) for name, size in shown if size.bytes is not None},
            "table_disk_bytes": {(name,): float(size.disk_bytes) for name, size in shown if size.disk_bytes is not None},
        }

    def _ask(self, tables: Sequence[int]) -> None:
        if self._asking is not None and not self._asking.done():
            return
        now_s = self._clock.monotonic_s()
        self._asked_s = {table: at_s for table, at_s in self._asked_s.items() if table in tables}
        old = [table for table in tables if now_s - self._asked_s.get(table, -AGAIN_S) >= AGAIN_S]
        chosen = sorted(old, key=lambda table: self._asked_s.get(table, 0.0))[:ASKED_MAX]
        if chosen:
            self._asked_s |= dict.fromkeys(chosen, now_s)
            self._asking = asyncio.create_task(self._sizes.of(chosen), name="metrics: sizes of tables")
