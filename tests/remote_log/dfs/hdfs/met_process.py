"""A process that uses an HDFS in every way that a site does, and prints the Java classes that JPype made meanwhile.

usage: met_process.py URL
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from jpype import _jcustomizer  # type: ignore[import-untyped]

from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import end_process, java
from remote_log.fencing.fence import close_by_recovery
from storage.clock import SystemClock
from twinlog.errors import DfsError


async def use(own: HdfsDfs, other: HdfsDfs) -> None:
    await asyncio.gather(own.probe(), other.probe())
    writer = await own.create("/p/0/s")
    await writer.append(b"frame")
    for path in ("/p/0/s", "/p/none"):
        with suppress(DfsError):
            await other.read(path)
        with suppress(DfsError):
            await other.create(path)
        with suppress(DfsError):
            await other.create_file(path, b"content")
    await other.list("/p/0")
    await close_by_recovery(other, "/p/0/s", SystemClock(), 60.0)
    with suppress(DfsError):
        await writer.append(b"late")
    await own.delete("/p/0/s")
    for dfs in (own, other):
        await dfs.close()


def main(url: str) -> None:
    machine, made, hints = java(128 << 20), set[str](), _jcustomizer.getClassHints

    def noted(name: str) -> object:
        made.add(name)
        return hints(name)

    _jcustomizer.getClassHints = noted
    own, other = (HdfsDfs(HdfsSettings(url, f"dfs.{name}", deadline_s=60.0), machine) for name in ("own", "peer"))
    asyncio.run(use(own, other))
    sys.stdout.write(" ".join(sorted(made)))
    end_process(0)


if __name__ == "__main__":
    main(sys.argv[1])
