"""A process that probes an HDFS, then looks at it in every way that a preflight does, and prints how many classes Java loaded
for the probe, and how many for the looks after it.

usage: warm_process.py URL
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

import jpype  # type: ignore[import-untyped]

from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import end_process, java
from twinlog.errors import DfsError


async def use(dfs: HdfsDfs) -> tuple[int, int]:
    loading = jpype.JClass("java.lang.management.ManagementFactory").getClassLoadingMXBean()
    counts = [int(loading.getTotalLoadedClassCount())]
    await dfs.probe()
    counts.append(int(loading.getTotalLoadedClassCount()))
    await dfs.create_file("/p/0/s", b"content")
    assert await dfs.read("/p/0/s", 2) == b"ntent"
    with suppress(DfsError):
        await dfs.read("/p/none")
    await dfs.list("/p/0")
    assert await dfs.is_closed("/p/0/s")
    await dfs.probe()
    counts.append(int(loading.getTotalLoadedClassCount()))
    await dfs.close()
    return counts[1] - counts[0], counts[2] - counts[1]


def main(url: str) -> None:
    probed, looked = asyncio.run(use(HdfsDfs(HdfsSettings(url, "dfs.own", deadline_s=60.0), java(128 << 20))))
    sys.stdout.write(f"{probed} {looked}")
    end_process(0)


if __name__ == "__main__":
    main(sys.argv[1])
