"""Appends to long lists: read a list, write it with one element more, on condition that nobody else did meanwhile.

Whoever reads sees the whole past of a list, so that a look back in time, a lost or a repeated element shows in every later
read: it is the strongest test of an order. A list that is long enough is left, and another one begun.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import Call, Condition, History, Mutation, Operation, Outcome, Row
from chaos.workloads.workload import final_violation, table

TABLE = "appends"
LENGTH_MAX = 120


class Appends:
    """`lists` lists at a time. The row of a list holds its elements, joined by blanks."""

    name = "appends"

    def __init__(self, random: Random, lists: int = 2) -> None:
        self._random = random
        self._keys = [f"l{at}" for at in range(lists)]
        self._begun = lists
        self._elements = 0
        self._seen: dict[str, tuple[str, Row | None]] = {}
        self.tables = (table(TABLE, {"value": "string"}, ("linearizable", "acknowledged", "phantom")),)

    def next(self, client: str) -> Operation:
        known = self._seen.pop(client, None)
        if known is None or self._random.random() < 0.2:
            return Operation("read", TABLE, key=self._random.choice(self._keys))
        key, row = known
        self._elements += 1
        value = " ".join(filter(None, (row.row["value"] if row is not None else "", f"e{self._elements}")))
        condition = Condition(exists=False) if row is None else Condition(version=row.version)
        change = Mutation("upsert", key, {"value": value})
        return Operation("conditional", TABLE, key=key, conditions=(condition,), mutations=(change,))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if operation.kind != "read" or outcome.result != "ok":
            return
        row = outcome.rows[0] if outcome.rows else None
        if row is not None and len(elements(row.row["value"])) >= LENGTH_MAX and operation.key in self._keys:
            self._keys[self._keys.index(operation.key)] = f"l{self._begun}"
            self._begun += 1
        self._seen[client] = operation.key, row

    def judge(self, history: History) -> list[Violation]:
        """Every list that anybody saw is a beginning of what stands at the end, with each acknowledged element once, and none
        that was refused; elements that a manifest names may be away."""
        found: list[Violation] = []
        named = {row.key for each in history.quarantines if each.kept for row in each.rows if row.table == TABLE}
        for dump in history.dumps:
            lists = {key: elements(row.row["value"]) for key, row in dump.tables.get(TABLE, {}).items()}
            for call in history.calls:
                key = call.operation.key
                if call.operation.table == TABLE and key not in named and (told := _wrong(call, lists.get(key, []))):
                    sentence = f"{told}, and list {key} at site {dump.site} has {len(lists.get(key, []))} elements at the end."
                    found.append(final_violation("P3", self.name, sentence, (call.id,)))
            for key, stored in lists.items():
                twice = [element for element, count in Counter(stored).items() if count > 1]
                if twice:
                    sentence = f"List {key} at site {dump.site} has {twice[0]} more than once."
                    found.append(final_violation("P3", self.name, sentence))
        return found


def elements(value: str) -> list[str]:
    return value.split()


def appended(call: Call) -> str:
    """Returns the element that a conditional write of this workload appends."""
    return elements(call.operation.mutations[0].row["value"])[-1]


def _wrong(call: Call, stored: list[str]) -> str:
    outcome = call.outcome
    if outcome is None:
        return ""
    if call.operation.kind == "read" and outcome.result == "ok":
        seen = elements(outcome.rows[0].row["value"]) if outcome.rows else []
        begins = stored[: len(seen)] == seen
        return "" if begins else f"Call {call.id} saw {len(seen)} elements that are not how the list begins"
    if call.operation.kind != "conditional":
        return ""
    if outcome.result == "ok" and appended(call) not in stored:
        return f"Call {call.id} appended {appended(call)}, which is not there"
    if outcome.result == "not_applied" and appended(call) in stored:
        return f"Call {call.id} was refused to append {appended(call)}, which is there"
    return ""
