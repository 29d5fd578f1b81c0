"""The record of runs on real processes: a line of JSON for each, added and never changed, from which the track record is drawn.

What always holds: a line names the commit that ran, with a `+` behind it where files had been changed since; a run that the
harness itself could not finish leaves no line.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import msgspec

from chaos.harness.report.summary import line_of
from chaos.harness.run import Run
from twinlog.errors import InvalidInput, words

PROJECT = Path(__file__).resolve().parents[3]
_Line = TypeVar("_Line", bound=msgspec.Struct)
_LOST, _NOT_LINEARIZABLE = frozenset(("acknowledged", "receipts")), frozenset(("linearizable", "porcupine"))


class Recorded(msgspec.Struct, frozen=True):
    """One run. `parts`: of what the pair was made; `lost`: violations that name acknowledged writes; the others are counted in
    `violations` alone."""

    day: str
    commit: str
    row: str
    scenario: str
    parts: str
    seed: int
    faults: int
    operations: int
    acknowledged: int
    unknown: int
    lost: int
    not_linearizable: int
    violations: int
    stuck: int
    without_writes_s: float
    without_reads_s: float
    lasted_s: float


def recorded(run: Run, row: str, scenario: str, commit: str) -> Recorded:
    line = line_of(scenario, run)
    counted = [violation.checker for violation in run.violations]
    return Recorded(
        f"{datetime.now(UTC):%Y-%m-%d}", commit, row, scenario, run.pair, run.plan.seed, line.faults, line.operations,
        line.acknowledged, line.unknown, sum(each in _LOST for each in counted),
        sum(each in _NOT_LINEARIZABLE for each in counted), line.violations, line.stuck, round(line.without_writes_s, 3),
        round(line.without_reads_s, 3), round(line.lasted_s, 1),
    )


def add(path: Path, line: msgspec.Struct) -> None:
    with path.open("ab") as file:
        file.write(msgspec.json.encode(line) + b"\n")


def read(path: Path) -> list[Recorded]:
    """Returns all lines; none where there is no file yet. Raises InvalidInput."""
    return lines_of(path, Recorded, "run")


def lines_of(path: Path, kind: type[_Line], what: str) -> list[_Line]:
    """Returns the lines of a record of each `what`; none where there is no file yet. Raises InvalidInput."""
    if not path.exists():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            found.append(msgspec.json.decode(line, type=kind))
        except msgspec.DecodeError as error:
            raise InvalidInput(f"{path}, line {number} is no record of a {what}: {words(error)}") from error
    return found


def commit_here() -> str:
    """Returns the commit of this copy of the project, "" where there is none to see."""
    head = _git("rev-parse", "--short", "HEAD")
    return head + "+" * bool(head and _git("status", "--porcelain", "--untracked-files=no"))


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
