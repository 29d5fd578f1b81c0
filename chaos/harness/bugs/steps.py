"""Planted bugs that only a fault at a named step, of a clock or of a resource can show."""

from __future__ import annotations

import time

from msgspec.structs import replace

from chaos.harness.bugs.bug import HarnessBug
from storage.clock import SystemClock
from switchover.operations.document import Operation
from switchover.operations.journal import HistoryEntry
from switchover.operations.sql_journal import SqlJournal

_save = SqlJournal.save


def _wall_s(self: SystemClock) -> float:
    return time.time()


async def _save_as_done(self: SqlJournal, operation: Operation, entry: HistoryEntry) -> None:
    """What the process itself knows is right: only one that starts again believes the journal."""
    if entry.event == "step started":
        steps = [replace(step, state="done") if step.name == entry.step else step for step in operation.steps]
        operation = replace(operation, steps=steps)
    await _save(self, operation, entry)


BUGS = (
    HarnessBug(
        "wall-clock-lease", "Leases and deadlines are counted by the wall clock, which somebody may set.", "P2", "clock-jumps",
        ("one_active", "linearizable", "status"), ((SystemClock, "monotonic_s", _wall_s),),
    ),
    HarnessBug(
        "journaled-before", "A step of a plan is journaled as done before it has done its work.", "P1", "at-steps",
        ("acknowledged", "linearizable", "receipts", "convergence", "workload:sets", "stuck", "processes", "invariants"),
        ((SqlJournal, "save", _save_as_done),),
    ),
)
