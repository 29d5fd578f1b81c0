"""Faults of HDFS under a log: nothing that was acknowledged is lost, nothing is written behind a fence, every error is
clear. The appends are aligned, as those of the remote log are (test_hdfs_torn_chunk.py says what becomes of others)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.writer import HdfsDfsWriter
from remote_log.fencing.fence import close_by_recovery
from storage.clock import SystemClock
from tests.remote_log.dfs.hdfs.rig import Open, be_unwilling, opener
from tests.remote_log.dfs.hdfs.writer_process import FRAME
from tools.sources import ROOT
from twinlog.errors import DfsError, DfsExists, LeaseLost, LeaseNotRecovered

pytestmark = pytest.mark.long

RECOVERY_S = 60.0
SOFT_LIMIT_S = 60.0  # HDFS's own, and not to be set


@pytest.fixture
async def open_dfs(faulty_hdfs: HdfsCluster, hdfs_root: str) -> AsyncIterator[Open]:
    async with opener(faulty_hdfs, hdfs_root, deadline_s=10.0) as opened:
        yield opened


@pytest.fixture
def unwilling(monkeypatch: pytest.MonkeyPatch) -> None:
    be_unwilling(monkeypatch)


async def append_until_failure(writer: HdfsDfsWriter, amid: asyncio.Event) -> tuple[int, DfsError]:
    """Returns how many appends succeeded, three outstanding at a time, and the error of the first that did not."""
    succeeded = 0
    while True:
        if succeeded > 30:
            amid.set()
        group = [writer.append(FRAME % (succeeded + i)) for i in range(3)]
        results = await asyncio.gather(*group, return_exceptions=True)
        succeeded += results.count(None)
        for result in results:
            if isinstance(result, DfsError):
                return succeeded, result


def frames(count: int) -> bytes:
    return b"".join(FRAME % i for i in range(count))


async def check_kept(dfs: HdfsDfs, path: str, succeeded: int) -> bytes:
    """Closes the file as a fencer does: all that succeeded is in it, and nothing but what was appended."""
    await close_by_recovery(dfs, path, SystemClock(), RECOVERY_S)
    seen = await dfs.read(path)
    assert seen.startswith(frames(succeeded))
    assert frames(succeeded + 3).startswith(seen)
    return seen


# ---- DataNodes
async def test_a_data_node_that_is_killed_in_mid_append(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    writer = await open_dfs().create("/p/0/s")
    amid = asyncio.Event()
    appending = asyncio.create_task(append_until_failure(writer, amid))
    await amid.wait()
    await asyncio.to_thread(faulty_hdfs.data_nodes[0].kill)
    succeeded, failure = await appending
    assert "/p/0/s" in failure.message
    await writer.close()
    await asyncio.to_thread(faulty_hdfs.heal)
    await check_kept(open_dfs(), "/p/0/s", succeeded)


async def test_a_last_block_without_a_replica_is_not_taken_for_an_end(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    """Fencing stops and names the file; the operator brings the disk back, and it goes on."""
    node, disk = faulty_hdfs.data_nodes[0], faulty_hdfs.folder / "datanode1.data"
    writer, other = await open_dfs().create("/p/0/s"), open_dfs()
    await writer.append(frames(3))
    await asyncio.to_thread(node.kill)
    disk.rename(disk.with_suffix(".away"))
    await asyncio.to_thread(faulty_hdfs.heal)  # with an empty disk
    with pytest.raises(LeaseNotRecovered, match=r"/p/0/s was not proven closed.*nothing was read.*docs/operations\.md"):
        await close_by_recovery(other, "/p/0/s", SystemClock(), 5.0)
    with pytest.raises(DfsError):
        await writer.append(b"late")
    await writer.close()
    await asyncio.to_thread(node.kill)
    faulty_hdfs.wipe(node)
    disk.with_suffix(".away").rename(disk)
    await asyncio.to_thread(faulty_hdfs.heal)
    # At first it is too soon: the NameNode begins no second recovery of the block for 30 heartbeats. So it is asked again.
    await close_by_recovery(other, "/p/0/s", SystemClock(), 62.0)
    await check_kept(other, "/p/0/s", 3)


@pytest.fixture(scope="module")
def two_nodes(hdfs_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsCluster]:
    """A cluster whose files have two replicas."""
    with HdfsCluster(tmp_path_factory.mktemp("two"), data_nodes=2, replication=2) as cluster:
        cluster.make_folder("/r")
        yield cluster


async def test_the_pipeline_goes_on_with_one_node_and_a_second_one_joins_again(two_nodes: HdfsCluster) -> None:
    async with opener(two_nodes, "/r", deadline_s=10.0) as open_dfs:
        dfs = open_dfs(deadline_s=30.0, options={"dfs.replication": "2"})
        writer = await dfs.create("/p/0/s")
        for i in range(3):
            await writer.append(FRAME % i)
        await asyncio.to_thread(two_nodes.data_nodes[1].kill)
        for i in range(3, 6):
            await writer.append(FRAME % i)
        await asyncio.to_thread(two_nodes.heal)
        for i in range(6, 9):
            await writer.append(FRAME % i)
        await writer.close()
        after = await dfs.create("/p/0/t")  # the new file has both nodes: it survives the other one's death
        await after.append(frames(3))
        await asyncio.to_thread(two_nodes.data_nodes[0].kill)
        await after.append(FRAME % 3)
        assert await open_dfs().read("/p/0/t") == frames(4)
        await after.close()
        await asyncio.to_thread(two_nodes.heal)
        assert await open_dfs().read("/p/0/s") == frames(9)


async def test_another_node_joins_the_pipeline_of_an_open_file(two_nodes: HdfsCluster) -> None:
    """The operator's setting ranks above our default for small clusters."""
    await asyncio.to_thread(two_nodes.add_data_node)
    async with opener(two_nodes, "/r", deadline_s=10.0) as open_dfs:
        wanted = {"dfs.replication": "2", "dfs.client.block.write.replace-datanode-on-failure.policy": "ALWAYS"}
        dfs = open_dfs(deadline_s=30.0, options=wanted)
        writer = await dfs.create("/p/0/u")
        for i in range(3):
            await writer.append(FRAME % i)
        first = nodes_of(two_nodes, dfs, "/p/0/u")
        dying = first[0]
        await asyncio.to_thread(two_nodes.data_nodes[dying].kill)
        for i in range(3, 6):
            await writer.append(FRAME % i)
        joined = set(nodes_of(two_nodes, dfs, "/p/0/u")) - set(first)
        assert len(joined) == 1
        await writer.close()
        await asyncio.to_thread(two_nodes.data_nodes[first[1]].kill)
        assert await dfs.read("/p/0/u") == frames(6), "who joined has all of it"


