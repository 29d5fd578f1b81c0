"""Whole runs on real processes: a clean pair holds, planted bugs are found, and nothing is left running."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.harness.bugs.bugs import BUGS
from chaos.harness.bugs.plans import ALONE, BOTH, FAILOVER, STANDBY, plan_of
from chaos.harness.courses import scenarios
from chaos.servers import toxiproxy
from gateway.demo.servers import child_environ
from tests.processes import wait_for

pytestmark = [pytest.mark.pair, pytest.mark.long]

IN_THE_SUITE = (  # of the planted bugs; `python -m chaos planted` runs all of them
    "ack-before-remote", "serves-when-woken", "answer-of-another", "syncs-again", "wal-not-synced", "ignore-crc",
    "leaks-a-descriptor", "nothing-at-risk", "always-fresh", "degrades-first",
)


def command(folder: Path, plan: str, *options: str) -> list[str]:
    toxiproxy.fetch()
    path = folder / "plan.txt"
    path.write_text(plan)
    return [sys.executable, "-m", "chaos", "run", str(path), "--out", str(folder / "out"), *options]


def executed(folder: Path, plan: str, *options: str) -> tuple[int, str, dict[str, Any]]:
    """Exit code, what it printed, and its report."""
    done = subprocess.run(command(folder, plan, *options), capture_output=True, text=True, check=False, env=child_environ())
    report = folder / "out" / "report.json"
    return done.returncode, done.stdout + done.stderr, json.loads(report.read_bytes()) if report.exists() else {}


def left_by(folder: Path) -> list[str]:
    """Command lines of those that name the folder, or run in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            place = str((path / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in line or place.startswith(str(folder)):
            found.append(line)
    return found


def test_a_pair_without_a_bug_holds_and_leaves_a_report_and_nothing_else(tmp_path: Path) -> None:
    code, said, report = executed(tmp_path, FAILOVER + "at 5 black-hole b>a for 2\n")
    assert code == 0, said
    states = {each["checker"]: each["state"] for each in report["verdicts"]}
    held = {name for name, state in states.items() if state == "held"}
    assert held >= {"linearizable", "acknowledged", "one_active", "prefix", "convergence", "receipts", "stuck", "drained"}
    assert held >= {"two_copies", "bounded", "at_risk", "status", "said_mode", "positions", "one_word", "fresh", "at_rest"}
    assert "resources" in held
    assert states["proved"] == states["losses"] == states["memory"] == "not checked"
    assert report["totals"]["acknowledged"] > 50
    came_about = sorted(span["kind"] for span in report["faults"] if not span["skipped"])
    assert came_about == ["black-hole", "black-hole", "crash", "failover"]
    assert {sample["role"] for sample in report["samples"]} >= {"ACTIVE", "STANDBY", "down"}
    assert (tmp_path / "out" / "report.html").read_text().count("<svg") == 1
    assert not left_by(tmp_path)


@pytest.mark.parametrize("plan", [ALONE, BOTH, STANDBY], ids=["alone", "both", "standby"])
def test_a_pair_without_a_bug_loses_its_power_and_nothing_else(tmp_path: Path, plan: str) -> None:
    code, said, report = executed(tmp_path, plan)
    assert code == 0, said
    lost = [span for span in report["faults"] if span["kind"] == "power-loss"]
    assert len(lost) == 1
    assert "of what was not synced, all of it lost (" in lost[0]["told"]
    assert not (tmp_path / "out" / "power").exists(), "the record is large"
    assert not left_by(tmp_path)


@pytest.mark.parametrize("name", IN_THE_SUITE)
def test_a_planted_bug_is_found_by_the_checker_that_it_names(tmp_path: Path, name: str) -> None:
    bug = BUGS[name]
    assert bug.scenario in scenarios()
    code, said, report = executed(tmp_path, plan_of(name), "--bug", name)
    assert code == 1, said
    assert {each["checker"] for each in report["violations"]} & set(bug.checkers), said
    assert not left_by(tmp_path)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 3)])
def test_a_harness_that_is_ended_leaves_no_process(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with subprocess.Popen(
        command(tmp_path, FAILOVER), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=child_environ()
    ) as harness:
        assert harness.stdout is not None
        seen = next((line for line in harness.stdout if "the pair is open" in line), "")
        assert seen
        assert len(left_by(tmp_path)) >= 4, "the harness, two gateways and Toxiproxy"
        harness.send_signal(number)
    assert harness.returncode == code
    assert wait_for(lambda: not left_by(tmp_path)), left_by(tmp_path)
