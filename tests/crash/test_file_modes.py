"""Whatever a site or a command writes, its own user reads it and nobody else: rows, logs, claims, register, journal, audits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.crash.processes import Processes
from tests.gateway.two_sites import TwoSites


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


UMASK = """
import os, runpy, sys
os.umask(0o022)
sys.argv[0] = sys.argv[1]
del sys.argv[1]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
finally:
    print(oct(os.umask(0)))
"""


def test_what_a_load_keeps_on_disk_is_not_readable_by_others(tmp_path: Path) -> None:
    rows, kept = tmp_path / "rows.ndjson", [tmp_path / "state", tmp_path / "acks"]
    rows.write_text('{"id": 1}\n')
    with TwoSites() as pair:
        words = ["load", str(rows), "--table", "t", "--key", "id", "--config", pair.address]
        done = subprocess.run(
            [sys.executable, "-m", "twinlog", *words, "--state", str(kept[0]), "--acks", str(kept[1])],
            umask=0o022, capture_output=True, text=True, check=False,
        )
    assert done.returncode == 0, done.stderr
    assert [oct(path.stat().st_mode & 0o777) for path in kept] == ["0o600", "0o600"]


def test_every_command_and_every_job_begins_with_that_umask() -> None:
    """A job of `audit run` is a process that the command becomes, or one of spark-submit."""
    for words in (["twinlog", "version"], ["spark_jobs.run", "compare", "--config", "absent.toml"]):
        done = subprocess.run([sys.executable, "-c", UMASK, *words], capture_output=True, text=True, check=False)
        assert done.stdout.splitlines()[-1] == "0o77", done.stderr
