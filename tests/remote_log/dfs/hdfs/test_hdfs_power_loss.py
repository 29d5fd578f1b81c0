"""Every DataNode loses its power, with what it had not synced: what `hsync` acknowledged is there, and by `hflush` it is not.

What always holds: the page cache is not waited for or assumed. The DataNode's calls are recorded, it is killed, its folder is
replaced by what those calls had made durable, and it starts on that. Names of files count as durable (ext4, XFS).
"""

from __future__ import annotations

import asyncio
import shutil

import pytest

from chaos.crash_states.disk import Disk
from chaos.crash_states.model import equal_trees
from chaos.crash_states.recording import recorded_until_death
from chaos.crash_states.trees import read_tree, write_tree
from chaos.servers.hdfs_cluster import HdfsCluster
from remote_log.fencing.fence import close_by_recovery
from storage.clock import SystemClock
from tests.remote_log.dfs.hdfs.rig import be_unwilling, opener
from tests.remote_log.dfs.hdfs.writer_process import FRAME

pytestmark = [pytest.mark.usefixtures("records_calls"), pytest.mark.long]
APPENDS = 20
RECORDING_S = 60.0
RECOVERY_S = 100.0


@pytest.fixture(autouse=True)
def unwilling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is given up by the test, and does not close its file itself."""
    be_unwilling(monkeypatch)


def lose_power(cluster: HdfsCluster, disk: Disk) -> None:
    """Starts the DataNode, which is dead, on what is durable of `disk`, its folder."""
    root = cluster.folder / "datanode1.data"
    different = equal_trees(disk.cached(), read_tree(root), except_for=["in_use.lock"])
    assert not different, f"the recording does not show all that was done to {different}"
    shutil.rmtree(root)
    root.mkdir(mode=0o700)
    write_tree(disk.names_only(), root)
    cluster.heal()


@pytest.mark.parametrize(("sync", "kept"), [("hsync", APPENDS), ("hflush", 0)])
async def test_what_is_there_after_a_power_loss_of_every_data_node(
    faulty_hdfs: HdfsCluster, hdfs_root: str, sync: str, kept: int
) -> None:
    node = faulty_hdfs.data_nodes[0]
    assert node.pid is not None
    root = (faulty_hdfs.folder / "datanode1.data").resolve()
    disk = Disk(str(root), "")
    async with opener(faulty_hdfs, hdfs_root, deadline_s=30.0) as open_dfs:
        dfs, other = open_dfs(sync=sync), open_dfs()
        with recorded_until_death(node.pid, timeout_s=RECORDING_S) as calls:
            disk.load(read_tree(root))
            writer = await dfs.create("/p/0/s")
            for i in range(APPENDS):
                await writer.append(FRAME % i)
            await asyncio.to_thread(node.kill)
        for call in calls:
            disk.begin(call)
            disk.end(call)
        await asyncio.to_thread(lose_power, faulty_hdfs, disk)
        await close_by_recovery(other, "/p/0/s", SystemClock(), RECOVERY_S)
        assert await other.read("/p/0/s") == b"".join(FRAME % i for i in range(kept))
