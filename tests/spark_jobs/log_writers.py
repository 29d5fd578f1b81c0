"""An active's two logs, written by the product's own writers: a WAL, and the remote log on the other site's DFS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.port import Dfs
from remote_log.fencing.claims import ClaimContent, claim
from remote_log.layout import RemoteLayout
from remote_log.writing.writer import RemoteWriter, RemoteWriterSettings
from storage.clock import SystemClock
from storage.disk.os_files import OsFiles
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.frame import make_frame
from storage.log.record import EpochStart, Record, RecordKind
from storage.log.wal import Wal, WalSettings
from twinlog.errors import Fenced

SEGMENT_BYTES = 64 << 10
PAIR = "a1" * 8
_NO_FENCE = "a writer that nobody fences"


class Logs:
    """Below `root`: `wal`, and `dfs/pair/0` if the other site's DFS is not given. Epoch 1. Made and used in one event loop."""

    def __init__(self, root: Path, dfs: Dfs | None = None, keys: tuple[Keyring, Keyring] = (NO_KEYS, NO_KEYS)) -> None:
        """`keys`: of the WAL, and of the remote log."""
        self.root, self._given_dfs, self._keys = root, dfs, keys
        self.wal_folder, self.remote_folder = root / "wal", root / "dfs" / "pair" / "0"
        self.seq = self.committed = 0
        self._synced = asyncio.Condition()

    async def open(self) -> None:
        (self.root / "dfs").mkdir(parents=True)
        self._files = OsFiles(self.root)
        self.wal = await Wal.open(self._files, "wal", WalSettings(segment_bytes=SEGMENT_BYTES), self._keys[0])
        await self.wal.start(1, 1, PAIR)
        self._dfs, layout = self._given_dfs or DirectoryDfs(self.root / "dfs", "dfs.peer"), RemoteLayout("pair")
        await claim(self._dfs, layout, 1, ClaimContent("a", "plan", "bootstrap", "test", 1, 0))
        self.remote = RemoteWriter(
            self._dfs, layout, 1, SystemClock(), RemoteWriterSettings(segment_bytes=SEGMENT_BYTES),
            on_synced=self._on_synced, on_ended=self._on_ended, wal_name=lambda: self.wal.segments()[-1].name,
            pair=PAIR, keys=self._keys[1],
        )
        await self.remote.open(1)
        start = msgspec.msgpack.encode(EpochStart(1, "a", "bootstrap", "plan"))
        await self.write([Record(RecordKind.EPOCH_START, value=start)])

    async def write(self, records: list[Record]) -> None:
        """One frame, until it is in both logs."""
        frame = make_frame(
            epoch=1, first_seq=self.seq + 1, previous=self.seq, timestamp=(self.seq + 1) << 16, committed=self.committed,
            records=records,
        )
        self.seq = frame.last_seq
        local = self.wal.append(frame)
        self.remote.submit(frame)
        await local
        async with self._synced:
            await self._synced.wait_for(lambda: self._remote_seq >= frame.last_seq)
        self.committed = frame.last_seq

    async def rows(self, frames: int) -> None:
        for number in range(frames):
            await self.write([Record(RecordKind.UPSERT, 1, b"k%d" % (self.seq + n), b"v" * 200) for n in range(1 + number % 5)])

    async def trim(self, durable_seq: int) -> None:
        """As the trimmers do, but for what they look at."""
        await self.wal.trim(durable_seq + 1)
        await self.trim_remote(durable_seq)

    async def trim_remote(self, durable_seq: int) -> None:
        for segment in [each for each in self.remote.segments[:-1] if each.closed and each.last_seq <= durable_seq]:
            self.remote.let_go(segment.path)
            await self._dfs.delete(segment.path)
            self.remote.forget(segment.path)

    async def close(self) -> None:
        await self.remote.close()
        await self.wal.close()

    _remote_seq = 0

    def _on_synced(self, seq: int, started_s: float) -> None:
        self._remote_seq = seq
        self._told = asyncio.ensure_future(self._tell())

    async def _tell(self) -> None:
        async with self._synced:
            self._synced.notify_all()

    def _on_ended(self, error: Fenced) -> None:
        raise AssertionError(_NO_FENCE) from error


async def written(root: Path, frames: int, keys: tuple[Keyring, Keyring] = (NO_KEYS, NO_KEYS)) -> Logs:
    """Whole logs, closed."""
    logs = Logs(root, keys=keys)
    await logs.open()
    await logs.rows(frames)
    await logs.close()
    return logs
