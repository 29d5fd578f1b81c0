"""What HDFS does to a WebHDFS client: each fault is a clear error by the deadline, and the same client goes on after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from remote_log.dfs.hdfs.webhdfs import WebHdfs, WebHdfsSettings
from twinlog.errors import DfsError, DfsExists, DfsNotFound

pytestmark = pytest.mark.timeout(240)
DEADLINE_S = 4.0


@pytest.fixture
async def dfs(faulty_hdfs: HdfsCluster, hdfs_root: str) -> AsyncIterator[WebHdfs]:
    settings = WebHdfsSettings((faulty_hdfs.web_url,), hdfs_root, "dfs.peer", faulty_hdfs.user, deadline_s=DEADLINE_S)
    made = WebHdfs(settings)
    await made.create_file("/p/claims/1", b"first")
    yield made
    await made.close()


async def test_a_name_node_that_restarts(faulty_hdfs: HdfsCluster, dfs: WebHdfs) -> None:
    faulty_hdfs.name_node.kill()
    for refused in (dfs.list("/p/claims"), dfs.create_file("/p/claims/2", b"2"), dfs.read("/p/claims/1"), dfs.probe()):
        with pytest.raises(DfsError, match="check that WebHDFS answers") as caught:
            await refused
        assert not isinstance(caught.value, DfsNotFound | DfsExists)
    await asyncio.to_thread(faulty_hdfs.heal)
    with suppress(DfsError):  # the DataNode's own connection to the old NameNode breaks when it is next used
        assert await dfs.read("/p/claims/1") == b"first"
    await dfs.create_file("/p/claims/2", b"2")
    assert [(entry.name, entry.length) for entry in await dfs.list("/p/claims")] == [("1", 5), ("2", 1)]
    assert await dfs.read("/p/claims/1") == b"first"


async def test_a_name_node_that_hangs_is_given_up_at_the_deadline(faulty_hdfs: HdfsCluster, dfs: WebHdfs) -> None:
    """What it did not answer it may still do when it wakes: but never without the content."""
    faulty_hdfs.name_node.pause()
    began_s = time.monotonic()
    refused = (dfs.create_file("/p/claims/2", b"whole"), dfs.read("/p/claims/1"), dfs.list("/p/claims"))
    results = await asyncio.gather(*refused, return_exceptions=True)
    assert time.monotonic() - began_s < DEADLINE_S + 2
    assert all(isinstance(result, DfsError) for result in results)
    faulty_hdfs.name_node.resume()
    await asyncio.to_thread(faulty_hdfs.heal)
    assert await dfs.read("/p/claims/1") == b"first"
    assert [entry.length for entry in await dfs.list("/p/claims") if entry.name == "2"] in ([], [5])


async def test_safe_mode_refuses_writes_and_answers_reads(faulty_hdfs: HdfsCluster, dfs: WebHdfs) -> None:
    await asyncio.to_thread(faulty_hdfs.safe_mode, True)
    for refused in (dfs.create_file("/p/claims/2", b"2"), dfs.delete("/p/claims/1"), dfs.probe()):
        with pytest.raises(DfsError, match=r"is in safe mode: wait until .*-safemode leave"):
            await refused
    assert [entry.name for entry in await dfs.list("/p/claims")] == ["1"]
    assert await dfs.read("/p/claims/1") == b"first"
    await asyncio.to_thread(faulty_hdfs.safe_mode, False)
    await dfs.create_file("/p/claims/2", b"2")


async def test_a_quota_that_is_used_up(faulty_hdfs: HdfsCluster, dfs: WebHdfs, hdfs_root: str) -> None:
    await asyncio.to_thread(faulty_hdfs.set_quota, hdfs_root, 1 << 20)  # a new block counts whole, and is bigger
    with pytest.raises(DfsError, match=r"quota of space is used up: raise it with `hdfs dfsadmin -setSpaceQuota`"):
        await dfs.create_file("/p/claims/2", b"2")
    assert [entry.name for entry in await dfs.list("/p/claims")] == ["1"]
    assert await dfs.read("/p/claims/1") == b"first"
    await asyncio.to_thread(faulty_hdfs.set_quota, hdfs_root, None)
    await dfs.create_file("/p/claims/2", b"2")


async def test_no_data_node_is_no_lock_file(faulty_hdfs: HdfsCluster, dfs: WebHdfs) -> None:
    """The NameNode takes a DataNode for live some seconds after it died: the file gets no name without its content."""
    faulty_hdfs.data_nodes[0].kill()
    with pytest.raises(DfsError):
        await dfs.create_file("/p/claims/2", b"2")
    with pytest.raises(DfsError) as caught:
        await dfs.read("/p/claims/1")
    assert not isinstance(caught.value, DfsNotFound)
    await asyncio.to_thread(faulty_hdfs.wait, lambda status: status.live == 0, "the DataNode is given up")
    with pytest.raises(DfsError, match="DataNodes run"):
        await dfs.create_file("/p/claims/2", b"2")
    assert [entry.name for entry in await dfs.list("/p/claims")] == ["1"]
    await asyncio.to_thread(faulty_hdfs.heal)
    await dfs.create_file("/p/claims/2", b"2")
    assert await dfs.read("/p/claims/1") == b"first"


async def test_content_whose_only_replica_is_lost_is_an_error_and_not_empty(faulty_hdfs: HdfsCluster, dfs: WebHdfs) -> None:
    node = faulty_hdfs.data_nodes[0]
    node.kill()
    faulty_hdfs.wipe(node)
    await asyncio.to_thread(faulty_hdfs.heal)
    with pytest.raises(DfsError) as caught:
        await dfs.read("/p/claims/1")
    assert not isinstance(caught.value, DfsNotFound)
    assert [entry.length for entry in await dfs.list("/p/claims")] == [5]
    with pytest.raises(DfsExists):
        await dfs.create_file("/p/claims/1", b"second")
