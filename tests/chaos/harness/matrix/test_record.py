"""The record of runs: lines that are added, read back, and counted by `matrix`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.harness.arguments import arguments
from chaos.harness.courses import SCENARIOS, family, of_rows, scenarios
from chaos.harness.matrix.record import Recorded, add, commit_here, read
from chaos.harness.matrix.rows import ROWS
from chaos.harness.pair.parts import PLAIN
from chaos.harness.plan import parse
from chaos.harness.steps.families import FAMILIES
from twinlog.errors import InvalidInput

LINE = Recorded("2026-01-01", "abc", "disk-full", "disk-full", PLAIN.told, 1, 3, 900, 800, 2, 0, 0, 0, 0, 1.5, 2.5, 60.0)


def chosen(*given: str) -> Any:
    return arguments(["matrix", *given])


def test_lines_are_added_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    assert read(path) == []
    add(path, LINE)
    add(path, replace(LINE, seed=2, lost=1))
    assert read(path) == [LINE, replace(LINE, seed=2, lost=1)]


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    add(path, LINE)
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(InvalidInput, match="line 2 is no record of a run"):
        read(path)


def test_the_commit_is_that_of_the_project() -> None:
    head = (SCENARIOS.parents[1] / ".git").exists()
    assert bool(commit_here()) == head


def test_the_row_that_ran_least_often_runs_first_and_one_that_ran_often_enough_does_not(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    add(path, LINE)
    add(path, replace(LINE, scenario="disk-hangs", row="disk-hangs"))
    add(path, replace(LINE, scenario="disk-hangs", row="disk-hangs", seed=2))
    add(path, replace(LINE, scenario="disk-hangs", row="disk-hangs", parts="others"))
    courses = list(of_rows(chosen("disk-full", "disk-hangs", "--runs", "3", "--record", str(path))))
    assert [(course.name, course.plan.seed, course.row) for course in courses] == [
        ("disk-full-002", 2, "disk-full"), ("disk-full-003", 3, "disk-full"), ("disk-hangs-003", 3, "disk-hangs"),
    ]


def test_the_runs_of_a_row_are_shared_by_its_scenarios(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    add(path, replace(LINE, scenario="clock-jumps", row="clock-skew"))
    courses = list(of_rows(chosen("clock-skew", "--runs", "4", "--record", str(path))))
    assert sorted(course.name for course in courses) == ["clock-drifts-001", "clock-drifts-002", "clock-jumps-002"]


def test_a_run_for_another_row_does_not_count_for_this_one_and_has_another_seed(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    add(path, replace(LINE, scenario="dfs-hangs", row="remote-log-fails"))
    courses = list(of_rows(chosen("late-writer", "--runs", "2", "--record", str(path))))
    assert [course.name for course in courses] == ["active-stopped-001", "dfs-hangs-002"]


def test_without_a_number_a_scenario_that_ran_does_not_run_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    add(path, replace(LINE, scenario="clock-jumps", row="clock-skew"))
    add(path, replace(LINE, scenario="clock-jumps", row="clock-skew", seed=2))
    courses = list(of_rows(chosen("clock-skew", "--record", str(path))))
    assert [course.name for course in courses] == ["clock-drifts-001"]


def test_without_a_row_every_scenario_runs_once_also_one_of_two_rows() -> None:
    plans = {name: parse(path.read_text()) for name, path in scenarios().items()}
    fitting = {name for name, plan in plans.items() if not PLAIN.missing(plan.needs)}
    fitting |= {f"{name}/{short}" for name in FAMILIES for short, _ in family(name)}
    courses = list(of_rows(chosen()))
    assert sorted(course.scenario for course in courses) == sorted(fitting)
    rows = {row.name: row for row in ROWS}
    assert all(course.scenario.partition("/")[0] in rows[course.row].scenarios for course in courses)


def test_after_its_minutes_no_run_begins() -> None:
    assert next(of_rows(chosen("--minutes", "1e-9")), None) is None


@pytest.mark.parametrize("given", [["no-row"], ["--runs", "0"], ["--minutes", "0"]])
def test_what_is_wrong_is_told(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        chosen(*given)
    assert ended.value.code == 2
    assert "--" in capsys.readouterr().err
