"""Whatever a site writes, its own user reads it and nobody else: rows, logs, claims, coordinator and journal."""

from __future__ import annotations

import os
from pathlib import Path

from tests.crash.processes import Processes


def test_nothing_that_a_site_writes_is_readable_by_others(tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    pair = Processes(tmp_path)
    given = {*before, *tmp_path.rglob("*")}  # what the test itself made: configurations and folders
    old = os.umask(0o022)
    try:
        for site in "ab":
            pair.start(site)
        pair.until_roles("ACTIVE", "STANDBY")
        pair.create_table("a")
        for _ in range(20):
            pair.write("a")
    finally:
        pair.close()
        os.umask(old)
    written = [path for path in tmp_path.rglob("*") if path not in given and not path.name.endswith(".log")]
    assert len(written) > 20
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode for path in written}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
