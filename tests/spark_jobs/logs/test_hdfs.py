"""A remote log on a real HDFS, read by WebHDFS while its writer goes on: as a table, runs of frames, a stream, a storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from spark_jobs.job import JobRequest, SiteSource
from spark_jobs.logs.files import WebHdfsStore
from spark_jobs.replay import job as replay
from tests.remote_log.dfs.hdfs.rig import opener
from tests.spark_jobs.log_rig import Silent
from tests.spark_jobs.log_writers import Logs
from tests.spark_jobs.replay.replay_rig import contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

COLUMNS = ("seq", "previous", "epoch", "timestamp", "operation", "key", "row")


@pytest.fixture
async def logs(hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path) -> AsyncIterator[Logs]:
    """Writes a log that lies in closed segments and in an open one."""
    async with opener(hdfs, hdfs_root) as opened:
        made = Logs(tmp_path, opened())
        await made.open()
        await made.rows(150)
        yield made
        await made.close()


def options(hdfs: HdfsCluster, root: str) -> dict[str, str]:
    return {"path": f"{hdfs.uri}{root}/pair/0", "webhdfs": hdfs.web_url, "user": hdfs.user}


def of_wal(spark: SparkSession, logs: Logs) -> list[tuple[Any, ...]]:
    found = spark.read.format("twinlog").option("path", str(logs.wal_folder)).load()
    return [tuple(row) for row in found.orderBy("seq").select(*COLUMNS).collect()]


async def test_a_batch_has_what_the_wal_has(spark: SparkSession, hdfs: HdfsCluster, hdfs_root: str, logs: Logs) -> None:
    reader = spark.read.format("twinlog").options(**options(hdfs, hdfs_root))

    def look() -> None:
        table = reader.load()
        rows = table.orderBy("seq").select(*COLUMNS).collect()
        assert [tuple(row) for row in rows] == of_wal(spark, logs)
        assert len(rows) == logs.seq
        assert table.select("segment").distinct().count() == sum(each.begun for each in logs.remote.segments) > 1
        ranged = table.where(f"seq > {logs.seq - 40}").select("seq").orderBy("seq").collect()
        assert [row["seq"] for row in ranged] == list(range(logs.seq - 39, logs.seq + 1))
        runs = reader.option("view", "runs").load()
        assert runs.where("entry = 'run'").selectExpr("sum(frames)").first()[0] == 151
        assert {row["entry"] for row in runs.select("entry").collect()} == {"run", "segment", "epoch"}

    assert not logs.remote.segments[-1].closed
    await asyncio.to_thread(look)


async def test_a_stream_has_each_record_once(spark: SparkSession, hdfs: HdfsCluster, hdfs_root: str, logs: Logs) -> None:
    """While the log grows, rolls and is trimmed behind the reader."""
    out, checkpoint = logs.root / "out", logs.root / "checkpoint"

    def go_on() -> None:
        stream = (
            spark.readStream.format("twinlog").options(**options(hdfs, hdfs_root)).load().select(*COLUMNS)
            .writeStream.format("parquet").option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
            .start(str(out))
        )
        stream.awaitTermination()

    def same() -> bool:
        rows = spark.read.parquet(str(out)).orderBy("seq").collect()
        return [tuple(row) for row in rows] == of_wal(spark, logs)

    await asyncio.to_thread(go_on)
    assert await asyncio.to_thread(same)
    read, segments = logs.seq, [each.path for each in logs.remote.segments]
    await logs.rows(150)
    await logs.trim_remote(read)
    left = [each.path for each in logs.remote.segments]
    assert segments[0] not in left
    assert left[-1] not in segments
    await asyncio.to_thread(go_on)
    assert await asyncio.to_thread(same)


async def test_a_replay_makes_the_storage_that_the_wal_makes(
    spark: SparkSession, hdfs: HdfsCluster, hdfs_root: str, logs: Logs
) -> None:
    def replayed(into: str, **settings: str) -> list[tuple[bytes, bytes]]:
        nobody = SiteSource("a", "http://127.0.0.1:1")
        asked = {**settings, "into": str(logs.root / into)}
        replay.run(spark, JobRequest("replay", "pair", nobody, nobody, logs.root, options=asked), Silent())
        return contents(logs.root / into)

    place = options(hdfs, hdfs_root)
    place["log"] = place.pop("path")
    remote = await asyncio.to_thread(replayed, "of the remote log", **place)
    assert len(remote) > 100
    assert remote == await asyncio.to_thread(replayed, "of the WAL", log=str(logs.wal_folder))


async def test_every_offset_and_length_of_a_file_that_is_written(hdfs: HdfsCluster, hdfs_root: str) -> None:
    """Also behind the last whole block, which is all that the NameNode knows of."""
    store = WebHdfsStore(hdfs.web_url, hdfs.user)
    path, whole = f"{hdfs_root}/p/0/s", b"".join(b"%07d " % number for number in range(20_000))
    async with opener(hdfs, hdfs_root) as opened:
        writer = await opened(options={"dfs.blocksize": "65536"}).create("/p/0/s")
        for start in range(0, len(whole), 35_000):
            await writer.append(whole[start : start + 35_000])
        for closed in (False, True):
            for offset in (0, 1, 65_535, 65_536, 65_537, 159_999, 160_000, 160_001, 999_999):
                for length in (None, 0, 1, 70_000):
                    found = await asyncio.to_thread(store.read, path, offset, length)
                    assert found == whole[offset:][:length], (closed, offset, length)
            if not closed:
                await writer.close()
    assert [(entry.name, entry.length) for entry in store.list(f"{hdfs_root}/p/0")] == [("s", len(whole))]
