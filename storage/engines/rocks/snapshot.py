"""A snapshot of the embedded engine: one view of its database, kept until it is closed, and read on the reading thread.

What always holds: everything read is of the moment at which the view was made; after `close`, or once the engine has been
opened anew, a read is refused; one that had begun comes to its end. The database's folder stays locked as long as an iterator
lives: a closed snapshot has none, whoever still holds a frame of one of its reads (an error that was kept does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from storage.engine import EngineState, RequestOutcome, StoredRow
from storage.engines.meaning import snapshot_ended
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import RocksView

T = TypeVar("T")


class ReadRunner(Protocol):
    """Runs a function on the engine's reading thread."""

    async def __call__(self, fn: Callable[[], T], /) -> T: ...


class RocksSnapshot:
    """One view, kept until closed. It pins the memtables and files of its moment."""

    def __init__(self, view: RocksView, read: ReadRunner, open_ones: set[RocksSnapshot]) -> None:
        self.seq = view.applied_seq
        self._view: RocksView | None = view
        self._run = read
        self._open_ones = open_ones
        self._reads = 0  # under way

    async def state(self) -> EngineState:
        return await self._read(load_state)

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, bytes_max: int | None = None
    ) -> Sequence[StoredRow]:
        if bytes_max is None:
            return await self._read(lambda view: view.rows(table, start, end, reverse, limit))
        return await self._read(lambda view: view.rows_of_bytes(table, start, end, reverse, limit, bytes_max))

    async def request_outcomes(self, after: str | None, *, limit: int) -> Sequence[tuple[str, RequestOutcome]]:
        return await self._read(lambda view: view.outcomes(after, limit))

    async def _read(self, fn: Callable[[RocksView], T]) -> T:
        view = self._view
        if view is None:
            raise snapshot_ended()
        self._reads += 1
        try:
            return await self._run(lambda: fn(view))
        finally:
            self._reads -= 1
            if self._view is None and not self._reads:
                view.close()

    def close(self) -> None:
        """Closing twice is fine."""
        view, self._view = self._view, None
        if view is not None and not self._reads:
            view.close()
        self._open_ones.discard(self)
