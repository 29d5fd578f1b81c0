"""The commands `run`, `list` and, of a report.json, `replay`: one run on real processes, and its report.

What always holds: what ran is left in a folder, with a page; nothing that was started is left running. Exit codes: 0 all that
was checked held, 1 a promise broke, 2 wrong usage or something is not installed, 3 the harness itself could not continue.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from chaos.harness.bugs.bugs import BUGS
from chaos.harness.plan import KINDS, HarnessPlan, parse
from chaos.harness.promises import NOT_CHECKED, VIOLATED
from chaos.harness.report.kept import keep, read_back
from chaos.harness.run import Harness, Run
from chaos.harness.traffic.workloads import WORKLOADS
from chaos.servers import toxiproxy
from chaos.servers.janitor import employ
from gateway.stopping import Stopped, stopping
from twinlog.errors import ConfigError, InvalidInput, TwinlogError, words

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="A pair of real processes, broken on purpose.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the scenarios, workloads, kinds of faults, and planted bugs")
    run = commands.add_parser("run", help="one scenario, and its report")
    run.add_argument("scenario", help="a name that `list` shows, or the file of a plan")
    run.add_argument("--minutes", type=float, help="go through the faults again until so long (default: once)")
    run.add_argument("--seed", type=int, help="of what clients ask (default: the plan's)")
    run.add_argument("--out", type=Path, help="a new folder for the report (default: out/chaos/NAME-TIME)")
    run.add_argument("--bug", default="", metavar="NAME", help=f"plant a bug in both gateways: {', '.join(BUGS)}")
    again = commands.add_parser("replay", help="the run of a report.json again")
    again.add_argument("report", type=Path)
    again.add_argument("--out", type=Path, help="a new folder for the report")
    chosen = parser.parse_args(given)
    if chosen.command == "run" and chosen.bug and chosen.bug not in BUGS:
        parser.error(f"--bug {chosen.bug}: there are {', '.join(BUGS)}")
    if chosen.command == "run" and chosen.minutes is not None and chosen.minutes <= 0:
        parser.error("--minutes must be more than 0")
    return chosen


def scenarios() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SCENARIOS.glob("*.txt"))}


def main(given: list[str]) -> int:
    console = Console(highlight=False, markup=False, soft_wrap=True)
    chosen = arguments(given)
    if chosen.command == "list":
        _list(console)
        return 0
    try:
        with stopping():
            return _run(console, chosen)
    except Stopped:
        return 3
    except (ConfigError, InvalidInput) as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    except TwinlogError as error:
        sys.stderr.write(f"the harness could not continue: {error.message}\n")
        return 3


def _run(console: Console, chosen: argparse.Namespace) -> int:
    if chosen.command == "replay":
        name, plan, rounds, bug = read_back(chosen.report)
    else:
        name, plan = _plan(chosen.scenario)
        plan = plan if chosen.seed is None else replace(plan, seed=chosen.seed)
        rounds = 1 if chosen.minutes is None else max(1, round(chosen.minutes * 60 / plan.seconds))
        bug = chosen.bug
    folder = _folder(chosen.out, name)
    toxiproxy.fetch()
    employ()
    console.print(f"{name}: {plan.about}\nin {folder}")
    run = asyncio.run(Harness(plan, folder, rounds=rounds, bug=bug, say=console.print).execute())
    page = keep(run, name, folder)
    _show(console, run, page)
    return 1 if run.violations else 0


def _plan(scenario: str) -> tuple[str, HarnessPlan]:
    path = scenarios().get(scenario, Path(scenario))
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        known = ", ".join(scenarios())
        raise InvalidInput(f"{scenario} is no scenario ({known}), and no file that can be read: {words(error)}") from error
    return path.stem, parse(source)


def _folder(chosen: Path | None, name: str) -> Path:
    folder = chosen or Path("out/chaos") / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty: a run starts from nothing; name a new folder")
    return folder.resolve()


def _show(console: Console, run: Run, page: Path) -> None:
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


def _list(console: Console) -> None:
    table = Table("scenario", "workload", "seconds", "what happens", box=None, pad_edge=False)
    for name, path in scenarios().items():
        plan = parse(path.read_text(encoding="utf-8"))
        table.add_row(name, plan.workload, f"{plan.seconds:g}", plan.about)
    console.print(table)
    console.print(f"\nworkloads: {', '.join(WORKLOADS)}\n")
    kinds = Table("fault or command", "targets", "what it does", box=None, pad_edge=False)
    for kind in KINDS:
        kinds.add_row(kind.name, ", ".join(kind.targets), kind.sentence)
    console.print(kinds)
    bugs = Table("planted bug", "scenario", "what it breaks", box=None, pad_edge=False)
    for bug in BUGS.values():
        bugs.add_row(bug.name, bug.scenario, bug.sentence)
    console.print()
    console.print(bugs)
