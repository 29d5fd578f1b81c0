"""The index of a history that the checkers of rows share: for each table and key, who wrote what and who saw what.

What always holds: what was read where a later epoch was not known of is no fact (answers.py), and a refusal is one only if it
shows what was stored; what a rejoin put into quarantine by name counts as written but `lost`; an unknown write ends when
recovery was declared done after it (it may take effect up to then, once). A key that a request changes twice counts once, with
the last change. None stands for "no row".
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from math import inf
from typing import Any

import msgspec

from chaos.checkers.answers import forgiven
from chaos.history.history import Call, Condition, DumpedRow, History, Mutation, Row, TableUse

KEEP = "\0keep"  # an update that leaves the value column as it is
TELLING = frozenset(("precondition-failed", "conflict", "not-found"))
_EXISTS = (Condition(exists=True),)
_ABSENT = (Condition(exists=False),)


class Write(msgspec.Struct, gc=False):
    """One change of one row by one call. `value`: what the value column becomes; None: no row any more; KEEP: stays.

    `guards`: conditions on this very row, stated or implied. `end_s`: the latest moment at which it can take effect.
    `version`: from the acknowledgement or from who saw it; 0: not known.
    """

    call: Call
    mutation: Mutation
    value: Any
    guards: tuple[Condition, ...]
    result: str
    invoked_s: float
    end_s: float
    version: int
    lost: bool = False


class Seen(msgspec.Struct, gc=False):
    """One value of one row, or its absence (value None, row None), as a client saw it.

    On a plain row all looks at the same value are one: `call` returned first (`returned_s`), `last_call` was invoked last
    (`invoked_s`). On any other row each look is one of its own.
    """

    value: Any
    row: Row | None
    call: Call
    returned_s: float
    last_call: Call
    invoked_s: float


class Refusal(msgspec.Struct, gc=False):
    """A conditional write that was refused: its conditions on this row did not hold at one moment in its time."""

    call: Call
    guards: tuple[Condition, ...]
    invoked_s: float
    returned_s: float


class KeyFacts(msgspec.Struct, gc=False):
    """`plain`: only whole rows are written, without conditions, and never deleted: a register with unique values.

    `variants`: looks at a plain row that showed other columns beside a value than the first look at it. `deletes`: those of
    the writes that may have taken the row away.
    """

    writes: list[Write]
    refusals: list[Refusal]
    plain: bool
    looks: dict[Any, Seen]
    seen: list[Seen]
    variants: list[Seen]
    deletes: list[Write]
    lost_from_s: float = inf  # from here on an absence or refusal may tell of what was lost


class TableFacts:
    def __init__(self, use: TableUse) -> None:
        self.use = use
        self.keys: dict[str, KeyFacts] = {}
        self.by_value: dict[Any, Write] = {}  # of a unique table; definite rejects are in it too
        self.scans: list[Call] = []
        self.past: list[Call] = []  # reads of one row as of a version
        self.altered = False  # then a conflict may be with a schema change, and tells nothing of rows
        self.moved: set[str] = set()  # columns that a change may have dropped, or given another name

    def key(self, name: str) -> KeyFacts:
        facts = self.keys.get(name)
        if facts is None:
            facts = self.keys[name] = KeyFacts([], [], self.use.unique, {}, [], [], [])
        return facts

    def value_of(self, row: Row | DumpedRow) -> Any:
        return row.row.get(self.use.value)


class Facts:
    def __init__(self, history: History) -> None:
        self.history = history
        self.tables = {use.name: TableFacts(use) for use in history.tables}
        self._given_up = {each.epoch for each in history.given_up}
        self._settled = sorted(moment.at_s for moment in history.moments if moment.name == "recovered")
        for call in history.calls:
            if call.operation.kind == "schema" and (altered := self.tables.get(call.operation.table)) is not None:
                altered.altered = True
                renamed: dict[str, str] = call.operation.body.get("rename", {})
                altered.moved.update(call.operation.body.get("drop", ()), renamed, renamed.values())
        looks: list[tuple[TableFacts, Call]] = []
        for call in history.calls:
            operation = call.operation
            table = self.tables.get(operation.table)
            if table is None or operation.kind == "schema":
                continue
            if operation.kind not in ("read", "scan"):
                self._take_write(table, call)
            elif call.id in forgiven(history) or self._is_given_up(call):
                continue
            elif call.outcome is not None and call.outcome.result == "ok" and call.returned_s is not None:
                looks.append((table, call))
        for table, call in looks:  # after the writes: they say which rows are plain
            _take_looks(table, call, call.returned_s or 0.0)
        for table in self.tables.values():
            _take_absences(table)
            for facts in table.keys.values():
                facts.seen += facts.looks.values()
            self._versions(table)
        self._losses(history)

    def _is_given_up(self, call: Call) -> bool:
        """It reports an epoch that a forced takeover undid, and that may come back with a site that was away meanwhile."""
        return bool(self._given_up) and call.outcome is not None and call.outcome.epoch in self._given_up

    def settled_s(self, call: Call) -> float:
        """Returns the time from which a call of unknown outcome can no longer take effect."""
        known = call.returned_s if call.returned_s is not None else call.deadline_s
        at = bisect_left(self._settled, call.invoked_s if known is None else known)
        return self._settled[at] if at < len(self._settled) else inf

    def _take_write(self, table: TableFacts, call: Call) -> None:
        operation, outcome = call.operation, call.outcome
        result, end_s, version = "unknown", 0.0, 0
        if outcome is not None and call.returned_s is not None:
            result, end_s = outcome.result, call.returned_s
            if outcome.ack is not None:
                version = outcome.ack.version - len(operation.mutations) + 1
            told = outcome.error in TELLING and call.id not in forgiven(self.history) and not self._is_given_up(call)
            if result == "not_applied" and told:
                self._take_refusal(table, call)
        if result == "unknown":
            end_s = self.settled_s(call)
        mutations = operation.mutations
        last = {mutation.key: at for at, mutation in enumerate(mutations)} if len(mutations) > 1 else None
        column = table.use.value
        unguarded = bool(operation.conditions)
        for at, mutation in enumerate(mutations):
            if last is not None and last[mutation.key] != at:
                continue
            guards = _guards(call, mutation, last is None)
            facts = table.key(mutation.key)
            if mutation.op == "delete":
                value = None
                facts.plain = False
            else:
                value = mutation.row.get(column, KEEP)
                if guards or value is KEEP:
                    facts.plain = False
            write = Write(call, mutation, value, guards, result, call.invoked_s, end_s, version + at if version else 0)
            facts.writes.append(write)
            if value is None and result != "not_applied":
                facts.deletes.append(write)
            if table.use.unique and value is not None:
                table.by_value[value] = write
            unguarded = unguarded and mutation.key != operation.key
        if unguarded and result == "ok":  # the conditions were on a row that the request does not change
            facts = table.key(operation.key)
            facts.plain = False
            nothing = Mutation("update", operation.key)
            facts.writes.append(Write(call, nothing, KEEP, operation.conditions, "ok", call.invoked_s, end_s, 0))

    def _take_refusal(self, table: TableFacts, call: Call) -> None:
        """Reported only where one row alone can have refused it."""
        assert call.returned_s is not None
        operation = call.operation
        if operation.conditions:
            key, guards = operation.key, operation.conditions
            if any(mutation.op in ("insert", "update") for mutation in operation.mutations):
                return
        elif len(operation.mutations) == 1:
            key = operation.mutations[0].key
            guards = _guards(call, operation.mutations[0], True)
        else:
            return
        if guards:
            facts = table.key(key)
            facts.plain = False
            assert call.outcome is not None
            if not (table.altered and call.outcome.error == "conflict"):
                facts.refusals.append(Refusal(call, guards, call.invoked_s, call.returned_s))

    def _versions(self, table: TableFacts) -> None:
        """A write without an acknowledgement is known by the version under which it was seen."""
        if not table.use.unique:
            return
        for facts in table.keys.values():
            for seen in facts.seen:
                if seen.row is not None and (write := table.by_value.get(seen.value)) is not None and not write.version:
                    write.version = seen.row.version

    def _losses(self, history: History) -> None:
        """Removes the writes of loss manifests from the judgement, and all observations of them."""
        named = {(row.table, row.key, row.version) for q in history.quarantines if q.kept for row in q.rows}
        for table, key in {(table, key) for table, key, _ in named}:
            facts = self.tables[table].keys.get(key) if table in self.tables else None
            if facts is None:
                continue
            for write in facts.writes:
                if (table, key, write.version) in named:
                    write.lost = True
                    facts.lost_from_s = min(facts.lost_from_s, write.invoked_s)
            facts.refusals = [each for each in facts.refusals if each.returned_s < facts.lost_from_s]
            facts.seen = [
                seen for seen in facts.seen
                if (seen.row is None and (facts.plain or seen.returned_s < facts.lost_from_s))
                or (seen.row is not None and (table, key, seen.row.version) not in named)
            ]


def _take_looks(table: TableFacts, call: Call, returned_s: float) -> None:
    operation, outcome, invoked_s = call.operation, call.outcome, call.invoked_s
    assert outcome is not None
    if operation.kind == "scan":
        table.scans.append(call)
    if operation.as_of is not None:
        if operation.kind == "read":
            table.past.append(call)
        return
    if operation.kind == "read" and not outcome.rows:
        _look(table.key(operation.key), None, None, call, returned_s)
    keys, column = table.keys, table.use.value
    for row in outcome.rows:
        value = row.row.get(column)
        facts = keys.get(row.key) or table.key(row.key)
        known = facts.looks.get(value)
        if known is None or known.row is None or known.row.row != row.row or known.row.version != row.version:
            _look(facts, value, row, call, returned_s)
            continue
        if invoked_s > known.invoked_s:
            known.invoked_s, known.last_call = invoked_s, call
        if returned_s < known.returned_s:
            known.returned_s, known.call = returned_s, call


def _look(facts: KeyFacts, value: Any, row: Row | None, call: Call, returned_s: float) -> None:
    if not facts.plain:
        facts.seen.append(Seen(value, row, call, returned_s, call, call.invoked_s))
        return
    known = facts.looks.get(value)
    if known is None:
        facts.looks[value] = Seen(value, row, call, returned_s, call, call.invoked_s)
        return
    if row is not None:
        facts.variants.append(Seen(value, row, call, returned_s, call, call.invoked_s))
    if call.invoked_s > known.invoked_s:
        known.invoked_s, known.last_call = call.invoked_s, call
    if returned_s < known.returned_s:
        known.returned_s, known.call = returned_s, call


def _take_absences(table: TableFacts) -> None:
    """Records that a row which a complete scan did not show was absent; of a plain row only the last absence matters."""
    scans = [
        call for call in table.scans
        if call.outcome is not None and call.outcome.complete and call.operation.as_of is None
    ]
    if not scans:
        return
    others = {key for key, facts in table.keys.items() if not facts.plain}
    open_keys = table.keys.keys() - others
    ordered = sorted(table.keys)
    for call in sorted(scans, key=lambda call: call.invoked_s, reverse=True):
        assert call.outcome is not None
        assert call.returned_s is not None
        start, end = call.operation.start, call.operation.end
        absent = {row.key for row in call.outcome.rows}
        if start is None and end is None:
            absent = table.keys.keys() - absent
        else:  # few of many
            to = len(ordered) if end is None else bisect_left(ordered, end)
            absent = set(ordered[bisect_left(ordered, start or ""):to]) - absent
        for key in open_keys & absent:
            _look(table.keys[key], None, None, call, call.returned_s)
            open_keys.discard(key)
        for key in others & absent:
            _look(table.keys[key], None, None, call, call.returned_s)


def _guards(call: Call, mutation: Mutation, alone: bool) -> tuple[Condition, ...]:
    """Conditions on the row of `mutation`; inside a batch an earlier mutation of it may have met an implied one."""
    operation = call.operation
    stated = operation.conditions if operation.key == mutation.key else ()
    if mutation.op in ("insert", "update") and (alone or sum(m.key == mutation.key for m in operation.mutations) == 1):
        return (*stated, *(_ABSENT if mutation.op == "insert" else _EXISTS))
    return stated


@lru_cache(maxsize=2)
def facts_of(history: History) -> Facts:
    """Made once for each history, for all checkers; a history never changes."""
    return Facts(history)
