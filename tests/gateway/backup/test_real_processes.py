"""The operator's walk on real processes: back up, lose both sites, restore, go on."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from bench.pair import TWINLOG, Pair
from chaos.servers.ports import free_ports
from gateway.demo.files import write_files
from tools.sources import ROOT

pytestmark = [pytest.mark.pair, pytest.mark.long]


def command(*words: str, code: int = 0) -> str:
    done = subprocess.run([*TWINLOG, *words], capture_output=True, text=True, timeout=120, cwd=ROOT, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else " ".join((done.stdout + done.stderr).split())  # it breaks lines anywhere


def rows(pair: Pair) -> Any:
    with urlopen(f"http://{pair.host}:{pair.port}/v1/tables/t/rows?limit=1000", timeout=30) as answer:
        return json.load(answer)


def test_a_pair_that_lost_both_sites_comes_back_from_its_backup(tmp_path: Path) -> None:
    place = str(tmp_path / "backup")
    with Pair(tmp_path / "old") as old:
        config = ("--config", str(old.folder / "operator.toml"))
        command("create-table", "t", "k:int64", "v:string", "--key", "k", *config)
        command("put", "t", "1", "v=before the base", *config)
        assert json.loads(command("backup", "--to", place, "--json", *config))["is_new_base"] is True
        command("put", "t", "2", "v=behind it", *config)
        command("put", "t", "1", "v=changed", *config)
        second = json.loads(command("backup", "--to", place, "--json", *config))
        assert (second["is_new_base"], second["added_log_bytes"] > 0) == (False, True)
        wanted = rows(old)
        command("put", "t", "3", "v=lost", *config)
    shutil.rmtree(tmp_path / "old")
    (base,) = json.loads(command("backup", "ls", place, "--json"))["bases"]
    assert base["end"] == second["end"]
    assert json.loads(command("backup", "verify", place, "--json"))["faults"] == []

    site = str(write_files(tmp_path / "new", dict(zip("ab", free_ports(2), strict=True)), engine="rocksdb")["a"])
    later = command("restore", "--from", place, "--config", site, "--at", str(second["end"]["seq"] + 1), code=1)
    assert "knows nothing of that moment" in later
    assert json.loads(command("restore", "--from", place, "--config", site, "--json"))["seq"] == second["end"]["seq"]
    with Pair(tmp_path / "new") as new:
        assert rows(new) == wanted
        command("put", "t", "3", "v=new", "--config", str(new.folder / "operator.toml"))
        refused = command("backup", "--to", place, "--config", str(new.folder / "operator.toml"), code=1)
        assert "give this one a place of its own" in refused
    part = next((tmp_path / "backup").glob("base-*/rows-*"))
    part.write_bytes(part.read_bytes()[:-1])
    assert part.name in command("backup", "verify", place, code=1)
