"""Check-and-mutate on registers with unique values: by value, by version, insert if absent, delete if unchanged."""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import Condition, History, Mutation, Operation, Outcome, Row
from chaos.workloads.workload import table


class CheckAndMutate:
    """Every client remembers what it last saw of each row, and bets on it; a third of its bets are knowingly old."""

    name = "check_and_mutate"

    def __init__(self, random: Random, rows: int = 3) -> None:
        self._random = random
        self._keys = [f"m{at}" for at in range(rows)]
        self._seen: dict[tuple[str, str], Row | None] = {}
        self._values = 0
        self.tables = (
            table("checked", {"value": "string", "copy": "string"}, ("linearizable", "acknowledged", "phantom")),
        )

    def next(self, client: str) -> Operation:
        random = self._random
        key = random.choice(self._keys)
        if (client, key) not in self._seen or random.random() < 0.3:
            return Operation("read", "checked", key=key)
        row = self._seen[client, key] if random.random() < 0.3 else self._seen.pop((client, key))
        self._values += 1
        value = f"{client}-{self._values}"
        written = {"value": value, "copy": value}
        if row is None:
            return Operation("write", "checked", mutations=(Mutation("insert", key, written),))
        by_value = random.random() < 0.5
        condition = Condition(column="value", op="=", value=row.row["value"]) if by_value else Condition(version=row.version)
        change = Mutation("delete", key) if random.random() < 0.15 else Mutation("upsert", key, written)
        return Operation("conditional", "checked", key=key, conditions=(condition,), mutations=(change,))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if outcome.result != "ok":
            return
        if operation.kind == "read":
            self._seen[client, operation.key] = outcome.rows[0] if outcome.rows else None
        elif outcome.ack is not None:
            change = operation.mutations[0]
            row = None if change.op == "delete" else Row(change.key, change.row, outcome.ack.version)
            self._seen[client, change.key] = row

    def judge(self, history: History) -> list[Violation]:
        """The checkers say it all."""
        return []
