"""A DataNode that dies between the data of an append and its CRC: it cuts the last checksum chunk off when it starts again.

What always holds: the tear is made, not waited for: the DataNode is killed while nothing is on its way, and bytes are put
behind the block's data, without a CRC, as an append leaves them that was cut off there.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from remote_log.dfs.hdfs.client import CHUNK_KEY
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.fencing.claims import claim
from remote_log.fencing.fence import close_by_recovery, fence
from remote_log.fencing.reading import read_frames, segments_of
from remote_log.writing.writer import RemoteWriter, RemoteWriterSettings
from storage.clock import SystemClock
from storage.log.segment import REMOTE_ALIGNMENT, wal_name
from tests.remote_log.dfs.hdfs.rig import be_unwilling, opener
from tests.remote_log.dfs.hdfs.writer_process import FRAME
from tests.remote_log.writing.remote_rig import LAYOUT, content_of
from tests.storage.log.frames import a_frame, run
from twinlog.errors import DfsError

RECOVERY_S = 100.0
UNALIGNED = FRAME.rstrip(b"\0")


@pytest.fixture(autouse=True)
def unwilling(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is given up by the test, and does not close its file itself."""
    be_unwilling(monkeypatch)


async def tear(cluster: HdfsCluster, dfs: HdfsDfs, path: str, behind: bytes) -> int:
    """Kills the DataNode in the middle of an append of `behind` to the open file, and starts it again. Returns the bytes for
    which it keeps one CRC."""
    held = await dfs.read(path)
    await asyncio.to_thread(cluster.data_nodes[0].kill)
    (block,) = (file for file in cluster.folder.glob("datanode1.data/**/rbw/blk_*") if file.read_bytes() == held)
    (crcs,) = block.parent.glob(f"{block.name}_*.meta")
    with block.open("ab") as file:
        file.write(behind)
    await asyncio.to_thread(cluster.heal)
    return int.from_bytes(crcs_header(crcs)[3:7], "big")


def crcs_header(crcs: Path) -> bytes:
    """Version (two bytes), kind of checksum, bytes for one checksum (four)."""
    return crcs.read_bytes()[:7]


@pytest.mark.parametrize("chunk", [None, "4096"])
async def test_frames_that_were_acknowledged_stand(
    faulty_hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path, chunk: str | None
) -> None:
    """`chunk`: what the site's own Hadoop files say of it."""
    value = "" if chunk is None else f"<property><name>{CHUNK_KEY}</name><value>{chunk}</value></property>"
    (tmp_path / "hdfs-site.xml").write_text(f"<configuration>{value}</configuration>")
    frames, synced = run(1, 9), asyncio.Event()
    async with opener(faulty_hdfs, hdfs_root, deadline_s=10.0, conf_dir=tmp_path) as open_dfs:
        dfs, other = open_dfs(), open_dfs()
        await claim(dfs, LAYOUT, 1, content_of("writer", 1))
        writer = RemoteWriter(
            dfs, LAYOUT, 1, SystemClock(), RemoteWriterSettings(), wal_name=lambda: wal_name(1, 1),
            on_synced=lambda seq, started_s: synced.set() if seq == 9 else None, on_ended=lambda fenced: None,
        )
        await writer.open(1)
        for frame in frames:
            writer.submit(frame)
        await synced.wait()
        (path,) = await segments_of(dfs, LAYOUT, 1)
        assert await tear(faulty_hdfs, other, path, a_frame(10).data[:40]) == REMOTE_ALIGNMENT
        await writer.close()
        await claim(other, LAYOUT, 2, content_of("fencer", 2))
        await fence(other, LAYOUT, 2, SystemClock(), RECOVERY_S)
        assert await read_frames(other, LAYOUT, 2) == frames


@pytest.mark.parametrize("append", [FRAME, UNALIGNED])
async def test_hdfs_keeps_what_ends_with_a_chunk_and_nothing_else_is_promised(
    faulty_hdfs: HdfsCluster, hdfs_root: str, append: bytes
) -> None:
    """This is what the alignment is for. If this test fails for appends that are not aligned, HDFS has changed."""
    async with opener(faulty_hdfs, hdfs_root, deadline_s=10.0) as open_dfs:
        dfs, other = open_dfs(), open_dfs()
        writer = await dfs.create("/p/0/s")
        for i in range(100):
            await writer.append(append % i)
        acknowledged = b"".join(append % i for i in range(100))
        await tear(faulty_hdfs, other, "/p/0/s", b"torn")
        with pytest.raises(DfsError, match=r"All datanodes .* are bad"):
            await writer.close()
        await close_by_recovery(other, "/p/0/s", SystemClock(), RECOVERY_S)
        kept = len(acknowledged) // REMOTE_ALIGNMENT * REMOTE_ALIGNMENT
        assert await other.read("/p/0/s") == acknowledged[:kept]
        assert (kept == len(acknowledged)) == (append == FRAME)
