"""Several runs in one table: for each what it did, what it cost, and whether everything held.

What always holds: the totals are sums of the lines, but the longest time without writes or reads, which is the longest of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from chaos.harness.faults.steps import NOT_REACHED
from chaos.harness.pair.commands import BY_PLAN
from chaos.harness.report.figures import totals
from chaos.harness.run import Run


class Line(msgspec.Struct, frozen=True):
    """One run. `faults` came about, commands included; `typed`: commands that brought it back; `unreached`: steps at which
    something was to happen, and which were not passed; `stuck`: no documented command helped."""

    name: str
    workload: str
    faults: int
    operations: int
    acknowledged: int
    unknown: int
    violations: int
    stuck: int
    without_writes_s: float
    without_reads_s: float
    lasted_s: float
    typed: int = 0
    unreached: int = 0


def line_of(name: str, run: Run) -> Line:
    found = totals(run.history)
    stuck = sum(violation.checker == "stuck" for violation in run.violations)
    unreached = sum(span.told.endswith(NOT_REACHED) for span in run.spans)
    faults = sum(not span.skipped for span in run.spans) - unreached
    return Line(
        name, run.plan.workload, faults, found.operations, found.acknowledged, found.unknown, len(run.violations), stuck,
        found.without_writes_s, found.without_reads_s, run.lasted_s, sum(each.why != BY_PLAN for each in run.typed), unreached,
    )


def total(lines: Sequence[Line]) -> Line:
    def summed(member: str) -> int:
        return sum(getattr(line, member) for line in lines)

    return Line(
        "all", "", summed("faults"), summed("operations"), summed("acknowledged"), summed("unknown"), summed("violations"),
        summed("stuck"), max(line.without_writes_s for line in lines), max(line.without_reads_s for line in lines),
        sum(line.lasted_s for line in lines), summed("typed"), summed("unreached"),
    )


def summary(lines: Sequence[Line]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold")
    table.add_column("workload")
    counts = ("faults", "unreached", "typed", "operations", "acknowledged", "unknown", "violations", "stuck")
    for name in (*counts, "no writes", "no reads", "took"):
        table.add_column(name, justify="right")
    for line in (*lines, total(lines)) if len(lines) > 1 else lines:
        table.add_row(
            line.name, line.workload, f"{line.faults:,}", str(line.unreached), str(line.typed),
            f"{line.operations:,}", f"{line.acknowledged:,}", f"{line.unknown:,}", str(line.violations), str(line.stuck),
            f"{line.without_writes_s:.2f} s", f"{line.without_reads_s:.2f} s", f"{line.lasted_s:.0f} s",
        )
    return table


def write_summary(folder: Path, lines: Sequence[Line]) -> None:
    """summary.json: all lines, and their total."""
    document = {"runs": list(lines), "total": total(lines)}
    (folder / "summary.json").write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
