"""The command as a person meets it: errors of one line, exit codes, signals, schedules."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.core import TyperGroup

from gateway.cli import audit as cli_audit
from spark_jobs import run
from spark_jobs.audit import schedule
from spark_jobs.audit.audit import JOBS
from spark_jobs.audit.java import java_program
from spark_jobs.audit.session import in_words, open_session
from tests.needs import need_spark
from tests.spark_jobs.audit.stub_sites import StubPair
from tests.spark_jobs.audit.test_spark_cluster import operator_file
from twinlog.errors import ConfigError, InvalidInput

DEADLINE_S = 150.0


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "operator.toml"
    path.write_text('pair = "demo"\n[sites.a]\nurl = "http://127.0.0.1:1"\n[sites.b]\nurl = "http://127.0.0.1:2"\n')
    return path


def fake_java(folder: Path, version: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2014-03-18' >&2\n")
    program.chmod(0o755)
    return folder


def said_by(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Returns the one line on standard error of an audit that could not be done."""
    assert run.main(arguments) == 2
    said = capfd.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    return line


@pytest.mark.parametrize(("arguments", "expected"), [
    (["compare"], "invalid-input: which pair? give --config FILE"),
    (["compair", "--config", "x"], "invalid-input: there is no job 'compair': this release has compare, log-audit"),
    (["compare", "--config", "absent.toml"], "config-error: absent.toml cannot be read: No such file or directory"),
    (["compare", "--config", "x", "--every", "3x"], "invalid-input: '3x' is no time: write 90s, 30m, 24h or 7d"),
    (["compare", "--config", "x", "--every", "1h", "--out", "y"], "invalid-input: --out names one audit's folder"),
    (["compare", "--config", "x", "--set", "truth=a"], "invalid-input: compare has no setting 'truth': it takes none"),
    (["repair", "--config", "x"], "invalid-input: repair which differences? give --set audit=NAME"),
    (["repair", "--config", "x", "--set", "audit=y", "--set", "wirte=yes"],
     "invalid-input: repair has no setting 'wirte': it knows audit, truth, write"),
    (["reconcile", "--config", "x"], "invalid-input: reconcile what? give --set tail=PATH"),
    (["reconcile", "--config", "x", "--set", "tail="], "invalid-input: reconcile what? give --set tail=PATH"),
    (["replay", "--config", "x", "--set", "into=y"], "invalid-input: replay what? give --set log=FOLDER"),
    (["replay", "--config", "x", "--set", "log=y"], "invalid-input: replay into what? give --set into=FOLDER"),
])
def test_a_wrong_command_line(
    arguments: list[str], expected: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TWINLOG_CONFIG", raising=False)
    assert said_by(arguments, capfd).startswith(expected)


@pytest.mark.parametrize("setting", ["novalue", "=1"])
def test_a_setting_without_a_value(setting: str, config: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert said_by(["compare", "--config", str(config), "--set", setting], capfd).endswith("write --set NAME=VALUE")


@pytest.mark.parametrize(("version", "said"), [("1.8.0_302", "is Java 8, and Spark wants 17"), ("11.0.2", "is Java 11")])
def test_an_old_java(
    version: str, said: str, tmp_path: Path, config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", version)))
    line = said_by(["compare", "--config", str(config), "--audits", str(tmp_path / "audits")], capfd)
    assert said in line
    assert "openjdk-17" in line
    assert not (tmp_path / "audits").exists()


def test_no_java(tmp_path: Path, config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert said_by(["compare", "--config", str(config)], capfd).startswith("config-error: no Java was found: install Java 17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert f"JAVA_HOME is {tmp_path}, and holds no Java" in said_by(["compare", "--config", str(config)], capfd)


def test_a_java_of_today_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "jdk", "21.0.1")))
    assert java_program() == tmp_path / "jdk" / "bin" / "java"


def test_no_pyspark(config: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name))
    expected = "config-error: the package pyspark is not installed: install twinlog-server with its extra `spark`"
    assert said_by(["compare", "--config", str(config)], capfd) == expected


def test_an_error_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert run.main(["compare", "--config", "absent.toml", "--json"]) == 2
    said = capfd.readouterr()
    assert said.err == ""
    assert json.loads(said.out)["error"]["code"] == "config-error"


def test_a_master_that_nobody_is() -> None:
    with pytest.raises(ConfigError, match="no Spark master answers at spark"):
        open_session("spark://127.0.0.1:1,127.0.0.1:x", "test")


def test_what_spark_says_in_a_line() -> None:
    text = "An error occurred while calling o1.load.\n: org.apache.spark.SparkException: no such thing\n\tat org.apache"
    assert in_words(RuntimeError(text)) == "org.apache.spark.SparkException: no such thing"
    assert in_words(RuntimeError("\n first\n second")) == "first"
    assert in_words(RuntimeError()) == "RuntimeError"


def test_the_command_hands_on_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option of the program is one of the command, and arrives as it was given."""
    handed: list[list[str]] = []
    monkeypatch.setattr(os, "execv", lambda program, words: handed.append(words))
    group = typer.main.get_command(cli_audit.app)
    assert isinstance(group, TyperGroup)
    command = group.commands["run"]
    ours = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    theirs = {option for action in run.parser()._actions for option in action.option_strings if option.startswith("--")}
    assert ours - {"--help"} == theirs - {"--help"}
    assert {name.value for name in cli_audit.JobName} == set(JOBS)
    told = "; ".join(f"of {name} {', '.join(kind.settings)}" for name, kind in JOBS.items() if kind.settings)
    assert cli_audit.SETTINGS.endswith(f": {told}.")
    given = ["--config", "c", "--peer-config", "p", "--tables", "t,u", "--master", "m", "--audits", "a", "--out", "o",
             "--barrier-deadline", "5m", "--every", "1h", "--set", "x=1", "--set", "y=2", "--conf", "k=v", "--json"]
    command.main(["compare", *given], standalone_mode=False)
    assert handed == [[sys.executable, "-m", "spark_jobs.run", "compare", *given]]
    assert vars(run.parser().parse_args(handed[0][3:]))["set"] == ["x=1", "y=2"]


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("1.5m", 90), ("24h", 86_400), (" 7 d ", 604_800)])
def test_times(text: str, expected: float) -> None:
    assert schedule.seconds(text) == expected


@pytest.mark.parametrize("text", ["", "5", "0s", "-1h", "1w", "h", "1h30m"])
def test_no_times(text: str) -> None:
    with pytest.raises(InvalidInput):
        schedule.seconds(text)


def test_one_of_many_is_the_command_without_every() -> None:
    given = ["compare", "--every", "24h", "--config", "x", "--every=1h", "--json"]
    assert run._without_every(given) == ["compare", "--config", "x", "--json"]


class _Watched(io.StringIO):
    """Sends this process a signal once so many audits have ended."""

    def __init__(self, audits: int) -> None:
        super().__init__()
        self._left = audits

    def write(self, text: str) -> int:
        written = super().write(text)
        if "exit code" in text:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGTERM)
        return written


def test_a_schedule_goes_on_until_a_signal() -> None:
    said = _Watched(2)
    assert schedule.run_every(0.1, ["compare", "--config", "absent.toml"], Console(file=said, width=200)) == 2
    assert said.getvalue().count("exit code 2; the next audit begins at") == 2


def _until(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not what():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.mark.long
def test_ctrl_c_while_the_standby_is_waited_for(tmp_path: Path) -> None:
    """The whole command, with a real Spark: it ends at once, and nothing of it is left."""
    need_spark()
    with StubPair() as pair:
        pair.sites["b"].asked_until_held = 1_000_000
        process = subprocess.Popen(
            [sys.executable, "-m", "twinlog", "audit", "run", "compare", "--config", str(operator_file(tmp_path, pair)),
             "--audits", str(tmp_path / "audits"), "--master", "local[1]", "--conf", "spark.driver.memory=512m",
             "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            _until(lambda: bool(pair.held), process)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == 130
        assert out == ""
        lines = [line.partition(" ")[2] for line in err.splitlines()]
        assert lines[:3] == ["asking both sites who is active", "starting Spark", "setting a barrier on both sites"]
        assert err.endswith("Stopped: nothing was written, and the sites' snapshots are released.\n")
        assert not pair.held
        assert list((tmp_path / "audits").iterdir()) == []
