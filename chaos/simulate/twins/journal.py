"""The journal of role changes, in memory."""

from __future__ import annotations

from collections.abc import Callable

from switchover.operations.document import HistoryEntry, Operation
from switchover.operations.journal import forgotten, id_taken, unknown_operation

Told = Callable[["MemoryJournal", Operation, HistoryEntry], None]


def _nobody(journal: MemoryJournal, operation: Operation, entry: HistoryEntry) -> None:
    """Nobody looks."""


class MemoryJournal:
    """It outlives the process that the simulator kills, as a file would. `told` gets what is written, right before it is."""

    def __init__(self, told: Told = _nobody) -> None:
        self.told = told
        self._operations: dict[str, Operation] = {}
        self._history: list[HistoryEntry] = []

    def copied(self) -> MemoryJournal:
        """Returns a journal of its own with what this one holds now."""
        copy = MemoryJournal(self.told)
        copy._operations, copy._history = dict(self._operations), list(self._history)
        return copy

    def all(self) -> list[Operation]:
        """In the order of creation; for tests."""
        return list(self._operations.values())

    async def create(self, operation: Operation, entry: HistoryEntry) -> None:
        if operation.id in self._operations:
            raise id_taken(operation.id)
        await self.save(operation, entry)
        dry = [(one.id, one.created_ms) for one in reversed(self._operations.values()) if one.dry_run]
        old = set(forgotten(dry, operation.created_ms))
        self._operations = {one: kept for one, kept in self._operations.items() if one not in old}
        self._history = [kept for kept in self._history if kept.operation not in old]

    async def save(self, operation: Operation, entry: HistoryEntry) -> None:
        self.told(self, operation, entry)
        self._operations[operation.id] = operation
        self._history.append(entry)

    async def load(self, operation_id: str) -> Operation:
        if operation_id not in self._operations:
            raise unknown_operation(operation_id)
        return self._operations[operation_id]

    async def operations(self, limit: int) -> list[Operation]:
        return list(reversed(self._operations.values()))[:limit]

    async def history(self, limit: int) -> list[HistoryEntry]:
        return list(reversed(self._history))[:limit]

    async def close(self) -> None:
        """Nothing is held."""
