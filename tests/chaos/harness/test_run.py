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
from chaos.harness.courses import scenarios
from chaos.servers import toxiproxy
from gateway.demo.servers import child_environ
from tests.processes import wait_for

pytestmark = [pytest.mark.pair, pytest.mark.long]

FAILOVER = "workload sets\nseconds 8\nat 2 black-hole a>b for 2\nat 3 crash a\nat 3.2 failover b\n"
WOKEN = "workload registers\nseconds 12\nat 3 pause a for 7\nat 3.2 failover b\n"
SLOW = "workload registers\nseconds 10\nat 1 latency c-ab for 5 how 20/10\nat 7 reset a-b for 1\n"
SYNC = "workload sets\nseconds 8\nat 2 sync-fails a for 4 how wal/10\n"
ALONE = "workload sets\nseconds 9\nat 1 terminate b\nat 2 degrade active\nat 6 power-loss active for 1 how lost\n"
BOTH = "workload sets\nseconds 16\nat 3 power-loss both how lost\nat 4 site-lost a\nat 4.5 start b\nat 14 failover b\n"
STANDBY = "workload sets\nseconds 6\nat 3 power-loss standby for 1 how lost\n"
TURNED = "workload sets\nseconds 10\nat 4 rot a how wal\nat 4.5 crash a for 1\n"
OLDER_WAL = "workload sets\nseconds 10\nat 2 disk-back a for 4\n"
OLDER_REGISTER = "workload registers\nseconds 20\nat 2 coordinator-back w for 6\nat 3 switchover b\nat 9 crash a for 1\n"
RESET = "workload registers\nseconds 6\nat 2 reset c-ab for 0.5\n"
SEALED = SYNC.replace("for 4", "for 2.5") + "at 5 sync-fails a for 2 how wal/10\nat 7.5 crash a for 0.5\n"
CUT_OFF = "workload sets\nseconds 12\nat 1 degrade active\nat 3 black-hole a-b for 8\n"
STUCK = "workload sets\nseconds 16\nat 2 disk-hangs standby for 13 how dfs\n"
BEHIND = "workload sets\nseconds 8\nat 2 black-hole a>b for 5\n"
DEGRADED = "workload sets\nseconds 6\nat 1 degrade active\n"
GIVEN_UP = (
    "workload sets\nseconds 20\nat 1 degrade active\nat 3 black-hole a-b for 3\nat 5 crash a\n"
    "at 7 failover b how accept-data-loss\nat 11 start a\n"
)
SET_BACK = "workload registers\nseconds 14\nat 2 pause a for 6\nat 2.2 failover b\nat 6 clock-jump a for 5 how -3600\n"
UNTOLD = "workload sets\nseconds 14\nat 2 terminate b for 9\nat 2.5 fail-at a for 3 how coordinator.force.before\n"
UNTOLD += "at 3 degrade active\n"
RECOVERY_S = 40  # a pair that a planted bug holds up for ever is given up sooner
PLANS = {
    "ack-before-remote": FAILOVER, "serves-when-woken": WOKEN, "answer-of-another": SLOW, "syncs-again": SYNC,
    "wal-not-synced": ALONE, "segment-name-not-synced": ALONE, "remote-log-not-synced": BOTH, "remote-name-not-synced": BOTH,
    "note-not-synced": STANDBY,
    "ignore-crc": TURNED, "own-disk-alone": OLDER_WAL, "believes-an-older-register": OLDER_REGISTER,
    "leaks-a-descriptor": RESET, "keeps-every-segment": SEALED, "nothing-at-risk": CUT_OFF, "always-well": STUCK,
    "always-fresh": BEHIND, "metric-of-before": DEGRADED, "names-another-row": GIVEN_UP,
    "wall-clock-lease": SET_BACK, "degrades-first": UNTOLD,
}


def command(folder: Path, plan: str, *options: str) -> list[str]:
    toxiproxy.fetch()
    path = folder / "plan.txt"
    path.write_text(f"recovery {RECOVERY_S}\n{plan}")
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


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found_by_the_checker_that_it_names(tmp_path: Path, name: str) -> None:
    bug = BUGS[name]
    assert bug.scenario in scenarios()
    code, said, report = executed(tmp_path, PLANS[name], "--bug", name)
    assert code == 1, said
    assert {each["checker"] for each in report["violations"]} & set(bug.checkers), said
    assert not left_by(tmp_path)


def test_a_harness_that_is_killed_leaves_no_process(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, FAILOVER), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=child_environ()
    ) as harness:
        assert harness.stdout is not None
        seen = next((line for line in harness.stdout if "the pair is open" in line), "")
        assert seen
        assert len(left_by(tmp_path)) >= 4, "the harness, two gateways and Toxiproxy"
        harness.send_signal(signal.SIGKILL)
    assert wait_for(lambda: not left_by(tmp_path)), left_by(tmp_path)
