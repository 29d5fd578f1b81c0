"""A backup in a folder of a real HDFS: as in a directory, and what is missing there is named."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from pathlib import Path

import pytest

from bench.pair import Pair
from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.ports import free_ports
from gateway.backup.restoring import Restorer
from gateway.backup.taking import BackupTaker
from gateway.backup.target import opened
from gateway.demo.files import write_files
from remote_log.dfs.opening import DfsSettings
from storage.backup.manifest import NEWEST
from storage.engines.opening import open_engine
from tests.gateway.backup.rig import PairSites, Quiet, new_site, rows_of
from tests.gateway.backup.test_real_processes import command, rows
from tests.pair.pair_rig import open_pair, put, site
from twinlog.errors import DamagedLog, DfsError

pytestmark = pytest.mark.long


async def test_a_backup_in_hdfs_is_restored(hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path) -> None:
    place, config = hdfs.uri + hdfs_root, new_site(tmp_path / "new")
    async with open_pair(tmp_path / "old") as pair, opened(place, DfsSettings(), makes=True) as target:
        taker = BackupTaker(PairSites(pair), target, Quiet(), in_the_clear=False)  # type: ignore[arg-type]
        await put(pair, "a", 1, "before the base")
        await taker.take(new_base=False)
        await put(pair, "a", 2, "behind it")
        taken = await taker.take(new_base=False)
        assert not taken.is_new_base
        rows = await rows_of(site(pair, "a").parts.engine)
    async with opened(place, DfsSettings()) as target:
        await Restorer(target, config, Quiet()).restore(NEWEST)
        engine = await open_engine(config.engine, config.data_dir, config.pair, config.site)
        assert await rows_of(engine) == rows
        await engine.close()
        missing = taken.manifest.parts[-1].name
        await target.dfs.delete(f"/{missing}")
        with pytest.raises(DamagedLog, match=f"{missing} is missing"):
            await Restorer(target, new_site(tmp_path / "other"), Quiet()).restore(NEWEST)
    async with opened(f"{place}/none", DfsSettings()) as target:
        with pytest.raises(DfsError, match=r"/none \(the place of the backup\) is not there.*correct the place of the backup"):
            await target.held()


@pytest.mark.pair
def test_an_encrypted_backup_in_hdfs_outlives_its_pair(hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path) -> None:
    """The operator's commands, each a process: only the key opens what lies in the HDFS, and the new pair has every row."""
    place, key, wrong = hdfs.uri + hdfs_root, ("--key", f"k1=file:{tmp_path}/k1"), ("--key", f"k1=file:{tmp_path}/k2")
    for name, byte in (("k1", b"1"), ("k2", b"2")):
        (tmp_path / name).write_bytes(b64encode(byte * 32))
    with Pair(tmp_path / "old") as old:
        config = ("--config", str(old.folder / "operator.toml"))
        command("create-table", "t", "k:int64", "v:string", "--key", "k", *config)
        command("put", "t", "1", "v=before the base", *config)
        command("backup", "--to", place, *key, *config)
        command("put", "t", "2", "v=behind it", *config)
        taken = json.loads(command("backup", "--to", place, "--json", *key, *config))
        assert (taken["is_new_base"], taken["key_id"]) == (False, "k1")
        wanted = rows(old)
    shutil.rmtree(tmp_path / "old")
    assert json.loads(command("backup", "verify", place, "--json", *key))["faults"] == []
    site = str(write_files(tmp_path / "new", dict(zip("ab", free_ports(2), strict=True)), engine="rocksdb")["a"])
    assert "key-unavailable" in command("restore", "--from", place, "--config", site, *wrong, code=1)
    command("restore", "--from", place, "--config", site, *key)
    with Pair(tmp_path / "new") as new:
        assert rows(new) == wanted
