"""Linked lists: each new row refers to one that was acknowledged before it. No row may refer to one that is not there.

The idea is that of HBase's big linked list test: whatever is lost leaves a reference without its row (UNDEFINED), and only
what was acknowledged is ever referred to, so one such reference proves a loss, whichever operation lost it.
"""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import History, Mutation, Operation, Outcome
from chaos.workloads.workload import final_violation, table

HEADS_MAX = 64  # so many of the newest acknowledged rows are referred to


class LinkedList:
    name = "linked_list"

    def __init__(self, random: Random, read_share: float = 0.15) -> None:
        self._random, self._read_share = random, read_share
        self._acknowledged: list[str] = []
        self._rows = 0
        self.tables = (
            table("links", {"value": "string", "refers": "string"}, ("linearizable", "acknowledged", "phantom")),
        )

    def next(self, client: str) -> Operation:
        random = self._random
        if self._acknowledged and random.random() < self._read_share:
            return Operation("read", "links", key=random.choice(self._acknowledged))
        self._rows += 1
        key = f"{random.randrange(256):02x}-{client}-{self._rows}"
        refers = random.choice(self._acknowledged[-HEADS_MAX:]) if self._acknowledged else None
        return Operation("write", "links", mutations=(Mutation("upsert", key, {"value": key, "refers": refers}),))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if operation.kind == "write" and outcome.result == "ok":
            self._acknowledged.append(operation.mutations[0].key)

    def judge(self, history: History) -> list[Violation]:
        """At each site, every reference leads to a row; to one that a manifest names it may lead into the void."""
        named = {row.key for each in history.quarantines if each.kept for row in each.rows if row.table == "links"}
        found: list[Violation] = []
        for dump in history.dumps:
            rows = dump.tables.get("links", {})
            for key, stored in rows.items():
                refers = stored.row.get("refers")
                if refers is not None and refers not in rows and refers not in named:
                    sentence = f"At site {dump.site} row {key} refers to {refers}: acknowledged before, and not there."
                    found.append(final_violation("I1", self.name, sentence))
        return found
