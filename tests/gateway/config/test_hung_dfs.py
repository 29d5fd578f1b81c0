"""A configuration is read, and a site starts and stops, while a DFS that it names answers nothing at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.disk_faults.control import LOOK, DiskFaults, Rule, freezing
from chaos.servers.ports import free_ports
from gateway.demo.files import write_files
from gateway.demo.servers import child_environ
from tests.processes import wait_for


def configured(folder: Path) -> Path:
    one, other = free_ports(2)
    return write_files(folder, {"a": one, "b": other}, engine="rocksdb")["a"]


def test_a_configuration_is_read_without_a_look_at_the_dfs(tmp_path: Path) -> None:
    config = configured(tmp_path)
    with DiskFaults(tmp_path / "table") as faults:
        looks = [faults.begin(tmp_path / site / "dfs", Rule(1, LOOK)) for site in ("a", "b")]
        subprocess.run(
            [sys.executable, "-m", "twinlog", "config", "check", "--config", str(config)], check=True, capture_output=True,
            env={**child_environ(), **faults.environ()},
        )
        assert [faults.hits(number) for number in looks] == [0, 0]


@pytest.mark.long
@pytest.mark.pair
@pytest.mark.parametrize("of", ["a", "b"])
def test_a_site_starts_while_a_dfs_hangs(tmp_path: Path, of: str) -> None:
    config = configured(tmp_path)
    with DiskFaults(tmp_path / "table") as faults:
        number = faults.begin(tmp_path / of / "dfs", freezing())
        log = tmp_path / "site.log"
        with log.open("wb") as out, subprocess.Popen(
            [sys.executable, "-m", "twinlog", "serve", "--config", str(config)], stdout=out, stderr=out,
            env={**child_environ(), **faults.environ()},
        ) as site:
            try:
                assert wait_for(lambda: '"serving"' in log.read_text())
                assert wait_for(lambda: faults.hits(number))
                faults.end(number)
                site.send_signal(signal.SIGTERM)
                assert site.wait(60) in (0, -signal.SIGTERM), os.fsdecode(log.read_bytes())
            finally:
                site.kill()
