"""A snapshot of the embedded engine: one view of its database, kept until it is closed, and read on the reading thread.

What always holds: everything read is of the moment at which the view was made; after `close`, or once the engine has been
opened anew, a read is refused.
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
        self._read = read
        self._open_ones = open_ones

    async def state(self) -> EngineState:
        view = self._open_view()
        return await self._read(lambda: load_state(view))

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, bytes_max: int | None = None
    ) -> Sequence[StoredRow]:
        view = self._open_view()
        if bytes_max is None:
            return await self._read(lambda: view.rows(table, start, end, reverse, limit))
        return await self._read(lambda: view.rows_of_bytes(table, start, end, reverse, limit, bytes_max))

    async def request_outcomes(self, after: str | None, *, limit: int) -> Sequence[tuple[str, RequestOutcome]]:
        view = self._open_view()
        return await self._read(lambda: view.outcomes(after, limit))

    def _open_view(self) -> RocksView:
        if self._view is None:
            raise snapshot_ended()
        return self._view

    def close(self) -> None:
        """Closing twice is fine."""
        self._view = None
        self._open_ones.discard(self)
