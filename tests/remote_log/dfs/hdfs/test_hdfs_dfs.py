"""The DFS port on a real HDFS: the contract, fencing of writers that do not give way, deadlines, and what errors say."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jpype  # type: ignore[import-untyped]
import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from remote_log.dfs.hdfs import writer as hdfs_writer
from remote_log.dfs.hdfs.client import CHUNK_KEY, HdfsSettings, configuration
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import java
from remote_log.dfs.opening import warm_up
from remote_log.dfs.owner import Owner
from remote_log.fencing.fence import close_by_recovery
from storage.clock import SystemClock
from storage.log.segment import REMOTE_ALIGNMENT
from tests.remote_log.dfs.dfs_contract import DfsContract
from tests.remote_log.dfs.hdfs.rig import HEAP_BYTES, Open, be_unwilling, opener
from tools.sources import ROOT
from twinlog.errors import DfsError, LeaseLost, LeaseNotRecovered


@pytest.fixture
async def open_dfs(hdfs: HdfsCluster, hdfs_root: str) -> AsyncIterator[Open]:
    """Clients of a folder of their own; keywords are fields of HdfsSettings. The JVM starts after the fixture found a Java."""
    async with opener(hdfs, hdfs_root) as opened:
        yield opened


@pytest.fixture
def unwilling(monkeypatch: pytest.MonkeyPatch) -> None:
    be_unwilling(monkeypatch)


class TestHdfsDfs(DfsContract):
    @pytest.fixture
    def dfs(self, open_dfs: Open) -> HdfsDfs:
        return open_dfs()

    @pytest.fixture
    def other(self, open_dfs: Open) -> HdfsDfs:
        return open_dfs()


async def test_large_appends_and_hflush(open_dfs: Open) -> None:
    dfs = open_dfs(sync="hflush")
    writer = await dfs.create("/p/0/s")
    pieces = [bytes([65 + i]) * size for i, size in enumerate((1, hdfs_writer.COPY_BYTES, 3 * hdfs_writer.COPY_BYTES + 7, 300))]
    await asyncio.gather(*[writer.append(piece) for piece in pieces])
    assert await open_dfs().read("/p/0/s") == b"".join(pieces)
    await writer.close()
    assert await dfs.read("/p/0/s", hdfs_writer.COPY_BYTES, 9) == b"".join(pieces)[hdfs_writer.COPY_BYTES :][:9]


async def test_java_keeps_no_thread_of_a_writer_that_is_closed(open_dfs: Open) -> None:
    """Each file has a thread of its own. A thread that ended as one of Java's, and had not left, would stay there for ever."""
    counted = jpype.JClass("java.lang.management.ManagementFactory").getThreadMXBean()
    dfs, before = open_dfs(), 0
    for number in range(24):
        if number == 4:  # by now Hadoop's own threads are there
            before = int(counted.getThreadCount())
        writer = await dfs.create(f"/p/0/{number}")
        await writer.append(b"x")
        await writer.close()
    assert int(counted.getThreadCount()) < before + 10


# ---- fencing
async def test_a_living_writer_gives_way_and_closes_its_file_itself(open_dfs: Open) -> None:
    """The lease is not taken: nobody is interrupted in the middle of a sync."""
    dfs, other = open_dfs(), open_dfs()
    writer = await dfs.create("/p/0/s")
    await writer.append(b"kept")
    await other.probe()
    other._connected = spy = Spy(other._connected)
    await other.recover_lease("/p/0/s")
    assert await other.is_closed("/p/0/s")
    assert "recoverLease" not in spy.calls
    with pytest.raises(LeaseLost):
        await writer.append(b"late")
    assert await other.read("/p/0/s") == b"kept"
    assert [str(status.getPath().getName()) for status in listing(other, "/p/0")] == ["s"], "the mark is taken away again"


@pytest.mark.usefixtures("unwilling")
async def test_an_unwilling_writer_is_fenced_by_lease_recovery(open_dfs: Open) -> None:
    dfs, other = open_dfs(), open_dfs()
    writer = await dfs.create("/p/0/s")
    await writer.append(b"kept")
    await close_by_recovery(other, "/p/0/s", SystemClock(), 30.0)
    with pytest.raises(LeaseLost):
        await writer.append(b"late")
    assert await other.read("/p/0/s") == b"kept"


@pytest.mark.usefixtures("unwilling")
async def test_our_own_writer_is_fenced_by_our_own_recovery(open_dfs: Open) -> None:
    """The lease then stays with the same holder: the mark tells."""
    dfs = open_dfs()
    writer = await dfs.create("/p/0/s")
    await writer.append(b"kept")
    await close_by_recovery(dfs, "/p/0/s", SystemClock(), 30.0)
    with pytest.raises(LeaseLost):
        await writer.append(b"late")


