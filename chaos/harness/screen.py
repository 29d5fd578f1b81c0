"""The screens of the commands on real processes: what there is, and what came of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from chaos.harness.bugs.bugs import BUGS
from chaos.harness.courses import scenarios
from chaos.harness.faults.registry import KINDS
from chaos.harness.matrix.rows import ROWS
from chaos.harness.plan import parse
from chaos.harness.promises import NOT_CHECKED, VIOLATED
from chaos.harness.run import Run
from chaos.harness.steps.families import FAMILIES
from chaos.harness.traffic.workloads import WORKLOADS
from gateway.stopping import Stopped
from twinlog.errors import ConfigError, InvalidInput, TwinlogError

WIDTH = 150  # where nobody says how wide the screen is


def console_of() -> Console:
    return Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)


def ended(work: Callable[[], int], otherwise: str) -> int:
    """Returns the exit code: that of `work`; else 2 for wrong usage or something that is not installed, or 3, with a sentence
    that `otherwise` begins."""
    try:
        return work()
    except Stopped:
        return 3
    except (ConfigError, InvalidInput) as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    except TwinlogError as error:
        sys.stderr.write(f"{otherwise}: {error.message}\n")
        return 3


def show(console: Console, run: Run, page: Path) -> None:
    for violation in run.violations[:10]:
        console.print(f"BROKEN {violation.promise} ({violation.checker}): {violation.sentence}")
    states = Counter(each.state for each in run.verdicts)
    told = ", ".join(f"{count} {state}" for state, count in states.items())
    unchecked = ", ".join(each.checker for each in run.verdicts if each.state == NOT_CHECKED)
    broken = ", ".join(each.checker for each in run.verdicts if each.state == VIOLATED)
    console.print(f"{len(run.history.calls):,} operations; invariants: {told}")
    if broken:
        console.print(f"violated: {broken}")
    console.print(f"not checked in this run: {unchecked}\nreport: {page}")


def show_found(console: Console, found: Mapping[str, Collection[str]]) -> bool:
    """Returns whether each planted bug was found by a checker that it names. `found`: bug -> checkers that were violated."""
    table = Table("planted bug", "", "violated", box=None, pad_edge=False)
    missed = [name for name, checkers in found.items() if not set(checkers) & set(BUGS[name].checkers)]
    for name, checkers in found.items():
        table.add_row(name, "missed" if name in missed else "found", ", ".join(sorted(checkers)))
    console.print(table)
    return not missed


def show_list(console: Console) -> None:
    table = Table("scenario", "workload", "seconds", "needs", "what happens", box=None, pad_edge=False)
    for name, path in scenarios().items():
        plan = parse(path.read_text(encoding="utf-8"))
        table.add_row(name, plan.workload, f"{plan.seconds:g}", " ".join(plan.needs), plan.about)
    families = Table("family of scenarios", "runs", "what happens in each", box=None, pad_edge=False)
    for name, (about, shorts) in FAMILIES.items():
        families.add_row(name, str(len(list(shorts()))), about)
    rows = Table("row of the matrix", "what goes wrong", "scenarios", box=None, pad_edge=False)
    for row in ROWS:
        rows.add_row(row.name, row.sentence, ", ".join(row.scenarios) or f"none: {', '.join(row.elsewhere)}")
    kinds = Table("fault or command", "targets", "what it does", box=None, pad_edge=False)
    for kind in KINDS:
        kinds.add_row(kind.name, ", ".join(kind.targets), kind.sentence)
    bugs = Table("planted bug", "scenario", "what it breaks", box=None, pad_edge=False)
    for bug in BUGS.values():
        bugs.add_row(bug.name, bug.scenario, bug.sentence)
    console.print(table)
    for shown in (families, f"workloads: {', '.join(WORKLOADS)}", rows, kinds, bugs):
        console.print()
        console.print(shown)
