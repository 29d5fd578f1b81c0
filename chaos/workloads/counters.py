"""Counters: read, then write one more if nothing changed since (check-and-mutate). No increment may be lost or done twice."""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import Condition, History, Mutation, Operation, Outcome
from chaos.workloads.workload import final_violation, table


class Counters:
    name = "counters"

    def __init__(self, random: Random, rows: int = 2) -> None:
        self._random = random
        self._keys = [f"c{at}" for at in range(rows)]
        self._read: dict[str, tuple[str, int | None]] = {}  # client -> key and what stands there; None: no row
        self.tables = (
            table("counters", {"value": "int64"}, ("linearizable", "acknowledged", "phantom"), unique=False),
        )

    def next(self, client: str) -> Operation:
        known = self._read.pop(client, None)
        if known is None:
            return Operation("read", "counters", key=self._random.choice(self._keys))
        key, count = known
        condition = Condition(exists=False) if count is None else Condition(column="value", op="=", value=count)
        change = Mutation("upsert", key, {"value": 1 if count is None else count + 1})
        return Operation("conditional", "counters", key=key, conditions=(condition,), mutations=(change,))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if operation.kind == "read" and outcome.result == "ok":
            self._read[client] = (operation.key, outcome.rows[0].row["value"] if outcome.rows else None)

    def judge(self, history: History) -> list[Violation]:
        """acknowledged <= value <= acknowledged + unknown; increments that a manifest names may be away."""
        sure: dict[str, int] = {}
        open_ones: dict[str, int] = {}
        for call in history.calls:
            operation = call.operation
            if operation.table != "counters" or operation.kind != "conditional":
                continue
            result = call.outcome.result if call.outcome is not None else "unknown"
            if result == "ok":
                sure[operation.key] = sure.get(operation.key, 0) + 1
            elif result == "unknown":
                open_ones[operation.key] = open_ones.get(operation.key, 0) + 1
        for each in history.quarantines:
            for row in each.rows if each.kept else ():
                if row.table == "counters":  # acknowledged or not: it may count, or not
                    sure[row.key] = sure.get(row.key, 0) - 1
                    open_ones[row.key] = open_ones.get(row.key, 0) + 1
        found: list[Violation] = []
        for dump in history.dumps:
            rows = dump.tables.get("counters", {})
            for key in self._keys:
                value = rows[key].row["value"] if key in rows else 0
                low = sure.get(key, 0)
                high = low + open_ones.get(key, 0)
                if not low <= value <= high:
                    sentence = f"Counter {key} stands at {value} at site {dump.site}; it must lie between {low} and {high}."
                    found.append(final_violation("I1", self.name, sentence))
        return found
