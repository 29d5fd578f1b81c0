"""Everything at once on a few rows: blind and conditional writes, batches, deletes, scans, reads of the past, schema changes.

A mistake in one way of writing often shows only beside another one: a blind write that does not wait for a conditional one on
the same row loses an update, and no workload that keeps to one of the two can see that.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from chaos.checkers.violation import Violation
from chaos.history.history import Condition, History, Mutation, Operation, Outcome, Row
from chaos.workloads.columns import Columns
from chaos.workloads.workload import table

HISTORY_S = 3600
TABLE = "mixed"


class Mixed:
    """`rows` rows with unique values. Each client remembers what it last saw of each row, and bets on it at times."""

    name = "mixed"

    def __init__(self, random: Random, rows: int = 4) -> None:
        self._random = random
        self._keys = [f"x{at}" for at in range(rows)]
        self._seen: dict[tuple[str, str], Row | None] = {}
        self._columns = Columns(random, columns_max=3, drop_below=0.75)
        self._values = self._version = 0
        checks = ("linearizable", "acknowledged", "phantom", "batches", "scans")
        self.tables = (table(TABLE, {"value": "string", "copy": "string"}, checks, history_s=HISTORY_S),)
        weights: dict[Callable[[str], Operation], float] = {
            self._read: 20, self._scan: 8, self._blind: 22, self._bet: 22, self._batch: 14, self._delete: 5, self._change: 3,
        }
        self._kinds, self._weights = list(weights), list(weights.values())

    def next(self, client: str) -> Operation:
        return self._random.choices(self._kinds, self._weights)[0](client)

    # ---- looks
    def _read(self, client: str) -> Operation:
        past = self._version if self._version and self._random.random() < 0.1 else None
        return Operation("read", TABLE, key=self._random.choice(self._keys), as_of=past)

    def _scan(self, client: str) -> Operation:
        random = self._random
        start, end = sorted(random.sample(self._keys, 2)) if random.random() < 0.4 else (None, None)
        as_of = self._version if self._version and random.random() < 0.4 else None
        return Operation(
            "scan", TABLE, start=start, end=end, reverse=random.random() < 0.3,
            limit=random.choice((1, 3)) if random.random() < 0.2 else None, as_of=as_of,
            snapshot=as_of is None and random.random() < 0.5, page_rows=random.choice((0, 2)),
        )

    # ---- writes
    def _row(self, client: str) -> dict[str, Any]:
        self._values += 1
        value = f"{client}-{self._values}"
        extra = {column: value for column in self._columns.present if self._random.random() < 0.5}
        return {"value": value, "copy": value, **extra}

    def _mutation(self, client: str, key: str) -> Mutation:
        op = self._random.choices(("upsert", "insert", "update", "delete"), (6, 1, 2, 1))[0]
        return Mutation(op, key, {} if op == "delete" else self._row(client))

    def _blind(self, client: str) -> Operation:
        op = self._random.choices(("upsert", "insert", "update"), (6, 1, 2))[0]
        change = Mutation(op, self._random.choice(self._keys), self._row(client))
        return Operation("write", TABLE, mutations=(change,))

    def _delete(self, client: str) -> Operation:
        return Operation("write", TABLE, mutations=(Mutation("delete", self._random.choice(self._keys)),))

    def _batch(self, client: str) -> Operation:
        keys = self._random.choices(self._keys, k=self._random.randint(2, 4))
        if self._random.random() < 0.7:  # else an insert or update in it may refuse the whole batch
            return Operation("batch", TABLE, mutations=tuple(Mutation("upsert", key, self._row(client)) for key in keys))
        return Operation("batch", TABLE, mutations=tuple(self._mutation(client, key) for key in keys))

    def _bet(self, client: str) -> Operation:
        """Returns a write under a condition on a row that the client saw, which changes that row, others, or both."""
        random = self._random
        key = random.choice(self._keys)
        if (client, key) not in self._seen:
            return Operation("read", TABLE, key=key)
        row = self._seen[client, key] if random.random() < 0.3 else self._seen.pop((client, key))
        condition = self._condition(row)
        change = Mutation("delete", key) if random.random() < 0.15 else Mutation("upsert", key, self._row(client))
        if condition.version is not None and random.random() < 0.3:  # as `If-Match`
            return Operation("write", TABLE, key=key, conditions=(condition,), mutations=(change,))
        changes = [change]
        if random.random() < 0.3:
            others = [other for other in self._keys if other != key]
            changes += [Mutation("upsert", other, self._row(client)) for other in random.sample(others, random.randint(1, 2))]
            random.shuffle(changes)
        return Operation("conditional", TABLE, key=key, conditions=(condition,), mutations=tuple(changes))

    def _condition(self, row: Row | None) -> Condition:
        if row is None:
            return Condition(exists=False)
        roll = self._random.random()
        if roll < 0.15:
            return Condition(exists=True)
        return Condition(version=row.version) if roll < 0.6 else Condition(column="value", op="=", value=row.row["value"])

    # ---- changes of the schema
    def _change(self, client: str) -> Operation:
        return Operation("schema", TABLE, body=self._columns.change())

    # ---- answers
    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if operation.kind == "schema":
            self._columns.learn(operation.body, outcome)
        if outcome.result != "ok":
            return
        if operation.kind == "read" and operation.as_of is None:
            self._seen[client, operation.key] = outcome.rows[0] if outcome.rows else None
        if outcome.ack is None:
            return
        self._version = max(self._version, outcome.ack.version)
        first = outcome.ack.version - len(operation.mutations) + 1
        for at, change in enumerate(operation.mutations):
            if change.op == "delete":
                self._seen[client, change.key] = None
            else:
                self._seen[client, change.key] = Row(change.key, change.row, first + at)

    def judge(self, history: History) -> list[Violation]:
        """The checkers say it all."""
        return []
