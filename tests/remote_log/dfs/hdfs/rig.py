"""Clients of a real HDFS for tests: each in a folder of its own, of a Java machine that has loaded its classes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from remote_log.dfs.hdfs import writer as hdfs_writer
from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import java
from twinlog.errors import DfsError

HEAP_BYTES = 256 << 20
WARM_UP_S = 60.0
Open = Callable[..., HdfsDfs]


@asynccontextmanager
async def opener(
    cluster: HdfsCluster, root: str, deadline_s: float = 20.0, conf_dir: Path | None = None
) -> AsyncIterator[Open]:
    """Keywords are fields of HdfsSettings. The cluster's fixture has found a Java before the JVM starts here."""
    clients: list[HdfsDfs] = []

    def opened(**changes: Any) -> HdfsDfs:
        settings = HdfsSettings(cluster.uri + root, "dfs.peer", deadline_s=deadline_s, conf_dir=conf_dir)
        clients.append(HdfsDfs(replace(settings, **changes), java(HEAP_BYTES)))
        return clients[-1]

    warm = opened(deadline_s=WARM_UP_S)
    with suppress(DfsError):  # the connection to a NameNode that a test before has killed breaks when it is next used
        await warm.list("/warm")
    await warm.probe()  # a JVM loads its classes at first use: that is not timed
    first = await warm.create("/warm/up")
    await first.append(b"1")
    await first.close()
    await clients[0].delete("/warm")
    yield opened
    for client in clients:
        await client.close()


def be_unwilling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers do not look for marks: as one whose process sleeps, or is cut off from the NameNode. HDFS itself must fence."""
    monkeypatch.setattr(hdfs_writer, "LOOK_INTERVAL_S", 3600.0)