@pytest.mark.usefixtures("unwilling")
async def test_recovery_is_not_asked_for_again_before_its_time(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    """Each would begin anew. The DataNode sleeps, so that the first one is not done when the others come."""
    dfs, other = open_dfs(), open_dfs(recover_again_s=3600.0)
    writer = await dfs.create("/p/0/s")
    await writer.append(b"kept")
    await other.probe()
    other._connected = spy = Spy(other._connected)
    faulty_hdfs.data_nodes[0].pause()
    for _ in range(5):
        await other.recover_lease("/p/0/s")
    assert spy.calls.count("recoverLease") == 1
    other._settings = replace(other._settings, recover_again_s=0.0)  # its time has come
    await other.recover_lease("/p/0/s")
    assert spy.calls.count("recoverLease") == 2
    faulty_hdfs.data_nodes[0].resume()
    await close_by_recovery(other, "/p/0/s", SystemClock(), 30.0)
    with pytest.raises(LeaseLost):
        await writer.close()


@pytest.mark.usefixtures("unwilling")
async def test_a_file_that_does_not_close_is_named_at_the_deadline(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    dfs, other = open_dfs(deadline_s=3.0), open_dfs()
    writer = await dfs.create("/p/0/s")
    await writer.append(b"kept")
    await asyncio.to_thread(faulty_hdfs.data_nodes[0].kill)
    with pytest.raises(LeaseNotRecovered, match="/p/0/s"):
        await close_by_recovery(other, "/p/0/s", SystemClock(), 2.5)
    with pytest.raises(DfsError):
        await writer.append(b"late")
    await writer.close()
    given_up = other._java.Path(f"{other._settings.root}-given-up")
    other._connected.rename(other._at("/p/0/s"), given_up)  # as `hdfs dfs -mv` does
    await close_by_recovery(other, "/p/0/s", SystemClock(), 2.5)
    assert await other.list("/p/0") == []


# ---- deadlines
async def test_a_data_node_that_hangs_fails_its_writer_alone(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    dfs = open_dfs(deadline_s=3.0)
    writer = await dfs.create("/p/0/s")
    await writer.append(b"before")
    faulty_hdfs.data_nodes[0].pause()
    hung = [writer.append(b"hangs") for _ in range(3)]
    turned = asyncio.create_task(turns())
    assert [entry.name for entry in await dfs.list("/p/0")] == ["s"]
    for append in hung:
        with pytest.raises(DfsError, match=r"no answer.*dfs\.peer.*/p/0/s.*within 3\.0 s"):
            await append
    with pytest.raises(DfsError, match="no answer"):
        await writer.append(b"never again")
    turned.cancel()
    assert await turned > 3, "the event loop does not hang with it"
    faulty_hdfs.data_nodes[0].resume()
    with pytest.raises(DfsError):
        await writer.append(b"not even now")
    await writer.close()


async def test_a_first_call_waits_until_java_has_its_classes(open_dfs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    dfs, loaded = open_dfs(deadline_s=0.2), threading.Event()
    monkeypatch.setattr(dfs, "_fs", lambda: None)
    monkeypatch.setattr(dfs._java, "is_warm", False)
    asyncio.get_running_loop().call_later(0.5, loaded.set)
    assert await dfs._call("look at", "/p", lambda _: loaded.wait(60))
    assert not dfs._java.is_warm, "one call does not load what the others need"
    monkeypatch.setattr(dfs._java, "is_warm", True)
    loaded.clear()
    with pytest.raises(DfsError, match=r"no answer within 0\.2 s"):
        await dfs._call("look at", "/p", lambda _: loaded.wait(60))
    loaded.set()


async def test_a_name_node_that_hangs_ends_every_call_at_the_deadline(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    dfs = open_dfs(deadline_s=3.0)
    await dfs.create_file("/p/a", b"1")
    faulty_hdfs.name_node.pause()
    calls: list[Awaitable[object]] = [
        dfs.list("/p"), dfs.read("/p/a"), dfs.create("/p/s"), dfs.create_file("/p/b", b""), dfs.delete("/p/a"),
        dfs.recover_lease("/p/a"), dfs.is_closed("/p/a"), dfs.probe(),
    ]
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, DfsError)
        assert "dfs.peer" in result.message
    faulty_hdfs.name_node.resume()
    for _ in range(100):
        try:
            assert await dfs.list("/none") == []
            return
        except DfsError:
            await asyncio.sleep(0.1)
    raise AssertionError("the client does not come back")


async def test_no_class_of_java_is_made_once_there_are_threads(hdfs: HdfsCluster, hdfs_root: str) -> None:
    """JPype ends the process when two threads meet a class for the first time: seen at the start of a site under load."""
    command = [sys.executable, str(Path(__file__).with_name("met_process.py")), hdfs.uri + hdfs_root]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


async def test_a_first_probe_has_java_load_what_every_look_needs(hdfs: HdfsCluster, hdfs_root: str) -> None:
    """Else the first preflight of a site that has just started is refused: a look may take 2 s, and Java alone took more."""
    command = [sys.executable, str(Path(__file__).with_name("warm_process.py")), hdfs.uri + hdfs_root]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    probed, looked = map(int, done.stdout.split())
    assert looked * 50 < probed, (probed, looked)


async def test_a_site_that_starts_warms_java_by_whichever_hdfs_answers(open_dfs: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    living, lost = open_dfs(), open_dfs(url="hdfs://127.0.0.1:1/lost")
    monkeypatch.setattr(living._java, "is_warm", False)
    await warm_up(lost)
    assert not living._java.is_warm, "it starts all the same"
    await warm_up(lost, living)
    assert living._java.is_warm


async def test_a_process_ends_although_java_hangs(faulty_hdfs: HdfsCluster, hdfs_root: str) -> None:
    program = """
import asyncio, sys
from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import end_process, java
async def main():
    first, dfs = (HdfsDfs(HdfsSettings(sys.argv[1], "dfs.peer", deadline_s=s), java(128 << 20)) for s in (40.0, 5.0))
    await first.probe()
    writer = await dfs.create("/s")
    await writer.append(b"1")
    print("written", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await writer.append(b"2")
    except Exception as error:
        print(type(error).__name__)
asyncio.run(main())
end_process(3)
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, faulty_hdfs.uri + hdfs_root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"written\n"
        faulty_hdfs.data_nodes[0].pause()
        async with asyncio.timeout(120):
            said, _ = await process.communicate(b"\n")
        assert (said, process.returncode) == (b"DfsError\n", 3)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


# ---- what errors say
async def test_an_address_that_is_wrong(hdfs: HdfsCluster, open_dfs: Open) -> None:
    web = hdfs.web_url.removeprefix("http://")
    for url, told in (
        ("hdfs://127.0.0.1:1/x", r"cannot be reached: check dfs\.peer\.url"),
        ("hdfs://nowhere.invalid:8020/x", r"no such host: check dfs\.peer\.url.*dfs\.peer\.conf_dir"),
        (f"hdfs://{web}/x", r"RPC port, not its web port"),
        (f"{hdfs.uri}/not/there", r"is not there: create it.*or correct dfs\.peer\.url"),
    ):
        dfs = open_dfs(url=url, deadline_s=10.0)
        for call in (dfs.probe(), dfs.list("/p"), dfs.create_file("/p/a", b"")):
            with pytest.raises(DfsError, match=told) as caught:
                await call
            assert url in caught.value.message


async def test_a_path_that_is_a_file(hdfs: HdfsCluster, hdfs_root: str, open_dfs: Open) -> None:
    await open_dfs().create_file("/file", b"1")
    with pytest.raises(DfsError, match=r"a part of that path is a file: check the path in dfs\.peer\.url"):
        await open_dfs().create("/file/s")
    with pytest.raises(DfsError, match="is not there"):
        await open_dfs(url=f"{hdfs.uri}{hdfs_root}/file").probe()


async def test_a_user_who_may_not(open_dfs: Open) -> None:
    await open_dfs().create_file("/p/a", b"1")
    with pytest.raises(DfsError, match=r"not permitted: let nobody own hdfs://.*or check dfs\.peer\.user"):
        await open_dfs(user="nobody").create("/p/s")


async def test_safe_mode(faulty_hdfs: HdfsCluster, open_dfs: Open) -> None:
    await asyncio.to_thread(faulty_hdfs.safe_mode, True)
    with pytest.raises(DfsError, match=r"is in safe mode: wait"):
        await open_dfs().create("/p/s")


async def test_a_quota(hdfs: HdfsCluster, hdfs_root: str, open_dfs: Open) -> None:
    await asyncio.to_thread(hdfs.set_quota, hdfs_root, 1024)
    writer = await open_dfs().create("/p/s")
    with pytest.raises(DfsError, match="quota of space is used up"):
        await writer.append(b"x")
    await writer.close()


async def test_a_root_that_was_replaced_is_not_taken_for_an_empty_one(hdfs_root: str, open_dfs: Open) -> None:
    dfs = open_dfs()
    await dfs.create_file("/p/a", b"1")
    admin = open_dfs(url=dfs._settings.url.removesuffix(hdfs_root) + "/")
    await admin.delete(hdfs_root)
    with pytest.raises(DfsError, match="is not there"):
        await dfs.list("/p")
    await admin.create_file(f"{hdfs_root}/x", b"")
    with pytest.raises(DfsError, match=r"not the one that was there before.*restart the gateway of the site whose own it is"):
        await dfs.list("/p")
    own = HdfsDfs(dfs._settings, dfs._java, marks=True)
    try:
        assert await own.list("/p") == []  # a gateway that starts there marks it as its own
    finally:
        await own.close()
    assert await dfs.list("/p") == []
    await dfs.probe()


async def test_a_folder_that_the_other_site_has_marked_is_not_written(open_dfs: Open) -> None:
    """Both logs of an active would be at one site if its file exchanged `[dfs.own]` and `[dfs.peer]`."""
    settings, machine = open_dfs()._settings, open_dfs()._java
    a, b = Owner("shop", "a"), Owner("shop", "b")
    owned = HdfsDfs(settings, machine, owner=a, marks=True)
    of_peer, right = HdfsDfs(settings, machine, owner=b), HdfsDfs(settings, machine, owner=a)
    swapped = HdfsDfs(settings, machine, owner=b, marks=True)
    try:
        await owned.probe()
        for call in (of_peer.create("/s"), of_peer.create_file("/f", b"1"), swapped.probe(), swapped.create_file("/f", b"1")):
            with pytest.raises(DfsError, match=r"marked as that of site a.*exchanged.*delete \.twinlog/shop\.a there"):
                await call
        await right.create_file("/f", b"1")
    finally:
        for each in (owned, of_peer, swapped, right):
            await each.close()


async def test_a_folder_with_erasure_coding_is_refused(hdfs: HdfsCluster, hdfs_root: str, open_dfs: Open) -> None:
    """There hsync would do nothing, without an error."""
    dfs = open_dfs()
    await dfs.probe()
    policy, root = "XOR-2-1-1024k", dfs._java.Path(hdfs_root)
    await asyncio.to_thread(dfs._connected.enableErasureCodingPolicy, policy)
    await asyncio.to_thread(dfs._connected.setErasureCodingPolicy, root, policy)
    with pytest.raises(DfsError, match="erasure coding"):
        await dfs.create("/s")
    assert [str(status.getPath().getName()) for status in dfs._connected.listStatus(root)] == []


@pytest.mark.usefixtures("hdfs")
async def test_hadoops_own_files_and_keys(tmp_path: Any) -> None:
    """The site's files over our defaults, single keys over both; observers, whose reads may be old, are refused."""
    (tmp_path / "hdfs-site.xml").write_text(
        "<configuration><property><name>dfs.client.socket-timeout</name><value>77</value></property>"
        "<property><name>dfs.replication</name><value>2</value></property>"
        "<property><name>dfs.bytes-per-checksum</name><value>4096</value></property></configuration>"
    )
    settings = HdfsSettings("hdfs://pair/x", "dfs.own", conf_dir=tmp_path, options={"dfs.replication": "3"})
    conf = configuration(java(HEAP_BYTES), settings)
    shown = [str(conf.get(key)) for key in (
        "dfs.client.socket-timeout", "dfs.replication", "dfs.client.block.write.replace-datanode-on-failure.policy", CHUNK_KEY)]
    assert shown == ["77", "3", "NEVER", str(REMOTE_ALIGNMENT)], "the last one whatever the files say"
    with pytest.raises(DfsError, match=r"dfs\.bytes-per-checksum is 4096 under dfs\.own\.options, .*; remove that option"):
        configuration(java(HEAP_BYTES), replace(settings, options={CHUNK_KEY: "4096"}))
    provider = "org.apache.hadoop.hdfs.server.namenode.ha.ObserverReadProxyProvider"
    observing = {"dfs.client.failover.proxy.provider.pair": provider}
    with pytest.raises(DfsError, match=r"observer NameNodes.*dfs\.own\.options"):
        configuration(java(HEAP_BYTES), replace(settings, options=observing))


# ---- helpers
async def turns() -> int:
    """Returns how often the event loop came by, at most once in 10 ms, when it is cancelled."""
    count = 0
    with suppress(asyncio.CancelledError):
        while True:
            await asyncio.sleep(0.01)
            count += 1
    return count


def listing(dfs: HdfsDfs, path: str) -> Any:
    return dfs._connected.listStatus(dfs._at(path))


class Spy:
    """A Java object that notes what is called on it."""

    def __init__(self, real: Any) -> None:
        self.calls: list[str] = []
        self._real = real

    def __getattr__(self, name: str) -> Any:
        self.calls.append(name)
        return getattr(self._real, name)
