"""The commands `run`, `matrix`, `soak`, `planted`, `list` and, of a report.json, `replay`: runs on real processes, and their
reports.

What always holds: what ran is left in a folder, with a page; nothing that was started is left running. Exit codes: 0 all that
was checked held (of `planted`: every bug was found), 1 a promise broke, 2 wrong usage or something is not installed, 3 the
harness itself could not continue.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from functools import partial

from rich.console import Console

from chaos.harness.arguments import arguments
from chaos.harness.courses import SOAK, Course, of_a_report, of_a_soak, of_bugs, of_rows, of_scenarios, parts_of
from chaos.harness.matrix.record import add, commit_here, recorded
from chaos.harness.pair.servers.servers import check_installed
from chaos.harness.report.kept import keep, new_folder, tidy
from chaos.harness.report.summary import Line, line_of, summary, write_summary
from chaos.harness.run import Harness
from chaos.harness.screen import console_of, ended, show, show_found, show_list
from chaos.harness.soak.record import leg_of
from chaos.servers import toxiproxy
from chaos.servers.janitor import employ
from gateway.stopping import run_until_stopped, stopping


def main(given: list[str]) -> int:
    console, chosen = console_of(), arguments(given)
    if chosen.command == "list":
        show_list(console)
        return 0
    return ended(partial(_run, console, chosen), "the harness could not continue")


def _courses(chosen: argparse.Namespace) -> Iterator[Course] | list[Course]:
    """A list where they are known beforehand."""
    if chosen.command == SOAK:
        return of_a_soak(chosen)
    if chosen.command == "matrix":
        return of_rows(chosen)
    if chosen.command == "planted":
        return list(of_bugs(chosen))
    return [of_a_report(chosen.report)] if chosen.command == "replay" else list(of_scenarios(chosen))


def _run(console: Console, chosen: argparse.Namespace) -> int:
    with stopping():
        return _made(console, chosen)


def _made(console: Console, chosen: argparse.Namespace) -> int:
    courses = _courses(chosen)
    alone = isinstance(courses, list) and len(courses) == 1
    folder = new_folder(chosen.out)
    toxiproxy.fetch()
    for parts in {course.parts for course in courses} if isinstance(courses, list) else (parts_of(chosen),):
        check_installed(parts)
    employ()
    lines: list[Line] = []
    found: dict[str, set[str]] = {}  # by course: checkers that were violated
    record, commit = getattr(chosen, "record", None), commit_here()
    for course in courses:
        begun_s = time.monotonic()
        own = folder if alone else folder / course.name
        own.mkdir(exist_ok=True)
        console.print(f"{course.name}: {course.plan.about}\n{course.parts.told}; in {own}")
        harness = Harness(course.plan, own, parts=course.parts, rounds=course.rounds, bug=course.bug, say=console.print)
        run = run_until_stopped(harness.execute())
        show(console, run, keep(run, course.name, own))
        lines.append(line_of(course.name, run))
        found[course.name] = {violation.checker for violation in run.violations}
        if record is not None and not course.bug:
            if chosen.command == SOAK:
                add(record, leg_of(run, chosen.seed, run.plan.seed, commit, time.monotonic() - begun_s))
            else:
                add(record, recorded(run, course.row, course.scenario, commit))
        if course.row or "/" in course.scenario:
            tidy(own, keep_all=bool(run.violations))
        if not alone:
            write_summary(folder, lines)
    console.print(summary(lines) if lines else "nothing is left to run: the record has as much as that")
    if chosen.command == "planted":
        return 0 if show_found(console, found) else 1
    return 1 if any(line.violations for line in lines) else 0