def nodes_of(cluster: HdfsCluster, dfs: HdfsDfs, path: str) -> list[int]:
    """Numbers of the DataNodes that the first block is on."""
    (block,) = dfs._connected.getFileBlockLocations(dfs._at(path), 0, 1)
    ports = [int(str(name).rpartition(":")[2]) for name in block.getNames()]
    return [cluster.data_node_ports.index(port) for port in ports]


# ---- the NameNode
async def test_a_name_node_that_restarts_under_a_writer(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    """Appends need the DataNodes only; a roll needs the NameNode, fails meanwhile, and works again afterwards."""
    dfs = open_dfs()
    writer = await dfs.create("/p/0/s")
    await writer.append(FRAME % 0)
    await asyncio.to_thread(faulty_hdfs.name_node.kill)
    for i in range(1, 50):
        await writer.append(FRAME % i)
    with pytest.raises(DfsError, match=r"cannot create /p/0/t.*NameNode") as caught:
        await dfs.create("/p/0/t")
    assert not isinstance(caught.value, DfsExists)
    await asyncio.to_thread(faulty_hdfs.heal)
    await writer.append(FRAME % 50)
    rolled = await dfs.create("/p/0/t")
    await rolled.append(b"x")
    for open_one in (writer, rolled):
        await open_one.close()
    assert await open_dfs().read("/p/0/s") == frames(51)
    assert await open_dfs().is_closed("/p/0/s")


@pytest.mark.usefixtures("unwilling")
async def test_a_name_node_that_forgot_a_recovery_is_asked_again(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    """It restarts before a DataNode has done it. It would not go on by itself, and this is not the time for the next call."""
    writer, other = await open_dfs().create("/p/0/s"), open_dfs(recover_again_s=3600.0)
    await writer.append(frames(3))
    await asyncio.to_thread(faulty_hdfs.data_nodes[0].kill)
    await other.recover_lease("/p/0/s")
    await asyncio.to_thread(faulty_hdfs.name_node.kill)
    with pytest.raises(DfsError):
        await other.is_closed("/p/0/s")
    with pytest.raises(DfsError):
        await writer.append(b"late")
    await writer.close()
    await asyncio.to_thread(faulty_hdfs.heal)
    await check_kept(other, "/p/0/s", 3)


async def test_a_name_node_that_has_not_heard_of_a_data_node_is_asked_later(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    """It would do nothing, and nothing again for 30 heartbeats. Nobody else closes the file, and there is one call only."""
    writer, other = await open_dfs().create("/p/0/s"), open_dfs(recover_again_s=3600.0)
    await writer.append(frames(3))
    for daemon in (faulty_hdfs.data_nodes[0], faulty_hdfs.name_node):
        await asyncio.to_thread(daemon.kill)
    with pytest.raises(DfsError):
        await writer.append(b"late")
    await writer.close()
    faulty_hdfs.name_node.start()
    begun = False
    while not begun:  # the NameNode starts, and connections to the one that was killed end
        with suppress(DfsError):
            await asyncio.to_thread(faulty_hdfs.safe_mode, False)
            await other.recover_lease("/p/0/s")
            begun = True
    assert not await other.is_closed("/p/0/s")
    await asyncio.to_thread(faulty_hdfs.heal)
    await check_kept(other, "/p/0/s", 3)


async def test_fencing_works_after_a_restart_of_the_name_node(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    writer, other = await open_dfs().create("/p/0/s"), open_dfs()
    await writer.append(frames(3))
    await asyncio.to_thread(faulty_hdfs.name_node.kill)
    with pytest.raises(LeaseNotRecovered, match=r"/p/0/s.*cannot be reached"):
        await close_by_recovery(other, "/p/0/s", SystemClock(), 1.0)
    await asyncio.to_thread(faulty_hdfs.heal)
    with suppress(DfsError):  # the connection to the old NameNode, which breaks when it is next used
        await other.list("/p/0")
    await close_by_recovery(other, "/p/0/s", SystemClock(), RECOVERY_S)
    with pytest.raises(LeaseLost):
        await writer.append(b"late")
    await writer.close()
    assert await other.read("/p/0/s") == frames(3)


async def test_safe_mode_stops_a_roll_and_a_fencer_but_no_append(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    dfs, other = open_dfs(), open_dfs()
    writer = await dfs.create("/p/0/s")
    await writer.append(FRAME % 0)
    await asyncio.to_thread(faulty_hdfs.safe_mode, True)
    await writer.append(FRAME % 1)
    with pytest.raises(DfsError, match="safe mode"):
        await dfs.create("/p/0/t")
    with pytest.raises(LeaseNotRecovered, match=r"/p/0/s.*safe mode"):
        await close_by_recovery(other, "/p/0/s", SystemClock(), 2.0)
    await writer.append(FRAME % 2)
    await asyncio.to_thread(faulty_hdfs.safe_mode, False)
    await check_kept(other, "/p/0/s", 3)
    with pytest.raises(LeaseLost):
        await writer.append(b"late")
    await writer.close()


async def test_a_quota_that_ends_within_a_file(faulty_hdfs: HdfsCluster, hdfs_root: str, open_dfs: Open) -> None:
    """At the next block an append fails, names the quota, and leaves what succeeded."""
    dfs = open_dfs(options={"dfs.blocksize": "65536"})
    writer = await dfs.create("/p/0/s")
    await writer.append(b"a" * 60_000)
    await asyncio.to_thread(faulty_hdfs.set_quota, hdfs_root, 100_000)
    with pytest.raises(DfsError, match=r"quota of space is used up: raise it"):
        await writer.append(b"b" * 60_000)
    with pytest.raises(DfsError):
        await writer.append(b"c")
    await writer.close()
    await close_by_recovery(open_dfs(), "/p/0/s", SystemClock(), RECOVERY_S)
    seen = await open_dfs().read("/p/0/s")
    assert seen.rstrip(b"b") == b"a" * 60_000
    await asyncio.to_thread(faulty_hdfs.set_quota, hdfs_root, None)
    again = await dfs.create("/p/0/t")
    await again.append(b"c")
    await again.close()


# ---- leases
@pytest.mark.usefixtures("unwilling")
async def test_a_file_without_a_block_is_closed_at_once(open_dfs: Open) -> None:
    writer, other = await open_dfs().create("/p/0/s"), open_dfs()
    await close_by_recovery(other, "/p/0/s", SystemClock(), 5.0)
    assert await other.read("/p/0/s") == b""
    with pytest.raises(LeaseLost):
        await writer.append(b"late")
    await writer.close()


@asynccontextmanager
async def writer_process(url: str, path: str) -> AsyncIterator[asyncio.subprocess.Process]:
    command = [sys.executable, "-m", "tests.remote_log.dfs.hdfs.writer_process", url, path]
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def ask(process: asyncio.subprocess.Process, appends: int) -> list[str]:
    assert process.stdin is not None
    process.stdin.write(b"%d\n" % appends)
    return await answer(process)


async def answer(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stdout is not None
    async with asyncio.timeout(120):
        return (await process.stdout.readline()).decode().split()


async def test_a_writer_that_sleeps_in_mid_append_is_fenced_before_it_wakes(
    faulty_hdfs: HdfsCluster, hdfs_root: str, open_dfs: Open
) -> None:
    dfs = open_dfs()
    async with writer_process(faulty_hdfs.uri + hdfs_root, "/p/0/s") as process:
        assert await ask(process, 20) == ["ok", "20"]
        assert process.stdin is not None
        process.stdin.write(b"1000000\n")
        while len(await dfs.read("/p/0/s")) < len(frames(100)):
            pass
        process.send_signal(signal.SIGSTOP)
        await close_by_recovery(dfs, "/p/0/s", SystemClock(), RECOVERY_S)
        seen = await dfs.read("/p/0/s")
        process.send_signal(signal.SIGCONT)
        assert await answer(process) == ["LeaseLost"]
    assert frames(len(seen) // len(FRAME % 0) + 1).startswith(seen)
    assert await open_dfs().read("/p/0/s") == seen


async def test_the_soft_limit_of_a_lease_alone_closes_nothing(faulty_hdfs: HdfsCluster, hdfs_root: str, open_dfs: Open) -> None:
    """After a minute of silence HDFS lets others take the lease, and it takes somebody who asks for it. The writer cannot go on
    all the same, for its DataNode has given it up: that is no fence, and the file stays open until somebody closes it."""
    dfs = open_dfs()
    async with writer_process(faulty_hdfs.uri + hdfs_root, "/p/0/s") as process:
        assert await ask(process, 3) == ["ok", "3"]
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(SOFT_LIMIT_S + 5)  # by the clock: it is HDFS's own
        assert await dfs.read("/p/0/s") == frames(3)
        assert not await dfs.is_closed("/p/0/s")
        process.send_signal(signal.SIGCONT)
        assert await ask(process, 3) == ["DfsError"]
    assert not await dfs.is_closed("/p/0/s")
    await check_kept(dfs, "/p/0/s", 3)
