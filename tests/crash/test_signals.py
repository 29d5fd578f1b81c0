"""A site ends when somebody asks it to end, and not because a terminal did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.processes import Processes
from tests.processes import has_ended, wait_for
from tools.sources import ROOT


def test_a_site_outlives_its_terminal(tmp_path: Path) -> None:
    pair = Processes(tmp_path)
    try:
        for site in "ab":
            pair.start(site)
        pair.until_roles("ACTIVE", "STANDBY")
        pair.create_table("a")
        for site, process in pair.running.items():
            assert process.pid is not None
            os.kill(process.pid, signal.SIGHUP)
            log = tmp_path / f"{site}.log"
            pair.until(f"{site} says so", lambda log=log: "configuration was read again" in log.read_text())  # type: ignore[misc]
        assert pair.write("a")
        _changes_while_it_runs(pair)
        assert {process.exitcode for process in pair.running.values()} == {None}
    finally:
        pair.close()


def _changes_while_it_runs(pair: Processes) -> None:
    """A file that changed: what can, does, what needs a restart is shown, and a fault changes nothing."""
    file, pid = pair.configs["a"], pair.running["a"].pid
    before = file.read_text()
    assert pid is not None
    file.write_text(before.replace('policy = "protect"', 'policy = "performance"') + "\n[barriers]\nkept_max = 3\n")
    os.kill(pid, signal.SIGHUP)
    pair.until("asynchronous by choice", lambda: pair.cluster("a").get("mode") == "async")
    assert ["barriers.kept_max" in notice for notice in pair.cluster("a")["notices"]] == [True]
    file.write_text(before + "\n[barriers]\nkept_max = 'many'\n")
    os.kill(pid, signal.SIGHUP)
    log = pair.directory / "a.log"
    pair.until("the fault is named", lambda: "SIGHUP: the file cannot be used" in log.read_text())
    assert pair.cluster("a")["policy"] == "performance"
    trail = "".join(each.read_text() for each in sorted((file.parent / "data/trail").iterdir()))
    assert trail.count('"event":"configuration.reload"') == 6, "three beginnings, and their ends"
    assert '"changed":{"policy":"protect -> performance"}' in trail


@pytest.mark.long
def test_a_site_under_test_ends_with_the_process_of_the_test(tmp_path: Path) -> None:
    """Also when that one is killed, and could stop nothing."""
    code = (
        "import sys; from pathlib import Path; from tests.crash.processes import Processes\n"
        f"pair = Processes(Path({str(tmp_path)!r})); pair.start('a')\n"
        "print(pair.running['a'].pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        assert wait_for(lambda: "serves" in (tmp_path / "a.log").read_text() if (tmp_path / "a.log").exists() else False)
        owner.kill()
    assert wait_for(lambda: has_ended(pid))
