"""The journals and logs of a run become a plan, and the run of that plan has the same commands and the same faults."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chaos.harness.plan import HarnessPlan, parse
from chaos.servers import toxiproxy
from gateway.demo.servers import child_environ

pytestmark = [pytest.mark.pair, pytest.mark.long]

PLANS = {  # others are kept as logs (test_kept.py)
    "killed": "workload sets\nseconds 16\nat 2 crash a for 6\nat 4 failover b\nat 13 switchover a\n",
    "degraded": "workload scanning\nseconds 18\nat 2 terminate b for 7\nat 5 degrade active\nat 14 resync active\n",
}
STEP = re.compile(r"^(?:done|failed) ", re.MULTILINE)
OF_PEOPLE = ("failover", "switchover", "rejoin", "degrade", "resync")


def chaos(*words: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "chaos", *words], capture_output=True, text=True, check=False, env=child_environ()
    )
    return done.returncode, done.stdout + done.stderr


def run(plan: Path, out: Path) -> dict[str, Any]:
    code, said = chaos("run", str(plan), "--out", str(out))
    assert code == 0, said
    report: dict[str, Any] = json.loads((out / "report.json").read_bytes())
    return report


def typed(report: dict[str, Any]) -> list[str]:
    """The commands that became operations, in their order: they showed a step. A site that is slow to start may refuse one, in
    its first step or before it."""
    return [each["command"].split()[1] for each in report["commands"] if STEP.search(each["output"])]


def of(plan: HarnessPlan, *, commands: bool) -> list[tuple[str, str]]:
    return [(each.kind, each.target) for each in plan.faults if (each.kind in OF_PEOPLE) is commands]


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_run_comes_back_as_a_plan_and_the_plan_as_a_run(name: str, tmp_path: Path) -> None:
    toxiproxy.fetch()
    (tmp_path / "plan.txt").write_text(PLANS[name])
    first = run(tmp_path / "plan.txt", tmp_path / "first")
    sites = [word for site in "ab" for word in ("--site", f"{site}={tmp_path / 'first' / site}")]
    code, said = chaos("from-journal", *sites, "--out", str(tmp_path / "found.txt"))
    assert code == 0, said
    found = parse((tmp_path / "found.txt").read_text())
    assert of(found, commands=False) == of(parse(PLANS[name]), commands=False)
    assert [kind for kind, _ in of(found, commands=True)] == typed(first)
    again = run(tmp_path / "found.txt", tmp_path / "again")
    happened = [(each["kind"], each["target"]) for each in sorted(again["faults"], key=lambda each: each["from_s"])]
    assert happened == [(each.kind, each.target) for each in found.faults]
    assert not [each for each in again["faults"] if each["skipped"]]
    code, said = chaos("from-journal", *sites, "--simulate", "--out", str(tmp_path / "simulated.txt"))
    assert code == 0, said
    code, said = chaos("replay", str(tmp_path / "simulated.txt"))
    assert code == 0, said
    assert "every promise held" in said
