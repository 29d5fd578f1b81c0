"""The command of the harness: what there is, and wrong usage."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.harness import cli
from chaos.harness.bugs.bugs import BUGS
from chaos.harness.courses import scenarios


@pytest.mark.parametrize(("arguments", "told"), [
    (["run", "no-such-scenario"], "no-such-scenario is no scenario (active-killed"),
    (["replay", "no-such/report.json"], "no-such/report.json is no report of a run"),
])
def test_what_is_not_there_ends_with_2(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [
    ["run", "active-killed", "--bug", "none"], ["run", "active-killed", "--minutes", "0"], ["soak"], ["soak", "--hours", "0"],
])
def test_wrong_options_end_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert cli.main(["run", "active-killed", "--out", str(tmp_path)]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_a_plan_that_is_wrong_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.txt").write_text("workload sets\nat 1 burn a\n")
    assert cli.main(["run", str(tmp_path / "mine.txt"), "--out", str(tmp_path / "out")]) == 2
    assert "line 2 of the plan" in capsys.readouterr().err


def test_the_list_names_scenarios_faults_and_bugs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in (*scenarios(), *BUGS, "black-hole", "site-lost"))
