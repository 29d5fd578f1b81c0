"""Batches: groups of rows that are only ever written all together. No look and no end state may show a group in parts."""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import History, Mutation, Operation, Outcome
from chaos.workloads.workload import final_violation, table

HISTORY_S = 3600


class Batches:
    """`groups` of `rows` rows each. A batch writes one tag to all rows of a group: row n has the value `<tag>/<n>`."""

    name = "batches"

    def __init__(self, random: Random, groups: int = 3, rows: int = 4) -> None:
        self._random, self._groups, self._rows = random, groups, rows
        self._tags = 0
        self._version = 0  # the newest that was acknowledged
        checks = ("linearizable", "acknowledged", "phantom", "batches", "scans")
        self.tables = (table("batches", {"value": "string", "tag": "string"}, checks, history_s=HISTORY_S),)

    def next(self, client: str) -> Operation:
        random = self._random
        group = random.randrange(self._groups)
        roll = random.random()
        if roll < 0.2:
            return Operation("scan", "batches", start=f"g{group}-", end=f"g{group}.")
        if roll < 0.25:
            return Operation("scan", "batches", snapshot=True, page_rows=3)
        if roll < 0.3 and self._version:
            return Operation("scan", "batches", as_of=self._version)
        if roll < 0.5:
            return Operation("read", "batches", key=f"g{group}-{random.randrange(self._rows)}")
        self._tags += 1
        tag = f"{client}-{self._tags}"
        order = list(range(self._rows))
        random.shuffle(order)
        changes = (Mutation("upsert", f"g{group}-{at}", {"value": f"{tag}/{at}", "tag": tag}) for at in order)
        return Operation("batch", "batches", mutations=tuple(changes))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if outcome.ack is not None:
            self._version = max(self._version, outcome.ack.version)

    def judge(self, history: History) -> list[Violation]:
        """At the end each group bears one tag, at each site."""
        found: list[Violation] = []
        for dump in history.dumps:
            rows = dump.tables.get("batches", {})
            for group in range(self._groups):
                keys = [f"g{group}-{at}" for at in range(self._rows)]
                tags = {str(rows[key].row["tag"]) if key in rows else "no row" for key in keys}
                if len(tags) > 1:
                    sentence = f"Group {group} is in parts at site {dump.site}: {', '.join(sorted(tags))}."
                    found.append(final_violation("P5", self.name, sentence))
        return found
