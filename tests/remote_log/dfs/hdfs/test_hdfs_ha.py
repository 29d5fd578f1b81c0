"""A name service: the active NameNode dies under a log that is written, its standby takes over, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from chaos.servers.hdfs_ha import HaHdfsCluster
from remote_log.fencing.claims import claim
from remote_log.fencing.fence import fence
from remote_log.fencing.reading import read_frames
from remote_log.writing.writer import RemoteWriter, RemoteWriterSettings
from storage.clock import SystemClock
from storage.log.segment import wal_name
from tests.remote_log.dfs.hdfs.rig import Open, be_unwilling, opener
from tests.remote_log.writing.remote_rig import LAYOUT, content_of
from tests.storage.log.frames import run
from twinlog.errors import DfsError, Fenced

pytestmark = pytest.mark.long

FRAMES_MAX = 100_000
RECOVERY_S = 60.0


@pytest.fixture(scope="module")
def ha_hdfs(hdfs_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HaHdfsCluster]:
    with HaHdfsCluster(tmp_path_factory.mktemp("ha")) as cluster:
        cluster.make_folder("/r")
        yield cluster


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110 - a poll of what a real cluster does
            await asyncio.sleep(0.01)


class Log:
    """A remote log of epoch 1 whose segments are small, with frames submitted one after the other until `stop`."""

    def __init__(self, open_dfs: Open) -> None:
        self.dfs = open_dfs()
        self.synced_seq = 0
        self.fenced: list[Fenced] = []
        self.writer = RemoteWriter(
            self.dfs, LAYOUT, 1, SystemClock(), RemoteWriterSettings(segment_bytes=18_000, retry_max_s=0.2),
            on_synced=self._synced, on_ended=self.fenced.append, wal_name=lambda: wal_name(1, 1),
        )
        self._stopped = False

    def _synced(self, seq: int, started_s: float) -> None:
        self.synced_seq = seq

    async def write(self) -> None:
        for frame in run(1, FRAMES_MAX):
            if self._stopped:
                return
            self.writer.submit(frame)
            await asyncio.sleep(0.002)

    async def reach(self, seq: int) -> None:
        await _until(lambda: self.synced_seq >= seq)

    async def roll(self, segments: int) -> None:
        await _until(lambda: len(self.writer.segments) >= segments and self.writer.segments[segments - 1].begun)

    def stop(self) -> None:
        self._stopped = True


async def test_what_is_no_name_service_is_told_of(ha_hdfs: HaHdfsCluster) -> None:
    """One NameNode's address leads to a standby one day, and without the service's files its name is taken for a host's."""
    async with opener(ha_hdfs, "/r", deadline_s=10.0, conf_dir=ha_hdfs.client_conf_dir) as open_dfs:
        for url, told in (
            (f"{ha_hdfs.standby_uri}/r", r"is a standby: name the service .* in dfs\.peer\.url, .* by dfs\.peer\.conf_dir"),
            (f"{ha_hdfs.uri}/r", r"no such host: check dfs\.peer\.url; a name service needs .* by dfs\.peer\.conf_dir"),
        ):
            dfs = open_dfs(url=url, conf_dir=None)
            for call in (dfs.probe(), dfs.list("/p"), dfs.create("/p/s")):
                with pytest.raises(DfsError, match=told):
                    await call


async def test_writing_goes_on_when_the_active_name_node_dies(
    ha_hdfs: HaHdfsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's client knows the service by `conf_dir`, the fencer's by `options`. The new active fences the writer."""
    be_unwilling(monkeypatch)
    async with opener(ha_hdfs, "/r", deadline_s=10.0, conf_dir=ha_hdfs.client_conf_dir) as open_dfs:
        log = Log(open_dfs)
        await claim(log.dfs, LAYOUT, 1, content_of("writer", 1))
        await log.writer.open(1)
        writing = asyncio.create_task(log.write())
        await log.reach(200)
        await asyncio.to_thread(ha_hdfs.name_node.kill)
        known = len(log.writer.segments)
        await asyncio.to_thread(ha_hdfs.fail_over)
        await log.roll(known + 2)  # one may have been made ahead
        await log.reach(log.synced_seq + 100)
        log.stop()
        await writing
        other = open_dfs(conf_dir=None, options=ha_hdfs.client_options)
        await claim(other, LAYOUT, 2, content_of("fencer", 2))
        await fence(other, LAYOUT, 2, SystemClock(), RECOVERY_S)
        synced = log.synced_seq
        read = [frame.first_seq for frame in await read_frames(other, LAYOUT, 2)]
        assert read[:synced] == list(range(1, synced + 1))
        await log.writer.close()
