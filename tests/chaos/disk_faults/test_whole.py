"""The library sees every write and every sync of Python, RocksDB and SQLite that reaches the kernel, as strace counts them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.crash_states.calls import Call, text
from chaos.crash_states.recording import record
from chaos.disk_faults.control import SYNC, WRITE, DiskFaults, Rule

pytestmark = pytest.mark.usefixtures("records_calls")
SYNCS, WRITES = {"fsync", "fdatasync"}, {"write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate"}


def counted(calls: Sequence[Call], root: Path) -> tuple[int, int]:
    """Returns how many calls wrote, and how many synced, below `root`."""
    below, writes, syncs = set[int](), 0, 0
    for call in calls:
        if call.name in ("openat", "open"):
            path = text(call.args[-1 if call.name == "open" else 1]) if call.name == "openat" else text(call.args[0])
            below.discard(call.result)
            if path.startswith(os.fsencode(root)):
                below.add(call.result)
        elif call.name in WRITES | SYNCS and int(call.args[0]) in below:
            writes += call.name in WRITES
            syncs += call.name in SYNCS or "RWF_DSYNC" in call.args[-1]
    return writes, syncs


@pytest.mark.parametrize("program", ["wal", "rocks", "site_files", "directory_dfs"])
def test_every_write_and_sync_of_the_products_files_is_seen(tmp_path: Path, program: str) -> None:
    root = tmp_path / "root"
    for folder in ("coordinator", "dfs"):
        (root / folder).mkdir(parents=True)
    with DiskFaults(tmp_path / "table") as faults:
        seen = [faults.begin(root, Rule(1, kind)) for kind in (WRITE, SYNC)]
        command = [sys.executable, "-m", f"tests.chaos.crash_states.programs.{program}", str(root), str(tmp_path / "marks")]
        calls = record(command, timeout_s=600.0, environment={**os.environ, **faults.environ()})
        assert tuple(map(faults.hits, seen)) == counted(calls, root)
        assert min(map(faults.hits, seen)) > 10
