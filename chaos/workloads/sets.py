"""A set: clients add elements that nobody else adds, and read all of it by scan. Every acknowledged add must be there."""

from __future__ import annotations

from random import Random

from chaos.checkers.violation import Violation
from chaos.history.history import History, Mutation, Operation, Outcome
from chaos.workloads.workload import final_violation, table

SHOWN_MAX = 5


class Sets:
    """`size_max`: a set with so many elements is left, and another one begun, so that a long run does not read all of it again
    and again; None: there is one set."""

    name = "sets"

    def __init__(self, random: Random, scan_share: float = 0.1, size_max: int | None = None) -> None:
        self._random, self._scan_share, self._size_max = random, scan_share, size_max
        self._elements = 0
        self.tables = (
            table("sets", {"value": "string"}, ("linearizable", "acknowledged", "phantom", "scans")),
        )

    def next(self, client: str) -> Operation:
        if self._random.random() < self._scan_share:
            begin = self._begin()
            return Operation("scan", "sets", start=begin or None, end=f"{begin}~" if begin else None)
        self._elements += 1
        element = f"{self._begin()}{self._random.randrange(256):02x}-{client}-{self._elements}"
        return Operation("write", "sets", mutations=(Mutation("upsert", element, {"value": element}),))

    def _begin(self) -> str:
        """Returns how the elements of the present set begin."""
        return "" if self._size_max is None else f"s{self._elements // self._size_max}-"

    def learn(self, client: str, operation: Operation, outcome: Outcome) -> None:
        """The next operation does not depend on it."""

    def judge(self, history: History) -> list[Violation]:
        """All acknowledged adds are present at each site; those that a manifest names may be away."""
        named = {row.key for each in history.quarantines if each.kept for row in each.rows if row.table == "sets"}
        added = {
            call.operation.mutations[0].key: call.id for call in history.calls
            if call.operation.table == "sets" and call.operation.kind == "write"
            and call.outcome is not None and call.outcome.result == "ok"
        }
        found: list[Violation] = []
        for dump in history.dumps:
            lost = sorted(added.keys() - named - dump.tables.get("sets", {}).keys())
            if lost:
                sentence = f"Site {dump.site} lacks {len(lost)} elements that were added: {', '.join(lost[:SHOWN_MAX])}."
                found.append(final_violation("I1", self.name, sentence, tuple(added[key] for key in lost[:SHOWN_MAX])))
        return found
