"""The active's disk fills up under load: no success is told that is not true, and nothing acknowledged is lost by it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Processes

MIB = 1 << 20
pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(os.geteuid() != 0 and not os.environ.get("CI"), reason="mounting a small disk needs root"),
]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Processes]:
    made = Processes(tmp_path)
    disk = tmp_path / "a" / "data"
    disk.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "tmpfs", str(disk)], check=True)
    made.start("a")
    made.start("b")
    try:
        made.until_roles("ACTIVE", "STANDBY")
        made.create_table("a")
        yield made
    finally:
        made.close()
        subprocess.run(["umount", str(disk)], check=True)


def fill(ballast: Path) -> None:
    """Take all the room that is left."""
    with ballast.open("wb") as file:
        while True:
            try:
                file.write(bytes(MIB))
                file.flush()
            except OSError:
                return


def test_a_full_disk_refuses_and_a_restart_with_room_goes_on(pair: Processes) -> None:
    ballast = pair.directory / "a" / "data" / "ballast"
    for _ in range(10):
        assert pair.write("a")
    fill(ballast)
    pair.until("writes are refused", lambda: not pair.write("a", padding=200_000), timeout_s=60)
    for _ in range(3):
        pair.write("a", padding=200_000)
    ballast.unlink()
    pair.kill("a")  # RocksDB stays failed until it is opened anew: the message says so
    pair.start("a")
    pair.until_roles("ACTIVE", "STANDBY")
    assert pair.write("a")
    pair.check("a")
