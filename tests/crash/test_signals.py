"""A site ends when somebody asks it to end, and not because a terminal did."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.crash.processes import Processes


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
            pair.until(f"{site} says so", lambda log=log: "SIGHUP is ignored" in log.read_text())  # type: ignore[misc]
        assert pair.write("a")
        assert {process.exitcode for process in pair.running.values()} == {None}
    finally:
        pair.close()
