"""A client of a secure HDFS in a process of its own: in one Java machine Kerberos is on for everybody, or for nobody.

Each line of standard input is one thing to do, in JSON, each line of standard output what came of it: {"error": class name or
null, "message": its words}. Arguments: the root's address, the client's conf_dir.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import end_process, java
from remote_log.dfs.hdfs.login import KeytabLogin
from remote_log.fencing.fence import close_by_recovery
from storage.clock import SystemClock
from twinlog.errors import DfsError, LeaseLost

PATHS = ("kerberos_keytab", "conf_dir")


class Client:
    def __init__(self, url: str, conf_dir: Path) -> None:
        self._url, self._conf_dir = url, conf_dir
        self._clients: list[HdfsDfs] = []

    async def be(self, beside: bool = False, **changes: Any) -> None:
        """Another client from now on, by fields of HdfsSettings; those before end, or live on `beside` it."""
        while self._clients and not beside:
            await self._clients.pop().close()
        given = {key: Path(value) if key in PATHS and value else value for key, value in changes.items()}
        usual = {"url": self._url, "section": "dfs.peer", "deadline_s": 15.0, "conf_dir": self._conf_dir}
        self._settings = HdfsSettings(**{**usual, **given})
        self._clients.append(HdfsDfs(self._settings, java(256 << 20)))

    @property
    def _dfs(self) -> HdfsDfs:
        return self._clients[-1]

    async def make_root(self) -> None:
        fs = KeytabLogin(java(256 << 20), self._settings).connect()
        fs.mkdirs(java(256 << 20).Path(self._url))
        fs.close()

    async def log(self, path: str) -> None:
        """Write a file, close it as a fencer does, and read it."""
        writer = await self._dfs.create(path)
        for _ in range(20):
            await writer.append(b"frame.")
        await close_by_recovery(self._dfs, path, SystemClock(), 30.0)
        assert await self._dfs.read(path) == b"frame." * 20
        with suppress(LeaseLost):
            await writer.close()

    async def probe(self) -> None:
        await self._dfs.probe()

    async def list_for(self, duration_s: float) -> None:
        """Again and again, each time by a new connection: idle ones are to be dropped at once."""
        until_s = time.monotonic() + duration_s
        while time.monotonic() < until_s:
            await self._dfs.list("/p")
            await asyncio.sleep(0.5)


async def main(url: str, conf_dir: str) -> None:
    client = Client(url, Path(conf_dir))
    while line := await asyncio.to_thread(sys.stdin.readline):
        wanted = json.loads(line)
        try:
            await getattr(client, wanted.pop("do"))(**wanted)
            said = {"error": None, "message": ""}
        except DfsError as error:
            said = {"error": type(error).__name__, "message": error.message}
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
    end_process(0)
