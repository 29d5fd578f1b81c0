"""A process that may start no thread for a moment: what needed one fails with an error that says so, and nothing hangs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.queued_writer import QueuedWriter
from storage.disk.os_files import OsFiles
from storage.disk.workers import HangTolerantPool, Worker
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from twinlog.errors import DfsError, Overloaded, SyncFailed

WITHIN_S = 5.0
TOLD = "cannot start another thread"


class Threads:
    """`refused`: how many threads fail to start, as the interpreter says it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refused = 0
        start = threading.Thread.start

        def refusing(thread: threading.Thread) -> None:
            if self.refused:
                self.refused -= 1
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refusing)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(monkeypatch)


async def test_a_worker_says_so_and_works_once_it_may(threads: Threads) -> None:
    worker = Worker("test")
    threads.refused = 1
    with pytest.raises(OSError, match=TOLD):
        worker.submit(lambda: 7)
    async with asyncio.timeout(WITHIN_S):
        assert await worker.submit(lambda: 8) == 8
        await worker.close()


async def test_a_read_says_that_it_may_be_asked_again(threads: Threads) -> None:
    worker = Worker("test")
    threads.refused = 1
    with pytest.raises(Overloaded, match=TOLD) as told:
        await worker.read(lambda: 7)
    assert told.value.fields == {"retry_after_s": 1}
    async with asyncio.timeout(WITHIN_S):
        assert await worker.read(lambda: 8) == 8
        await worker.close()


async def test_an_engine_reads_when_a_thread_can_be_had_again(tmp_path: Path, threads: Threads) -> None:
    engine = await RocksEngine.open(tmp_path, RocksSettings())
    threads.refused = 1
    with pytest.raises(Overloaded, match=TOLD):
        await engine.scan(1, None, None, reverse=False, limit=1)
    async with asyncio.timeout(WITHIN_S):
        assert list(await engine.scan(1, None, None, reverse=False, limit=1)) == []
        await engine.close()


async def test_a_worker_that_never_started_can_be_closed(threads: Threads) -> None:
    worker = Worker("test")
    threads.refused = 1
    with pytest.raises(OSError, match=TOLD):
        worker.submit(lambda: 7)
    async with asyncio.timeout(WITHIN_S):
        await worker.close()


async def test_a_pool_keeps_its_places(threads: Threads) -> None:
    pool = HangTolerantPool("test", 2)
    threads.refused = 3
    async with asyncio.timeout(WITHIN_S):
        for _ in range(3):
            with pytest.raises(OSError, match=TOLD):
                await pool.start(lambda: 1)
        assert await (await pool.start(lambda: 9)) == 9
        await pool.close()


async def test_a_log_file_fails_the_append_and_all_that_follow(threads: Threads, tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    log = await files.create_log("wal/a", b"header", 1000)
    threads.refused = 1
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(SyncFailed, match=f"append to wal/a: .*{TOLD}"):
            await log.append(b"first")
        with pytest.raises(SyncFailed, match="sealed since an earlier failure"):
            await log.append(b"second")
        await log.close()
        await files.close()
    assert (tmp_path / "wal/a").read_bytes().rstrip(b"\0") == b"header"


async def test_files_name_it_as_an_error_of_theirs(threads: Threads, tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    threads.refused = 1
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(SyncFailed, match=f"cannot write a: .*{TOLD}"):
            await files.write_new("a", b"x")
        await files.write_new("a", b"x")
        await files.close()


class _Writer(QueuedWriter):
    """A writer whose calls do nothing."""

    def _append(self, group: bytes) -> None:
        pass

    def _finish(self) -> None:
        pass

    def _release(self) -> None:
        pass

    def _mapped(self, error: object) -> DfsError:
        return DfsError(str(error))


async def test_a_writer_of_the_dfs_fails_the_append_and_all_that_follow(threads: Threads) -> None:
    writer = _Writer("segment", "test", deadline_s=WITHIN_S)
    threads.refused = 1
    async with asyncio.timeout(WITHIN_S / 2):
        for _ in range(2):
            with pytest.raises(DfsError, match=f"append to segment: .*{TOLD}"):
                await writer.append(b"x")
        await writer.close()


async def test_a_directory_says_so(threads: Threads, tmp_path: Path) -> None:
    dfs = DirectoryDfs(tmp_path, "dfs.own.path")
    threads.refused = 1
    with pytest.raises(DfsError, match=TOLD):
        await dfs.list("/")
    async with asyncio.timeout(WITHIN_S):
        assert await dfs.list("/wal") == []
