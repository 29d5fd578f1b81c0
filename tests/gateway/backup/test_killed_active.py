"""The active is killed, or moves, in the middle of a backup, as a process: what was there before stays whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench.pair import TWINLOG, Pair
from tests.gateway.backup.test_real_processes import command
from tools.sources import ROOT
from twinlog import Client

pytestmark = [pytest.mark.pair, pytest.mark.long]
WIDE_BYTES = 30_000  # of random bytes, which do not shrink
ROWS = 900  # 27 MB: four parts, and far more than sockets hold
DEADLINE_S = 60.0


def write(pair: Pair, first: int) -> None:
    with Client(str(pair.note)) as client:
        for begin in range(first, first + ROWS, 20):
            rows = ({"k": key, "v": b64encode(os.urandom(WIDE_BYTES)).decode()} for key in range(begin, begin + 20))
            client.mutate("t", [{"op": "upsert", "row": row} for row in rows])


def killed_in(place: Path, pattern: str, pid: int, config: tuple[str, ...]) -> str:
    """Returns what the command says whose active is killed once it has written its first part."""
    return broken_in(place, pattern, lambda: os.kill(pid, signal.SIGKILL), config)


def broken_in(place: Path, pattern: str, act: Callable[[], object], config: tuple[str, ...]) -> str:
    """Returns what the command says that waits, once it has written its first part, until `act` has ended."""
    before = set(place.glob(pattern))
    backup = subprocess.Popen(
        [*TWINLOG, "backup", "--to", str(place), *config], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        until_s = time.monotonic() + DEADLINE_S
        while not set(place.glob(pattern)) - before:
            assert backup.poll() is None, backup.communicate()[0]
            assert time.monotonic() < until_s
            time.sleep(0.001)
        backup.send_signal(signal.SIGSTOP)  # else it may have read all before the active is gone
        act()
        backup.send_signal(signal.SIGCONT)
        said = backup.communicate(timeout=DEADLINE_S)[0]
        assert backup.returncode == 4, said
        return " ".join(said.split())
    finally:
        backup.kill()
        backup.wait()


def backups_known(pair: Pair, site: str) -> int:
    """Returns for how many backups this site keeps its log, also behind a restart."""
    return (pair.folder / site / "data" / "cursors" / "holders.json").read_text().count('"kind":"backup"')


def took(place: Path, config: tuple[str, ...]) -> Any:
    return json.loads(command("backup", "--to", str(place), "--json", *config))


def test_the_active_is_killed_in_a_base_and_in_the_log(tmp_path: Path) -> None:
    place = tmp_path / "backup"
    with Pair(tmp_path / "pair") as pair:
        config = ("--config", str(pair.note))
        command("create-table", "t", "k:int64", "v:string", "--key", "k", *config)
        assert took(place, config)["is_new_base"]
        write(pair, 0)
        said = killed_in(place, "base-*/log-*-000001", pair.pids["a"], config)
        assert "run the backup again" in said
        assert json.loads(command("backup", "verify", str(place), "--json"))["faults"] == []
        command("failover", "--to", "b", "--yes", *config)
        command("backup", "--to", str(place), "--new-base", *config)
        command("backup", "prune", str(place), "--keep", "1", "--yes")
        before = sorted(path.name for path in place.glob("manifests/*"))
        held = set(place.glob("base-*"))
        assert len(held) == 1
        second = tmp_path / "second"
        said = killed_in(second, "base-*/rows-000001", pair.pids["b"], config)
        assert "run the backup again" in said
        assert "holds no backup" in command("backup", "ls", str(second), code=1)
        assert backups_known(pair, "b") == 1
        assert sorted(path.name for path in place.glob("manifests/*")) == before
        assert json.loads(command("backup", "verify", str(place), "--json"))["faults"] == []


def test_a_switchover_in_a_base(tmp_path: Path) -> None:
    place = tmp_path / "backup"
    with Pair(tmp_path / "pair") as pair:
        config = ("--config", str(pair.note))
        command("create-table", "t", "k:int64", "v:string", "--key", "k", *config)
        write(pair, 0)
        move = ("switchover", "--to", "b", "--yes", *config)
        said = broken_in(place, "base-*/rows-000001", lambda: command(*move), config)
        assert "the active moved during the backup: run the backup again" in said
        assert "can be restored, whatever happens now" in said
        assert [backups_known(pair, site) for site in "ab"] == [1, 1]
        (base,) = json.loads(command("backup", "ls", str(place), "--json"))["bases"]
        assert base["rows"] == ROWS
        command("put", "t", "1", "v=of site b", *config)
        assert not took(place, config)["is_new_base"]
        assert json.loads(command("backup", "verify", str(place), "--json"))["faults"] == []
