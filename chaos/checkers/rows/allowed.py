"""P3: a schema counts from its acknowledgement on: what it allows is not refused as wrong, and what it forbids is not taken.

What always holds: a column is there for certain from the acknowledgement of the change that adds it until a change begins that
may take it away, and gone for certain from the acknowledgement of such a change on. A batch that inserts a key which it names
again may be refused (docs/api.md). Where a forced takeover may have undone schema changes, only the first columns are judged.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from chaos.checkers.violation import Violation
from chaos.history.history import Call, History, TableUse

NAME = "allowed"
WRONG = frozenset(("invalid-input", "malformed-body"))


def check(history: History) -> list[Violation]:
    undone = bool(history.given_up or history.apart or history.quarantines)
    found: list[Violation] = []
    for use in history.tables:
        calls = [call for call in history.calls if call.operation.table == use.name]
        columns = _Columns(use, [] if undone else calls, calls)
        for call in calls:
            if call.operation.kind in ("write", "batch", "conditional"):
                found += _judged(call, columns)
    return found


def _judged(call: Call, columns: _Columns) -> Iterable[Violation]:
    if call.outcome is None or call.returned_s is None:
        return
    named = sorted(_named(call))
    if call.outcome.error in WRONG:
        if all(columns.is_there(name, call.invoked_s, call.returned_s) for name in named) and not _inserts_again(call):
            sentence = f"Call {call.id} was refused as {call.outcome.error}, and its columns ({', '.join(named)}) were there."
            yield Violation("P3", NAME, sentence, (call.id,), (call.invoked_s, call.returned_s))
    elif call.outcome.result == "ok":
        for name in named:
            if columns.is_gone(name, call.invoked_s):
                sentence = f"Call {call.id} was acknowledged, and its column {name} had been taken away before."
                yield Violation("P3", NAME, sentence, (call.id,), (call.invoked_s, call.returned_s))


def _named(call: Call) -> set[str]:
    conditions = {condition.column for condition in call.operation.conditions if condition.column is not None}
    return conditions.union(*(mutation.row for mutation in call.operation.mutations))


def _inserts_again(call: Call) -> bool:
    keys = [mutation.key for mutation in call.operation.mutations]
    return any(mutation.op == "insert" and keys.count(mutation.key) > 1 for mutation in call.operation.mutations)


class _Columns:
    """The columns of a table in the course of a run; no name is used twice."""

    def __init__(self, use: TableUse, adding: Iterable[Call], taking: Iterable[Call]) -> None:
        """`adding`: the calls among which columns come; `taking`: those among which they go."""
        self._added_s = {column["name"]: -inf for column in use.schema.get("columns", ())}
        self._taken_s: dict[str, float] = {}  # the earliest moment at which it may have gone
        self._gone_s: dict[str, float] = {}
        for call in adding:
            if call.operation.kind == "schema" and _is_done(call):
                body, ended_s = call.operation.body, call.returned_s or 0.0
                for name in [*(column["name"] for column in body.get("add", ())), *body.get("rename", {}).values()]:
                    self._added_s[name] = ended_s
                for name in (*body.get("drop", ()), *body.get("rename", {})):
                    self._gone_s[name] = ended_s
        for call in taking:
            if call.operation.kind == "schema" and (call.outcome is None or call.outcome.result != "not_applied"):
                body = call.operation.body
                for name in (*body.get("drop", ()), *body.get("rename", {})):
                    self._taken_s[name] = min(self._taken_s.get(name, inf), call.invoked_s)

    def is_there(self, name: str, from_s: float, to_s: float) -> bool:
        """True: for certain, throughout that time."""
        return self._added_s.get(name, inf) <= from_s and self._taken_s.get(name, inf) > to_s

    def is_gone(self, name: str, at_s: float) -> bool:
        """True: for certain, from then on."""
        return self._gone_s.get(name, inf) < at_s


def _is_done(call: Call) -> bool:
    return call.outcome is not None and call.outcome.result == "ok"
