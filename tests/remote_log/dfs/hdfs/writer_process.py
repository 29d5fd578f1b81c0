"""A writer in a process of its own, to be stopped and woken: appends numbered frames to one file until an append fails.

Standard input: each line asks for so many appends. Standard output: `ok N` after each line, N appends succeeded so far; at
the end the error's class name. Arguments: the root's address, the path.
"""

from __future__ import annotations

import asyncio
import sys

from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import end_process, java
from twinlog.errors import DfsError

FRAME = b"%06d." + bytes(505)  # with the number in it a whole checksum chunk, as the remote log appends


async def main(url: str, path: str) -> None:
    dfs = HdfsDfs(HdfsSettings(url, "dfs.peer", deadline_s=40.0), java(256 << 20))
    writer = await dfs.create(path)
    done = 0
    while wanted := await asyncio.to_thread(sys.stdin.readline):
        try:
            for _ in range(int(wanted)):
                await writer.append(FRAME % done)
                done += 1
        except DfsError as error:
            sys.stdout.write(f"{type(error).__name__}\n")
            return
        sys.stdout.write(f"ok {done}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
    end_process(0)
