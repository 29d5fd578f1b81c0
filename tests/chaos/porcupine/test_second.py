"""The ways to the second checker: its command and exit codes, the verdicts of a run, and what is said when it is not there."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from chaos.harness.promises import HELD, NOT_CHECKED, VIOLATED, Verdict, judge
from chaos.history.history import History, dump
from chaos.porcupine import cli, second
from chaos.servers import hdfs_jars
from chaos.workloads.registers import Registers
from tests.chaos.plots import Plot
from tests.chaos.porcupine.conftest import Second
from twinlog.errors import ConfigError, InvalidInput, Unavailable

GOOD = Plot().write("k", "x", 0, 1, version=5).read("k", "x", 2, 3, version=5)
STALE = (
    Plot().write("j", "v", 0, 1, version=4).write("k", "x", 0, 1, version=5).read("k", "x", 2, 3, version=5)
    .write("k", "y", 4, 5, version=6).write("k", "z", 6, 7, version=7).read("k", "y", 8, 9, version=6).read("k", "z", 10, 11)
)


def hard() -> Plot:
    """Sixty bets of unknown outcome that all may have come about at once, and a read that none of them explains."""
    plot = Plot(unique=False)
    for at in range(60):
        plot.swap("k", at % 7 or None, at % 5 + 1, 0, 1, "unknown")
    return plot.read("k", 99, 2, 3)


@pytest.fixture
def nothing_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hdfs_jars.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))


def told(folder: Path, history: bytes, *given: str) -> int:
    path = folder / "history.jsonl"
    path.write_bytes(history)
    return cli.main([str(path), *given])


def verdict(history: History) -> Verdict:
    return next(each for each in judge(history, Registers(Random(1)), ())[1] if each.checker == second.NAME)


# ---- the command
@pytest.mark.usefixtures("second")
def test_a_history_that_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(tmp_path, dump(GOOD.history())) == 0
    assert capsys.readouterr().out == "1 of 1 rows are linearizable (2 calls on them).\n"


@pytest.mark.usefixtures("second")
def test_the_row_and_the_calls_that_contradict_each_other_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(tmp_path, dump(STALE.history())) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Row k of t is not linearizable: no order explains the answers to calls 5, 6."
    assert [line[2:24] for line in lines[1:3]] == ['{"is":"call","id":5,"p', '{"is":"call","id":6,"p']
    assert lines[3] == "1 of 2 rows are linearizable (7 calls on them)."


@pytest.mark.usefixtures("second")
def test_what_takes_too_long_is_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(tmp_path, dump(hard().history()), "--seconds", "0.3") == 3
    said = "Row k of t could not be decided in 0.3 s, or in the memory for it.\n0 of 1 rows are linearizable"
    assert said in capsys.readouterr().out


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize("lines", [b"no history\n", b"{}\n", b'{"is":"call","id":"one"}\n', b'{"is":"call"'])
def test_what_is_no_history_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: bytes) -> None:
    assert told(tmp_path, lines) == 2
    assert "line 1 is none of a history" in capsys.readouterr().err


def test_wrong_usage_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for given in ([], ["--fetch", "x"], ["x", "--seconds", "0"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(given)
        assert ended.value.code == 2
    assert cli.main([str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl cannot be read: " in capsys.readouterr().err


@pytest.mark.usefixtures("nothing_built")
def test_without_go_the_command_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(tmp_path, dump(GOOD.history())) == 2
    assert "The second checker is built by Go 1.23 or newer, and there is no `go`: install it" in capsys.readouterr().err


# ---- the verdict of a run
@pytest.mark.usefixtures("second")
def test_a_run_has_its_word_among_the_verdicts() -> None:
    assert (verdict(GOOD.history()).state, verdict(GOOD.history()).looked_at) == (HELD, 2)
    assert verdict(STALE.history()).state == VIOLATED
    found = [each for each in judge(STALE.history(), Registers(Random(1)), ())[0] if each.checker == second.NAME]
    assert [(each.promise, each.calls, each.times_s) for each in found] == [("P3", (5, 6), (6, 7, 8, 9))]


@pytest.mark.usefixtures("second")
def test_what_it_could_not_decide_is_never_called_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second, "ROW_S", 0.3)
    opinion = second.second_opinion(hard().history())
    assert (opinion.decided, opinion.violations) == (False, [])
    assert opinion.sentence.endswith(": 1 of 1 rows could not be decided in 0.3 s each, or in the memory for it")
    nothing = verdict(History())
    assert nothing.state == NOT_CHECKED
    assert nothing.sentence.endswith(": there is no row in it to judge")


@pytest.mark.usefixtures("nothing_built")
def test_a_run_without_the_program_is_not_checked_by_it() -> None:
    seen = verdict(STALE.history())
    assert seen.state == NOT_CHECKED
    assert "`python -m chaos porcupine --fetch` builds it" in seen.sentence


# ---- the program
def test_a_program_that_dies_is_no_verdict(tmp_path: Path) -> None:
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\necho out of memory >&2\nkill -9 $$\n")
    dying.chmod(0o755)
    with pytest.raises(Unavailable, match="ended with -9: out of memory"):
        second.judged(dying, b"", 1.0)


def test_it_tells_what_is_no_history(second: Second) -> None:
    with pytest.raises(InvalidInput, match="line 2 is none of a history"):
        second_judged(second, b'{"is":"limits"}\n[]\n')


def second_judged(built: Second, lines: bytes) -> second.Judgement:
    return second.judged(built.program, lines, 1.0)


def test_another_source_is_another_program(tmp_path: Path) -> None:
    shutil.copytree(second.HERE, tmp_path / "copy")
    assert second.program_of(tmp_path / "copy").kept_as == second.program_of(second.HERE).kept_as
    model = tmp_path / "copy" / "model.go"
    model.write_text(model.read_text() + "\n")
    assert second.program_of(tmp_path / "copy").kept_as != second.program_of(second.HERE).kept_as


def test_the_program_is_not_looked_for_elsewhere(nothing_built: None) -> None:
    with pytest.raises(ConfigError, match="The second checker is not at"):
        second.program_of(second.HERE).program()
