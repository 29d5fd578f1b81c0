"""The journal port: what a site remembers of its role changes, so that a crash anywhere loses none.

What always holds: when a call returns, what it wrote survives a crash of process and machine, all of it or nothing; the
history is only ever added to. Dry runs are the exception, since anybody may ask for a million: the newest DRY_RUNS_KEPT of
them stay, for DRY_RUN_KEPT_MS at most, with their part of the history. The journal lives at the site that executes the
operation and needs no other site.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from switchover.operations.document import HistoryEntry, Operation
from twinlog.errors import Conflict, NotFound

DRY_RUNS_KEPT = 10
DRY_RUN_KEPT_MS = 24 * 3600 * 1000


def forgotten(dry_runs: Sequence[tuple[str, int]], now_ms: int) -> list[str]:
    """Returns which of the `dry_runs`, ids with the time of their creation, the newest first, are kept no longer."""
    return [
        one for place, (one, created_ms) in enumerate(dry_runs)
        if place >= DRY_RUNS_KEPT or created_ms < now_ms - DRY_RUN_KEPT_MS
    ]


class Journal(Protocol):
    """Raises Unavailable when it cannot be read or written; a write may have happened all the same."""

    async def create(self, operation: Operation, entry: HistoryEntry) -> None:
        """A new operation; older dry runs are forgotten. Raises Conflict when its id is taken."""

    async def save(self, operation: Operation, entry: HistoryEntry) -> None:
        """Replace the document of this id and add to the history, in one transaction."""

    async def load(self, operation_id: str) -> Operation:
        """Raises NotFound."""

    async def operations(self, limit: int) -> list[Operation]:
        """The last ones created, newest first."""

    async def history(self, limit: int) -> list[HistoryEntry]:
        """The last entries, newest first."""

    async def close(self) -> None: ...


def id_taken(operation_id: str) -> Conflict:
    return Conflict(f"there is an operation {operation_id} already: ask for its document, or use another id", id=operation_id)


def unknown_operation(operation_id: str) -> NotFound:
    return NotFound(f"no operation {operation_id} is journaled at this site: ask the site that was to become active")
