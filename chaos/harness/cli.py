"""The commands `run`, `soak`, `list` and, of a report.json, `replay`: runs on real processes, and their reports.

What always holds: what ran is left in a folder, with a page; nothing that was started is left running. Exit codes: 0 all that
was checked held, 1 a promise broke, 2 wrong usage or something is not installed, 3 the harness itself could not continue.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from chaos.harness.bugs.bugs import BUGS
from chaos.harness.draw import drawn
from chaos.harness.faults.registry import KINDS
from chaos.harness.plan import HarnessPlan, parse
from chaos.harness.promises import NOT_CHECKED, VIOLATED
from chaos.harness.report.kept import keep, read_back, tidy
from chaos.harness.report.summary import Line, line_of, summary, write_summary
from chaos.harness.run import Harness, Run
from chaos.harness.steps.families import FAMILIES, RATE, SECONDS
from chaos.harness.traffic.workloads import WORKLOADS
from chaos.servers import toxiproxy
from chaos.servers.janitor import employ
from gateway.stopping import Stopped, stopping
from twinlog.errors import ConfigError, InvalidInput, TwinlogError, words

WIDTH = 150  # where nobody says how wide the screen is
SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="A pair of real processes, broken on purpose.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the scenarios, workloads, kinds of faults, and planted bugs")
    run = commands.add_parser("run", help="scenarios one after the other, and their reports")
    run.add_argument("scenario", nargs="+", help="a name that `list` shows, the file of a plan, or `all` (of the scenarios)")
    run.add_argument("--minutes", type=float, help="go through the faults again until so long (default: once)")
    run.add_argument("--seed", type=int, help="of what clients ask (default: the plan's)")
    run.add_argument("--out", type=Path, help="a new folder for the reports (default: out/chaos/TIME)")
    run.add_argument("--bug", default="", metavar="NAME", help=f"plant a bug in both gateways: {', '.join(BUGS)}")
    soak = commands.add_parser("soak", help="random faults from a seed, leg after leg, each with a pair of its own")
    soak.add_argument("--hours", type=float, required=True, help="no leg begins after so long")
    soak.add_argument("--seed", type=int, default=0, help="of all that is drawn (default 0)")
    soak.add_argument("--out", type=Path, help="a new folder for the reports")
    again = commands.add_parser("replay", help="the run of a report.json again")
    again.add_argument("report", type=Path)
    again.add_argument("--out", type=Path, help="a new folder for the report")
    chosen = parser.parse_args(given)
    if chosen.command == "run" and chosen.bug and chosen.bug not in BUGS:
        parser.error(f"--bug {chosen.bug}: there are {', '.join(BUGS)}")
    if getattr(chosen, "minutes", None) is not None and chosen.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if chosen.command == "soak" and chosen.hours <= 0:
        parser.error("--hours must be more than 0")
    return chosen


def scenarios() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SCENARIOS.glob("*.txt"))}


def main(given: list[str]) -> int:
    console = Console(highlight=False, markup=False, soft_wrap=True, width=None if sys.stdout.isatty() else WIDTH)
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
    is_soak = chosen.command == "soak"
    courses = _legs(chosen) if is_soak else list(_courses(chosen))
    alone = isinstance(courses, list) and len(courses) == 1
    folder = _folder(chosen.out)
    toxiproxy.fetch()
    employ()
    lines: list[Line] = []
    for course in courses:
        own = folder if alone else folder / course.name
        own.mkdir(exist_ok=True)
        console.print(f"{course.name}: {course.plan.about}\nin {own}")
        run = asyncio.run(Harness(course.plan, own, rounds=course.rounds, bug=course.bug, say=console.print).execute())
        _show(console, run, keep(run, course.name, own))
        lines.append(line_of(course.name, run))
        if is_soak or course.family:
            tidy(own, keep_all=bool(run.violations))
        if not alone:
            write_summary(folder, lines)
    console.print(summary(lines))
    return 1 if any(line.violations for line in lines) else 0


@dataclass(frozen=True, slots=True)
class Course:
    """One run that is to be made."""

    name: str
    plan: HarnessPlan
    rounds: int = 1
    bug: str = ""
    family: str = ""


def _courses(chosen: argparse.Namespace) -> Iterator[Course]:
    if chosen.command == "replay":
        yield Course(*read_back(chosen.report))
        return
    for scenario in scenarios() if chosen.scenario == ["all"] else chosen.scenario:
        if scenario in FAMILIES:
            yield from _family(scenario, chosen)
            continue
        name, plan = _plan(scenario)
        plan = plan if chosen.seed is None else replace(plan, seed=chosen.seed)
        rounds = 1 if chosen.minutes is None else max(1, round(chosen.minutes * 60 / plan.seconds))
        yield Course(name, plan, rounds, chosen.bug)


def _family(name: str, chosen: argparse.Namespace) -> Iterator[Course]:
    about, shorts = FAMILIES[name]
    for short in shorts():
        plan = HarnessPlan(f"{about} {short.name}", chosen.seed or 0, rate=RATE, seconds=SECONDS, faults=short.faults)
        yield Course(short.name, plan, bug=chosen.bug, family=name)


def _legs(chosen: argparse.Namespace) -> Iterator[Course]:
    end_s = time.monotonic() + chosen.hours * 3600
    for number in count(1):
        if time.monotonic() >= end_s:
            return
        yield Course(f"leg-{number:04d}", drawn(chosen.seed, number))


def _plan(scenario: str) -> tuple[str, HarnessPlan]:
    path = scenarios().get(scenario, Path(scenario))
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        known = ", ".join(scenarios())
        known += f"; families: {', '.join(FAMILIES)}"
        raise InvalidInput(f"{scenario} is no scenario ({known}), and no file that can be read: {words(error)}") from error
    return path.stem, parse(source)


def _folder(chosen: Path | None) -> Path:
    folder = chosen or Path("out/chaos") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
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
    families = Table("family", "runs", "what happens in each", box=None, pad_edge=False)
    for name, (about, shorts) in FAMILIES.items():
        families.add_row(name, str(len(list(shorts()))), about)
    console.print()
    console.print(families)
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
