"""The runs that a command asks for: of scenarios, of the rows of the matrix, of a soak, or of a report again.

What always holds: a course has all that its run is made from; who asks twice gets the same courses, unless a record says what
has run already.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import inf
from pathlib import Path

from msgspec.structs import replace

from chaos.harness.bugs.bugs import BUGS
from chaos.harness.bugs.plans import plan_of
from chaos.harness.matrix.record import read
from chaos.harness.matrix.rows import BY_NAME, ROWS, Row
from chaos.harness.pair.parts import PLAIN, Parts
from chaos.harness.plan import HarnessPlan, parse
from chaos.harness.report.kept import read_back
from chaos.harness.soak import record as legs
from chaos.harness.soak.draw import drawn
from chaos.harness.steps.families import FAMILIES, RATE, SECONDS
from twinlog.errors import InvalidInput, words

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
SOAK = "soak"


@dataclass(frozen=True, slots=True)
class Course:
    """One run that is to be made. `row`, `scenario`: as the record has it."""

    name: str
    plan: HarnessPlan
    parts: Parts
    rounds: int = 1
    bug: str = ""
    row: str = ""
    scenario: str = ""


def scenarios() -> dict[str, Path]:
    return {path.stem: path for path in sorted(SCENARIOS.glob("*.txt"))}


def parts_of(chosen: argparse.Namespace) -> Parts:
    return Parts(chosen.dfs, chosen.engine, chosen.coordinator, chosen.secured)


def of_scenarios(chosen: argparse.Namespace) -> Iterator[Course]:
    """Raises InvalidInput, and ConfigError where a plan needs other parts."""
    for scenario in chosen.scenario:
        if scenario in FAMILIES:
            yield from _of_a_family(scenario, chosen)
            continue
        name, plan = read_plan(scenario)
        parts_of(chosen).check(name, plan.needs)
        plan = plan if chosen.seed is None else replace(plan, seed=chosen.seed)
        rounds = 1 if chosen.minutes is None else max(1, round(chosen.minutes * 60 / plan.seconds))
        yield Course(name, plan, parts_of(chosen), rounds, chosen.bug, scenario=name)


def _of_a_family(name: str, chosen: argparse.Namespace) -> Iterator[Course]:
    for short, plan in family(name):
        plan = plan if chosen.seed is None else replace(plan, seed=chosen.seed)
        yield Course(short, plan, parts_of(chosen), bug=chosen.bug, scenario=f"{name}/{short}")


def family(name: str) -> Iterator[tuple[str, HarnessPlan]]:
    """The short runs of a family, by name."""
    about, shorts = FAMILIES[name]
    for short in shorts():
        yield short.name, HarnessPlan(f"{about} {short.name}", rate=RATE, seconds=SECONDS, faults=short.faults)


def of_bugs(chosen: argparse.Namespace) -> Iterator[Course]:
    for bug in chosen.bug or BUGS:
        yield Course(bug, parse(plan_of(bug)), PLAIN, bug=bug)


def of_a_report(path: Path) -> Course:
    """Raises InvalidInput."""
    return Course(*read_back(path))


def of_a_soak(chosen: argparse.Namespace) -> Iterator[Course]:
    """One leg after the other, until its hours are over. With a record, a soak of this seed continues behind the legs that
    are in it, whose time counts. Raises InvalidInput."""
    parts = parts_of(chosen)
    lines = legs.read(chosen.record) if chosen.record is not None else []
    done = [line for line in lines if (line.seed, line.parts) == (chosen.seed, parts.told)]
    end_s = time.monotonic() + chosen.hours * 3600 - sum(line.lasted_s for line in done)
    for number in count(1 + max((line.leg for line in done), default=0)):
        if time.monotonic() >= end_s:
            return
        yield Course(f"leg-{number:04d}", drawn(chosen.seed, number, parts), parts, row=SOAK, scenario=SOAK)


def of_rows(chosen: argparse.Namespace) -> Iterator[Course]:
    """Returns each scenario of the rows that has not run on these parts yet; or, where a number of runs is chosen, what the
    rows lack: the row that ran least often first, and its scenarios in turn. A run's seed is its number among those of its
    scenario. Raises InvalidInput."""
    end_s, parts = time.monotonic() + 60 * chosen.minutes if chosen.minutes is not None else inf, parts_of(chosen)
    lines = read(chosen.record) if chosen.record is not None else []
    lines = [line for line in lines if line.parts == parts.told]
    done, ran = Counter(line.scenario for line in lines), Counter(line.row for line in lines)
    plans: dict[str, dict[str, HarnessPlan]] = {}  # by row
    for row in [BY_NAME[name] for name in chosen.row] if chosen.row else ROWS:
        plans[row.name] = {scenario: plan for scenario, plan in _plans_of(row) if not parts.missing(plan.needs)}
    while time.monotonic() < end_s:
        lacking = [
            row for row, of_row in plans.items()
            if of_row and (min(done[each] for each in of_row) < 1 if chosen.runs is None else ran[row] < chosen.runs)
        ]
        if not lacking:
            return
        row_name = min(lacking, key=lambda each: ran[each])
        scenario = min(plans[row_name], key=lambda each: done[each])
        done[scenario] += 1
        ran[row_name] += 1
        name = f"{scenario.replace('/', '-')}-{done[scenario]:03d}"
        yield Course(name, replace(plans[row_name][scenario], seed=done[scenario]), parts, row=row_name, scenario=scenario)


def _plans_of(row: Row) -> Iterator[tuple[str, HarnessPlan]]:
    for name in row.scenarios:
        if name in FAMILIES:
            yield from ((f"{name}/{short}", plan) for short, plan in family(name))
        else:
            yield name, read_plan(name)[1]


def read_plan(scenario: str) -> tuple[str, HarnessPlan]:
    """Name and plan of a scenario, or of a file. Raises InvalidInput."""
    path = scenarios().get(scenario, Path(scenario))
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        known = ", ".join((*scenarios(), *FAMILIES))
        raise InvalidInput(f"{scenario} is no scenario ({known}), and no file that can be read: {words(error)}") from error
    return path.stem, parse(source)
