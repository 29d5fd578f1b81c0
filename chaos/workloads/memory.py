"""A pair that is no pair: rows in memory, each operation at one moment between its question and its answer.

For the tests of workloads and checkers: with no fault it keeps every promise; each named fault breaks one of them, and has
to be found. What always holds: whatever it does is decided by the Random it was given.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from chaos.history.history import Ack, Condition, Dump, DumpedRow, Mutation, Operation, Outcome, Row

_Rows = dict[str, DumpedRow]


@dataclass(frozen=True)
class Faults:
    """Each is a share of operations, 0 to 1. The first three are no sins: answers may be lost, requests too."""

    lost_answers: float = 0.0  # applied, told as unknown
    lost_requests: float = 0.0  # never applied, told as unknown
    refusals: float = 0.0  # never applied, told so
    lost_writes: float = 0.0  # acknowledged, never applied
    stale_reads: float = 0.0  # a read of what was there before the row's last change
    late_phantoms: float = 0.0  # unknown now, applied when everybody believes it settled
    applied_refusals: float = 0.0  # told as not applied, and applied
    torn_batches: float = 0.0  # only the first half of a batch is applied
    ignored_conditions: float = 0.0  # written although the condition does not hold
    torn_rows: float = 0.0  # one column of a row is not what was written with the others


@dataclass
class MemoryPair:
    """One store behind any number of clients; `log` of all versions of each row serves `as_of`."""

    random: Random
    faults: Faults = field(default_factory=Faults)
    tables: dict[str, _Rows] = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)
    log: list[tuple[int, str, str, DumpedRow | None]] = field(default_factory=list)
    late: list[Operation] = field(default_factory=list)
    version: int = 1000
    seq: int = 0
    sins: int = 0  # promises broken so far, whether anybody could notice or not

    def chance(self, share: float) -> bool:
        return share > 0 and self.random.random() < share

    def sin(self, share: float) -> bool:
        sinned = self.chance(share)
        self.sins += sinned
        return sinned

    def dump(self, site: str, at_s: float) -> Dump:
        return Dump(site, site == "a", at_s, self.seq, {name: dict(rows) for name, rows in self.tables.items()})

    def settle_late(self) -> None:
        """The late phantoms appear."""
        for operation in self.late:
            self._apply(operation, operation.mutations)
        self.late.clear()

    # ---- one operation, at one moment
    def do(self, operation: Operation) -> Outcome:
        kind, faults = operation.kind, self.faults
        if kind == "schema":
            return self._schema(operation)
        if kind == "read":
            return Outcome("ok", rows=self._read(operation), site="a", epoch=1)
        if kind == "scan":
            return self._scan(operation)
        if self.chance(faults.lost_requests):
            return Outcome("unknown")
        if self.chance(faults.refusals):
            return Outcome("not_applied", error="overloaded")
        if self.sin(faults.late_phantoms):
            self.late.append(operation)
            return Outcome("unknown")
        if (problem := self._problem(operation)) and not self.sin(faults.ignored_conditions):
            return Outcome("not_applied", error=problem)
        version = self.version + len(operation.mutations)
        mutations = operation.mutations
        if len(mutations) > 1 and self.sin(faults.torn_batches):
            mutations = mutations[: len(mutations) // 2]
        if not self.sin(faults.lost_writes):
            self._apply(operation, mutations)
        self.version, self.seq = version, self.seq + len(operation.mutations)
        if self.chance(faults.lost_answers):
            return Outcome("unknown")
        if self.sin(faults.applied_refusals):
            return Outcome("not_applied", error="overloaded")
        return Outcome("ok", ack=Ack("a", 1, self.seq, version, "sync"))

    def _problem(self, operation: Operation) -> str:
        rows = self.tables[operation.table]
        if not all(_holds(condition, rows.get(operation.key)) for condition in operation.conditions):
            return "precondition-failed"
        for mutation in operation.mutations:
            if mutation.op == "insert" and mutation.key in rows:
                return "conflict"
            if mutation.op == "update" and mutation.key not in rows:
                return "not-found"
            if mutation.row.keys() - set(self.columns[operation.table]):
                return "invalid-input"
        return ""

    def _apply(self, operation: Operation, mutations: tuple[Mutation, ...]) -> None:
        rows = self.tables[operation.table]
        for at, mutation in enumerate(mutations):
            version = self.version + at + 1
            if mutation.op == "delete":
                rows.pop(mutation.key, None)
                self.log.append((version, operation.table, mutation.key, None))
                continue
            old = rows[mutation.key].row if mutation.op == "update" and mutation.key in rows else {}
            row: dict[str, Any] = {column: None for column in self.columns[operation.table]} | old | mutation.row
            if "copy" in row and self.sin(self.faults.torn_rows):
                row["copy"] = "torn"
            rows[mutation.key] = DumpedRow(row, version)
            self.log.append((version, operation.table, mutation.key, rows[mutation.key]))
        self.version += len(mutations)

    def _read(self, operation: Operation) -> tuple[Row, ...]:
        rows = self.tables[operation.table] if operation.as_of is None else self._as_of(operation.table, operation.as_of)
        stored = rows.get(operation.key)
        if self.sin(self.faults.stale_reads):
            before = [entry for entry in self.log if entry[1] == operation.table and entry[2] == operation.key]
            stored = before[-2][3] if len(before) > 1 else None
        return () if stored is None else (Row(operation.key, stored.row, stored.version),)

    def _scan(self, operation: Operation) -> Outcome:
        rows = self.tables[operation.table] if operation.as_of is None else self._as_of(operation.table, operation.as_of)
        keys = sorted(
            (key for key in rows if (operation.start or "") <= key and (operation.end is None or key < operation.end)),
            reverse=operation.reverse,
        )
        told = keys[: operation.limit]
        found = tuple(Row(key, rows[key].row, rows[key].version) for key in told)
        return Outcome("ok", rows=found, complete=len(told) == len(keys), site="a", epoch=1)

    def _as_of(self, name: str, as_of: int) -> _Rows:
        rows: _Rows = {}
        for version, table, key, stored in self.log:
            if table == name and version <= as_of:
                rows.pop(key, None)
                if stored is not None:
                    rows[key] = stored
        return rows

    def _schema(self, operation: Operation) -> Outcome:
        body, table = operation.body, operation.table
        if "name" in body:
            self.tables[table] = {}
            self.columns[table] = [column["name"] for column in body["columns"] if column["name"] not in body["primary_key"]]
            return Outcome("ok")
        renamed, dropped = body.get("rename", {}), body.get("drop", ())
        if (renamed.keys() | set(dropped)) - set(self.columns[table]):
            return Outcome("not_applied", error="invalid-input")
        added = [column["name"] for column in body.get("add", ())]
        self.columns[table] = [renamed.get(name, name) for name in self.columns[table] if name not in dropped] + added
        for key, stored in self.tables[table].items():
            row = {renamed.get(name, name): content for name, content in stored.row.items() if name not in dropped}
            self.tables[table][key] = DumpedRow(row | dict.fromkeys(added), stored.version)
        return Outcome("ok")


def _holds(condition: Condition, stored: DumpedRow | None) -> bool:
    if condition.exists is not None:
        return (stored is not None) == condition.exists
    if stored is None:
        return False
    if condition.version is not None:
        return stored.version == condition.version
    assert condition.column is not None
    return bool(stored.row.get(condition.column) == condition.value)


class MemoryClient:
    """Between question and answer it lets others go first, some random number of times."""

    def __init__(self, pair: MemoryPair) -> None:
        self._pair = pair

    async def execute(self, operation: Operation) -> Outcome:
        await self._wait()
        outcome = self._pair.do(operation)
        await self._wait()
        return outcome

    async def _wait(self) -> None:
        for _ in range(self._pair.random.randrange(4)):
            await asyncio.sleep(0)
