"""Registers: a few rows that all clients write blindly and read; on some of them also deletes. The plainest test of P3. And
documents: registers whose rows are large, so that a site needs memory for them."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from chaos.checkers.violation import Violation
from chaos.history.history import History, Mutation, Operation, Outcome
from chaos.workloads.workload import table

BYTES = 20_000  # of a document


class Registers:
    """`rows` registers that are only written, and a third as many that are deleted too. Values are unique texts."""

    name = "registers"

    def __init__(self, random: Random, rows: int = 6) -> None:
        self._random = random
        self._kept = [f"r{at}" for at in range(rows)]
        self._deleted = [f"d{at}" for at in range(max(1, rows // 3))]
        self._values = 0
        self.tables = (
            table("registers", {"value": "string", "copy": "string"}, ("linearizable", "acknowledged", "phantom")),
        )

    def next(self, client: str) -> Operation:
        random = self._random
        deletable = random.random() < 0.25
        key = random.choice(self._deleted if deletable else self._kept)
        roll = random.random()
        if roll < 0.5:
            return Operation("read", "registers", key=key)
        if deletable and roll < 0.65:
            return Operation("write", "registers", mutations=(Mutation("delete", key),))
        self._values += 1
        value = f"{client}-{self._values}"
        return Operation("write", "registers", mutations=(Mutation("upsert", key, {"value": value, "copy": value}),))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        """The next operation does not depend on it."""

    def judge(self, history: History) -> list[Violation]:
        """The checkers say it all."""
        return []


class Documents(Registers):
    """The text of a row stands in `copy`, and behind it as many dots as make BYTES of it."""

    name = "documents"

    def next(self, client: str) -> Operation:
        operation = super().next(client)
        return replace(operation, mutations=tuple(_large(each) for each in operation.mutations))


def _large(mutation: Mutation) -> Mutation:
    if not mutation.row:
        return mutation
    return replace(mutation, row={**mutation.row, "copy": str(mutation.row["copy"]).ljust(BYTES, ".")})
