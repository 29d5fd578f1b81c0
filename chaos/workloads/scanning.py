"""Scans of every kind (ranges, backwards, limited, of the past, of one moment) over rows that are written and deleted
meanwhile."""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import History, Mutation, Operation, Outcome
from chaos.workloads.workload import table

HISTORY_S = 3600


class Scanning:
    """`rows` rows; the last tenth of them is deleted at times."""

    name = "scanning"

    def __init__(self, random: Random, rows: int = 30) -> None:
        self._random = random
        self._keys = [f"s{at:04d}" for at in range(rows)]
        self._deleted = self._keys[-max(1, rows // 10):]
        self._values = 0
        self._version = 0
        checks = ("linearizable", "acknowledged", "phantom", "scans")
        self.tables = (table("scanned", {"value": "string"}, checks, history_s=HISTORY_S),)

    def next(self, client: str) -> Operation:
        random = self._random
        roll = random.random()
        if roll < 0.25:
            return self._scan()
        if roll < 0.35:
            return Operation("read", "scanned", key=random.choice(self._keys))
        if roll < 0.45:
            return Operation("write", "scanned", mutations=(Mutation("delete", random.choice(self._deleted)),))
        self._values += 1
        change = Mutation("upsert", random.choice(self._keys), {"value": f"{client}-{self._values}"})
        return Operation("write", "scanned", mutations=(change,))

    def _scan(self) -> Operation:
        random = self._random
        start, end = sorted(random.sample(self._keys, 2)) if random.random() < 0.6 else (None, None)
        as_of = self._version if self._version and random.random() < 0.3 else None
        return Operation(
            "scan", "scanned", start=start, end=end, reverse=random.random() < 0.3,
            limit=random.choice((1, 3, 10)) if random.random() < 0.3 else None, as_of=as_of,
            snapshot=as_of is None and random.random() < 0.5, page_rows=random.choice((0, 0, 4)),
        )

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if outcome.ack is not None:
            self._version = max(self._version, outcome.ack.version)

    def judge(self, history: History) -> list[Violation]:
        """The checkers say it all."""
        return []
