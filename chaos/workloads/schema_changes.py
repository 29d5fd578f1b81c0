"""Schema changes under load: columns are added, renamed and dropped while rows are written and read.

What always holds: every column but the key holds the row's value or nothing, whatever it is called by now; so whoever mixes
up columns, or brings back what a dropped one held, is found.
"""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import History, Mutation, Operation, Outcome
from chaos.workloads.columns import Columns
from chaos.workloads.workload import final_violation, table


class SchemaChanges:
    name = "schema_changes"

    def __init__(self, random: Random, rows: int = 6, change_share: float = 0.08) -> None:
        self._random, self._change_share = random, change_share
        self._keys = [f"t{at}" for at in range(rows)]
        self._columns = Columns(random, columns_max=4, drop_below=0.7)
        self._values = 0
        self.tables = (
            table("shaped", {"value": "string"}, ("linearizable", "acknowledged", "phantom")),
        )

    def next(self, client: str) -> Operation:
        random = self._random
        roll = random.random()
        if roll < self._change_share:
            return Operation("schema", "shaped", body=self._columns.change())
        key = random.choice(self._keys)
        if roll < 0.45:
            return Operation("read", "shaped", key=key)
        if roll < 0.5:
            return Operation("scan", "shaped")
        self._values += 1
        value = f"{client}-{self._values}"
        row = {"value": value, **{column: value for column in self._columns.present if random.random() < 0.7}}
        return Operation("write", "shaped", mutations=(Mutation("upsert", key, row),))

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        if operation.kind == "schema" and "name" not in operation.body:
            self._columns.learn(operation.body, outcome)

    def judge(self, history: History) -> list[Violation]:
        """Each column of each row that a client or a site showed holds the row's value or nothing."""
        shown = [
            (row.key, row.row, f"to call {call.id}") for call in history.calls
            if call.operation.table == "shaped" and call.outcome is not None for row in call.outcome.rows
        ]
        shown += [
            (key, stored.row, f"in storage at site {dump.site}")
            for dump in history.dumps for key, stored in dump.tables.get("shaped", {}).items()
        ]
        return [
            final_violation("P3", self.name, f"Row {key} shows {column} = {content!r} beside value {row['value']!r} {where}.")
            for key, row, where in shown for column, content in row.items() if content not in (None, row.get("value"))
        ]
