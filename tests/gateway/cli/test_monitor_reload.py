"""A running `twinlog monitor` takes new thresholds at a SIGHUP."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes import wait_for

SITES = 'pair = "shop"\n[sites.a]\nurl = "http://127.0.0.1:1"\n[sites.b]\nurl = "http://127.0.0.1:2"\n'
OPERATOR = f"{SITES}[monitor]\ninterval_s = 0.2\n"


@contextmanager
def monitor(file: Path, output: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A monitor of two sites that do not answer, once it has said so."""
    command = [sys.executable, "-m", "twinlog", "monitor", "--config", str(file), *options]
    with output.open("wb") as stream, subprocess.Popen(command, stdout=stream, stderr=subprocess.STDOUT) as process:
        try:
            assert wait_for(lambda: bool(output.read_bytes())), "it says nothing"
            yield process
        finally:
            process.kill()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "operator.toml"
    path.write_text(OPERATOR)
    return path


def hang_up(process: subprocess.Popen[bytes], output: Path) -> str:
    """Sends SIGHUP, and returns what the process prints then."""
    before = output.read_text()
    process.send_signal(signal.SIGHUP)
    assert wait_for(lambda: output.read_text()[len(before):].endswith("\n")), output.read_text()
    return output.read_text()[len(before):]


def test_changed_thresholds_are_taken_and_a_fault_changes_nothing(file: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with monitor(file, output) as process:
        file.write_text(OPERATOR.replace("0.2", "0.3") + "actions_max = 5\n")
        said = hang_up(process, output)
        assert "monitor.interval_s: 0.2 before, 0.3 now" in said
        assert "monitor.actions_max: 2 before, 5 now" in said
        file.write_text(OPERATOR + "actions_max = 0\n")
        said = hang_up(process, output)
        assert "not reloaded" in said
        assert "monitor.actions_max" in said
        file.write_text(OPERATOR.replace("0.2", "0.3") + "actions_max = 5\n")
        assert "no threshold differs" in hang_up(process, output), "the file with the fault changed something"
        assert process.poll() is None


def test_a_program_reads_the_same(file: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    with monitor(file, output, "--json") as process:
        file.write_text(OPERATOR + "failover_after_s = 60\n")
        line: dict[str, Any] = json.loads(hang_up(process, output))
        assert (line["reloaded"], line["faults"]) == ({"failover_after_s": [8.0, 60.0]}, [])
        file.unlink()
        line = json.loads(hang_up(process, output))
        assert line["reloaded"] == {}
        assert "operator.toml has 1 fault" in line["faults"][0]
