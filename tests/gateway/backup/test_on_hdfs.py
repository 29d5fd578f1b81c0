"""A backup in a folder of a real HDFS: as in a directory, and what is missing there is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from gateway.backup.restoring import Restorer
from gateway.backup.taking import BackupTaker
from gateway.backup.target import opened
from remote_log.dfs.opening import DfsSettings
from storage.backup.manifest import NEWEST
from storage.engines.opening import open_engine
from tests.gateway.backup.rig import PairSites, new_site, rows_of
from tests.pair.pair_rig import open_pair, put, site
from twinlog.errors import DamagedLog

pytestmark = pytest.mark.long


async def test_a_backup_in_hdfs_is_restored(hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path) -> None:
    place, config = hdfs.uri + hdfs_root, new_site(tmp_path / "new")
    async with open_pair(tmp_path / "old") as pair, opened(place, DfsSettings(), makes=True) as target:
        taker = BackupTaker(PairSites(pair), target, in_the_clear=False, say=lambda line: None)  # type: ignore[arg-type]
        await put(pair, "a", 1, "before the base")
        await taker.take(new_base=False)
        await put(pair, "a", 2, "behind it")
        taken = await taker.take(new_base=False)
        assert not taken.is_new_base
        rows = await rows_of(site(pair, "a").parts.engine)
    async with opened(place, DfsSettings()) as target:
        await Restorer(target, config, lambda line: None).restore(NEWEST)
        engine = await open_engine(config.engine, config.data_dir, config.pair, config.site)
        assert await rows_of(engine) == rows
        await engine.close()
        missing = taken.manifest.parts[-1].name
        await target.dfs.delete(f"/{missing}")
        with pytest.raises(DamagedLog, match=f"{missing} is missing"):
            await Restorer(target, new_site(tmp_path / "other"), lambda line: None).restore(NEWEST)
