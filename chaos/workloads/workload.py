"""The workload as an interface, and the client that it is executed against.

What always holds: a workload does no I/O and draws only on the Random it was given, so that the same seed and the same
answers make the same operations; it learns the end of each operation before that client asks for its next one.
"""

from __future__ import annotations

from typing import Any, Protocol

from chaos.checkers.violation import Violation
from chaos.history.history import History, Operation, Outcome, TableUse

KEY = "id"  # the key column of every workload's table


class Client(Protocol):
    async def execute(self, operation: Operation) -> Outcome:
        """Ask once, to the end. Never raises for what the pair answers: an error is an outcome; a lost answer is `unknown`."""


class Workload(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def tables(self) -> tuple[TableUse, ...]:
        """Made before the first operation (`creations`)."""

    def next(self, client: str) -> Operation:
        """Returns the next request of `client`."""

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        """Takes in the answer to an operation."""

    def judge(self, history: History) -> list[Violation]:
        """The workload's own check of a finished run."""


def creations(workload: Workload) -> list[Operation]:
    return [Operation("schema", use.name, body=use.schema) for use in workload.tables]


def table(
    name: str, columns: dict[str, str], checks: tuple[str, ...], *, unique: bool = True, history_s: int = 0
) -> TableUse:
    """A table with the key column `id` and nullable columns of these types, as POST /v1/tables takes it."""
    listed: list[dict[str, Any]] = [{"name": KEY, "type": "string"}]
    listed += [{"name": column, "type": kind} for column, kind in columns.items()]
    schema: dict[str, Any] = {"name": name, "columns": listed, "primary_key": [KEY]}
    if history_s:
        schema["history_s"] = history_s
    return TableUse(name, schema, unique=unique, checks=checks)


def final_violation(promise: str, workload: str, sentence: str, calls: tuple[int, ...] = ()) -> Violation:
    return Violation(promise, f"workload:{workload}", sentence, calls)
