"""Histories written by hand: one table `t`, calls with their times, and whatever else a test adds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chaos.checkers import CHECKERS
from chaos.checkers.violation import Violation
from chaos.history.history import (
    Ack,
    Call,
    Condition,
    Dump,
    DumpedRow,
    History,
    Mode,
    Moment,
    Mutation,
    Operation,
    Outcome,
    Result,
    Row,
    TableUse,
    history_of,
)
from chaos.history.lines import Line

ALL = ("linearizable", "acknowledged", "phantom", "batches", "scans")


class Plot:
    """Every method adds one line. Versions are given by the test; 0: as many as calls so far."""

    def __init__(self, *, unique: bool = True, checks: tuple[str, ...] = ALL) -> None:
        self.lines: list[Line] = [TableUse("t", {"name": "t"}, unique=unique, checks=checks)]
        self._calls = 0

    def add(self, *lines: Line) -> Plot:
        self.lines += lines
        return self

    def call(
        self, operation: Operation, begin: float, end: float | None, outcome: Outcome | None, deadline_s: float | None = None
    ) -> Plot:
        self._calls += 1
        return self.add(Call(self._calls, f"p{self._calls}", operation, begin, deadline_s, end, outcome))

    def _written(
        self, operation: Operation, begin: float, end: float | None, result: Result, version: int, mode: Mode, epoch: int,
        error: str = "",
    ) -> Plot:
        if end is None:
            return self.call(operation, begin, None, None)
        version = version or self._calls + 1
        ack = Ack("a", epoch, version, version, mode) if result == "ok" else None
        return self.call(operation, begin, end, Outcome(result, ack=ack, error=error))

    def write(
        self, key: str, value: Any, begin: float, end: float | None, result: Result = "ok", *, version: int = 0,
        mode: Mode = "sync", epoch: int = 1, **columns: Any,
    ) -> Plot:
        operation = Operation("write", "t", mutations=(Mutation("upsert", key, {"value": value, **columns}),))
        return self._written(operation, begin, end, result, version, mode, epoch)

    def delete(self, key: str, begin: float, end: float | None, result: Result = "ok", *, version: int = 0) -> Plot:
        operation = Operation("write", "t", mutations=(Mutation("delete", key),))
        return self._written(operation, begin, end, result, version, "sync", 1)

    def insert(self, key: str, value: Any, begin: float, end: float | None, result: Result = "ok", error: str = "") -> Plot:
        operation = Operation("write", "t", mutations=(Mutation("insert", key, {"value": value}),))
        return self._written(operation, begin, end, result, 0, "sync", 1, error)

    def swap(
        self, key: str, old: Any, new: Any, begin: float, end: float | None, result: Result = "ok",
        error: str = "precondition-failed", version: int = 0,
    ) -> Plot:
        """`new` if `old` stands there; old None: if there is no row; new None: delete it."""
        guard = Condition(exists=False) if old is None else Condition(column="value", op="=", value=old)
        change = Mutation("delete", key) if new is None else Mutation("upsert", key, {"value": new})
        operation = Operation("conditional", "t", key=key, conditions=(guard,), mutations=(change,))
        return self._written(operation, begin, end, result, version, "sync", 1, error)

    def batch(
        self, rows: dict[str, Any], begin: float, end: float | None, result: Result = "ok", *, version: int = 0
    ) -> Plot:
        """`version` is that of the last row."""
        changes = tuple(Mutation("upsert", key, {"value": value}) for key, value in rows.items())
        return self._written(Operation("batch", "t", mutations=changes), begin, end, result, version, "sync", 1)

    def read(self, key: str, value: Any, begin: float, end: float, *, version: int = 1, **columns: Any) -> Plot:
        rows = () if value is None else (Row(key, {"value": value, **columns}, version),)
        return self.call(Operation("read", "t", key=key), begin, end, Outcome("ok", rows=rows, site="a"))

    def scan(
        self, rows: dict[str, tuple[Any, int]], begin: float, end: float, /, *, complete: bool = True, **asked: Any
    ) -> Plot:
        """`rows`: key -> (value, version), in the order told."""
        told = tuple(Row(key, {"value": value}, version) for key, (value, version) in rows.items())
        return self.call(Operation("scan", "t", **asked), begin, end, Outcome("ok", rows=told, complete=complete, site="a"))

    def recovered(self, at_s: float) -> Plot:
        return self.add(Moment("recovered", at_s))

    def dump(self, rows: dict[str, tuple[Any, int]], site: str = "a", at_s: float = 100.0, applied: int = 50) -> Plot:
        stored = {key: DumpedRow({"value": value}, version) for key, (value, version) in rows.items()}
        return self.add(Dump(site, site == "a", at_s, applied, {"t": stored}))

    def history(self) -> History:
        return history_of(self.lines)


def last_first(count: int) -> Plot:
    """So many writes at once, of which the last that began took effect first, and a read of each, behind a write that never
    did. Nobody tries all orders."""
    plot = Plot().write("k", "never", -5, -4, "unknown").recovered(-3)
    plot.swap("k", None, "first", -2, -1, version=1)  # the row is no plain register
    for at in range(count):
        plot.write("k", f"v{at}", at / count, 1000, version=count - at + 1)
    for at in range(count):
        plot.read("k", f"v{count - 1 - at}", 2 * at + 2, 2 * at + 3, version=at + 2)
    return plot


def sentences(found: list[Violation]) -> str:
    return "\n".join(violation.sentence for violation in found)


def check_found(checker: str, build: Callable[[Plot], Plot], told: str) -> None:
    """Fails unless `checker` finds one violation in what `build` makes, bears its name there, and says `told`."""
    found = CHECKERS[checker](build(Plot()).history())
    assert len(found) == 1
    assert told in sentences(found)
    assert found[0].checker == checker
