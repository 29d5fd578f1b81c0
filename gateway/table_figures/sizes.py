"""The sizes of tables as the engine gave them last, so that pages do not ask it for each table each time.

What always holds: one asker at a time asks the engine, for FRESH_S at most once for each table; nobody waits for longer than
ASK_S, and gets what is known by then; an older size is shown with its age; KEPT_MAX sizes are kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from gateway.table_figures.documents import TableSizeDocument, size_document
from storage.clock import Clock
from storage.engine import StorageEngine, TableSize
from twinlog.errors import TwinlogError

FRESH_S = 15.0
ASK_S = 1.5
KEPT_MAX = 2000


class TableSizes:
    def __init__(self, engine: StorageEngine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._asking = asyncio.Lock()
        self._known: dict[int, tuple[float, TableSize]] = {}  # by table id: when it was told, the oldest first

    async def of(self, tables: Sequence[int]) -> Mapping[int, TableSizeDocument]:
        """Returns what is known of these, within ASK_S."""
        try:
            async with asyncio.timeout(ASK_S):
                await self._ask(tables)
        except (TimeoutError, TwinlogError):  # what is not known is not there
            pass
        return self.known(tables)

    def known(self, tables: Sequence[int]) -> Mapping[int, TableSizeDocument]:
        """Returns what is known of these, and asks nobody."""
        now_s = self._clock.monotonic_s()
        return {
            table: size_document(size, now_s - at_s) for table in tables if (found := self._known.get(table))
            for at_s, size in (found,)
        }

    async def _ask(self, tables: Sequence[int]) -> None:
        """The unknown ones first."""
        async with self._asking:
            for table in sorted(tables, key=lambda one: one in self._known):
                at_s = self._known.get(table, (-FRESH_S, None))[0]
                if self._clock.monotonic_s() - at_s < FRESH_S:
                    continue
                size = await self._engine.table_size(table)
                self._known.pop(table, None)
                if size is not None:
                    self._known[table] = self._clock.monotonic_s(), size
                if len(self._known) > KEPT_MAX:
                    del self._known[next(iter(self._known))]
