"""The columns that a workload adds, renames and drops while it writes rows.

What always holds: a name is never used twice; a column whose change has an unknown outcome is left alone from then on.
"""

from __future__ import annotations

from random import Random
from typing import Any

from chaos.history.history import Outcome


class Columns:
    """Up to about `columns_max` columns of one table, all of them strings.

    `drop_below`: a draw from 0 to 1 below it drops a column, one above it renames a column.
    """

    def __init__(self, random: Random, columns_max: int, drop_below: float) -> None:
        self._random, self._columns_max, self._drop_below = random, columns_max, drop_below
        self.present: list[str] = []  # that are there for sure
        self._busy: set[str] = set()  # in a change that is under way, or whose outcome is unknown
        self._names = 0

    def change(self) -> dict[str, Any]:
        """Returns the body of a schema change: a column more, one less, or one by another name."""
        random = self._random
        free = [column for column in self.present if column not in self._busy]
        roll = random.random()
        if not free or (roll < 0.5 and len(self.present) < self._columns_max):
            return {"add": [{"name": self._new_name(), "type": "string"}]}
        column = random.choice(free)
        self._busy.add(column)
        return {"drop": [column]} if roll < self._drop_below else {"rename": {column: self._new_name()}}

    def _new_name(self) -> str:
        self._names += 1
        return f"extra{self._names}"

    def learn(self, body: dict[str, Any], outcome: Outcome) -> None:
        """Takes notice of what became of the change `body`."""
        gone = [*body.get("drop", ()), *body.get("rename", {})]
        if outcome.result == "not_applied":
            self._busy.difference_update(gone)
            return
        self.present = [column for column in self.present if column not in gone]
        if outcome.result == "ok":
            self.present += [column["name"] for column in body.get("add", ())]
            self.present += body.get("rename", {}).values()
