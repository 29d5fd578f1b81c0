"""A pair in this process whose sites have a real HDFS each, and write their remote logs to each other's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from gateway.service.port import WriteResult
from gateway.site import facts
from remote_log.dfs.hdfs import writer as hdfs_writer
from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import java
from remote_log.dfs.port import Dfs
from remote_log.fencing.read_lease import LeaseSettings
from remote_log.fencing.reading import segments_of
from remote_log.layout import RemoteLayout
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, epoch, put, rows, site
from twinlog.errors import TwinlogError

pytestmark = pytest.mark.long

ROWS = 15
RECOVERED_S = 600.0  # HDFS closes the file of a writer whose DataNode died after some 90 s; the rest is for load
LOOK_S = 30.0  # of a preflight at a DFS: a NameNode on a loaded machine took more than the product's 2 s
LEASE_S = 3.0  # each frame proves it anew; one that a loaded machine syncs late must not have the preflight refuse
_folders = count(1)


@pytest.fixture(scope="module")
def other_hdfs(shared_hdfs: HdfsCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """Site b's; site a has the one that all tests share."""
    with HdfsCluster(tmp_path_factory.mktemp("hdfs-b")) as cluster:
        yield cluster


@pytest.fixture
async def pair(
    hdfs: HdfsCluster, other_hdfs: HdfsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Pair]:
    monkeypatch.setattr(facts, "LOOK_TIMEOUT_S", LOOK_S)
    root = f"/pair{next(_folders)}"
    clusters = {"a": hdfs, "b": other_hdfs}
    clients: list[HdfsDfs] = []
    for cluster in clusters.values():
        await asyncio.to_thread(cluster.make_folder, root)

    def open_dfs(site: str) -> Dfs:
        settings = HdfsSettings(clusters[site].uri + root, f"dfs.of-{site}", deadline_s=10.0)
        clients.append(HdfsDfs(settings, java(256 << 20)))
        return clients[-1]

    made = Pair(tmp_path, open_dfs=open_dfs)
    for name in "ab":
        made.settings[name] = {"lease": LeaseSettings(lease_s=LEASE_S, drift_margin=0.1, noop_interval_s=0.1)}
    try:
        for name in "ab":
            await made.start(name)
        await made.until(lambda: made.role("a") == "ACTIVE" and made.role("b") == "STANDBY")
        yield made
    finally:
        await made.stop_all()
        for client in clients:
            await client.close()


async def write_rows(pair: Pair, name: str, first: int) -> list[int]:
    keys = list(range(first, first + ROWS))
    results = await asyncio.gather(*[put(pair, name, key, f"of {name}") for key in keys])
    assert all(isinstance(result, WriteResult) and result.mode == "sync" for result in results)
    return keys


@pytest.mark.parametrize("willing", [True, False], ids=["the old writer gives way", "the old writer sleeps"])
async def test_what_was_acknowledged_outlives_both_sites_in_turn(
    pair: Pair, willing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.running["a"].service.tables.create(TABLE)
    written = await write_rows(pair, "a", 0)
    peer_dfs = pair.running["b"].site.parts.own_dfs
    assert await segments_of(peer_dfs, RemoteLayout("test"), site(pair, "a").epoch), "the remote log is on the other's HDFS"
    ended = await pair.operate("b", "switchover", "b")
    assert ended.state == "succeeded", ended.error
    if not willing:
        monkeypatch.setattr(hdfs_writer.HdfsDfsWriter, "_looked", lambda writer, looking: None)  # nor what is planned
    written += await write_rows(pair, "b", ROWS)
    await pair.until(lambda: pair.role("a") == "STANDBY" and pair.running["a"].operations.running_id is None)
    await pair.crash("b")
    ended = await pair.force_failover("a")
    assert ended.state == "succeeded", ended.error
    written_alone = list(range(2 * ROWS, 3 * ROWS))
    await asyncio.gather(*[put(pair, "a", key, "of a") for key in written_alone])
    await pair.start("b")
    await pair.until(lambda: pair.role("b") == "STANDBY" and caught_up(pair, "a", "b"))
    expected = {key: "of b" if ROWS <= key < 2 * ROWS else "of a" for key in [*written, *written_alone]}
    for name in "ab":
        assert await rows(pair, name) == expected


async def write_on(pair: Pair, acknowledged: set[int]) -> None:
    """Rows one after the other, big enough to roll the remote log often; what is not acknowledged is not counted."""
    for key in count(1000):
        with suppress(TwinlogError):
            result = await put(pair, "a", key, Random(key).randbytes(4000).hex(), deadline_s=3.0)
            assert result.mode == "sync"
            acknowledged.add(key)


@pytest.mark.long
async def test_writing_goes_on_whenever_a_part_of_the_hdfs_comes_back(pair: Pair, other_hdfs: HdfsCluster) -> None:
    """The NameNode dies while segments roll, then the DataNode under the open segment, then both: nothing that was acknowledged
    is lost, and nobody has to do anything at the gateway."""
    await pair.running["a"].service.tables.create(TABLE)
    acknowledged: set[int] = set()
    writing = asyncio.create_task(write_on(pair, acknowledged))
    name_node, data_node = other_hdfs.name_node, other_hdfs.data_nodes[0]
    try:
        for dying in ([name_node], [data_node], [name_node, data_node]):
            done = len(acknowledged) + 20
            await pair.until(lambda done=done: len(acknowledged) >= done or writing.done(), RECOVERED_S)
            for daemon in dying:
                await asyncio.to_thread(daemon.kill)
            await pair.until(lambda: remote_trouble(pair) is not None or writing.done())
            await asyncio.to_thread(other_hdfs.heal)
        done = len(acknowledged) + 20
        await pair.until(lambda: len(acknowledged) >= done or writing.done(), RECOVERED_S)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    await pair.crash("a")
    ended = await pair.operate("b", "failover", "b")
    assert ended.state == "succeeded", ended.error
    table = site(pair, "b").catalog.find("t")
    assert table is not None
    codec, engine = RowCodec(table), site(pair, "b").parts.engine
    held = [await engine.get(table.id, codec.encode_json_row({"k": key, "v": ""})[0]) for key in sorted(acknowledged)]
    assert len(held) > 80
    assert None not in held


def remote_trouble(pair: Pair) -> TwinlogError | None:
    remote = epoch(pair, "a").remote
    return None if remote is None else remote.trouble
