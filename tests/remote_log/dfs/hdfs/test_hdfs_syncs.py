"""Counts what a DataNode syncs to its disk: an append by `hsync`, none by `hflush`, and blocks that an append leaves behind.

A DataNode shows its counters some time later, and all of them as of one moment. So the counts here are much larger than what
others can have left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from tests.remote_log.dfs.hdfs.rig import Open, opener

APPENDS = 200
LEFT_BEHIND = 40  # syncs of others that may still come to be shown
BLOCKS, BLOCK_BYTES = 100, 64 << 10


@pytest.fixture
async def open_dfs(hdfs: HdfsCluster, hdfs_root: str) -> AsyncIterator[Open]:
    async with opener(hdfs, hdfs_root) as opened:
        yield opened


async def _until(cluster: HdfsCluster, holds: Callable[[int, int], bool]) -> tuple[int, int]:
    """Returns the first counts, of syncs and flushes, for which it holds."""
    async with asyncio.timeout(120):
        while not holds(*(counts := await asyncio.to_thread(cluster.syncs))):  # noqa: ASYNC110 - a poll of a real server
            await asyncio.sleep(0.1)
    return counts


async def test_each_append_by_hsync_is_on_the_disk_and_none_by_hflush(hdfs: HdfsCluster, open_dfs: Open) -> None:
    syncs, flushes = await asyncio.to_thread(hdfs.syncs)
    careless = await open_dfs(sync="hflush").create("/p/0/careless")
    for _ in range(APPENDS):
        await careless.append(bytes(512))
    seen, _ = await _until(hdfs, lambda _, flushed: flushed >= flushes + APPENDS)
    assert seen <= syncs + LEFT_BEHIND
    durable = await open_dfs().create("/p/0/durable")
    for _ in range(APPENDS):
        await durable.append(bytes(512))
    await _until(hdfs, lambda synced, _: synced >= seen + APPENDS)
    await careless.close()
    await durable.close()


async def test_a_block_that_an_append_leaves_behind_is_on_the_disk_too(hdfs: HdfsCluster, open_dfs: Open) -> None:
    """`hsync` is of the last block alone. The others are synced because the file was made so."""
    syncs, _ = await asyncio.to_thread(hdfs.syncs)
    writer = await open_dfs(options={"dfs.blocksize": str(BLOCK_BYTES)}).create("/p/0/blocks")
    await writer.append(bytes(BLOCKS * BLOCK_BYTES))
    await _until(hdfs, lambda synced, _: synced >= syncs + BLOCKS)
    await writer.close()
