"""A process that may start no thread for a moment: what needed one fails with an error that says so, and nothing hangs."""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.hdfs import dfs as hdfs
from remote_log.dfs.hdfs import writer as hdfs_writer
from remote_log.dfs.hdfs.writer import HdfsDfsWriter, HdfsFile
from remote_log.dfs.queued_writer import writer_thread
from storage.disk.os_files import OsFiles
from storage.disk.workers import HangTolerantPool, Worker
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from twinlog.errors import DfsError, DfsExists, LogError, Overloaded, SyncFailed, Unavailable, reason

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


async def test_whoever_does_not_know_of_threads_gets_an_error_of_the_tree(threads: Threads) -> None:
    """A look of the other site at an HDFS ended with 500 and an unknown error."""
    worker = Worker("test")
    threads.refused = 1
    with pytest.raises(Unavailable) as told:
        worker.submit(lambda: 7)
    assert told.value.message.startswith("this process cannot start another thread")
    assert told.value.fields == {"retry_after_s": 1}
    assert isinstance(told.value, OSError)
    assert reason(told.value) == told.value.message
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


async def test_a_log_file_is_not_made(threads: Threads, tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    await files.list("")  # the thread of reads is there
    await files.write_new("x", b"")  # and that of writes
    threads.refused = 1
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(SyncFailed, match=f"cannot create wal/a: .*{TOLD}"):
            await files.create_log("wal/a", b"header", 1000)
        assert await files.list("wal") == []
        await (await files.create_log("wal/a", b"header", 1000)).close()
        await files.close()


async def test_a_log_file_that_is_open_needs_no_other_thread(threads: Threads, tmp_path: Path) -> None:
    """Its first append failed, and with it the epoch: a segment that was made ahead was not ready."""
    files = OsFiles(tmp_path)
    log = await files.create_log("wal/a", b"header", 1000)
    threads.refused = 1000
    async with asyncio.timeout(WITHIN_S):
        await log.append(b"first")
        await log.close()
        await files.close()
    assert (tmp_path / "wal/a").read_bytes().rstrip(b"\0") == b"headerfirst"


@pytest.mark.parametrize("ends", ["it exists already", "its caller goes away"])
async def test_the_thread_of_a_log_file_that_is_not_made_ends(ends: str, tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    if ends == "it exists already":
        await files.write_new("wal/a", b"another")
        with pytest.raises(LogError, match=ends):
            await files.create_log("wal/a", b"header", 1000)
    else:
        making = asyncio.ensure_future(files.create_log("wal/a", b"header", 1000))
        await asyncio.sleep(0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
    await files.close()
    for thread in threading.enumerate():
        if thread.name == "sync wal/a":
            thread.join(WITHIN_S)
            assert not thread.is_alive()


async def test_files_name_it_as_an_error_of_theirs(threads: Threads, tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    threads.refused = 1
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(SyncFailed, match=f"cannot write a: .*{TOLD}"):
            await files.write_new("a", b"x")
        await files.write_new("a", b"x")
        await files.close()


def held() -> set[str]:
    """The files that this process has open."""
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


async def test_a_file_of_the_dfs_is_not_made_and_holds_nothing(threads: Threads, tmp_path: Path) -> None:
    dfs = DirectoryDfs(tmp_path, "dfs.own.path")
    threads.refused = 1
    async with asyncio.timeout(WITHIN_S):
        with pytest.raises(DfsError, match=f"cannot create /wal/segment: .*{TOLD}"):
            await dfs.create("/wal/segment")
        assert await dfs.list("/wal") == []
        writer = await dfs.create("/wal/segment")
        await writer.close()


async def test_an_open_file_of_the_dfs_needs_no_other_thread_and_gives_back_what_it_holds(
    threads: Threads, tmp_path: Path
) -> None:
    """It kept its descriptor until the process ended: one for each attempt to write while no thread could be started."""
    dfs = DirectoryDfs(tmp_path, "dfs.own.path")
    writer = await dfs.create("/wal/segment")
    threads.refused = 1000
    async with asyncio.timeout(WITHIN_S):
        await writer.append(b"x")
        assert str(tmp_path / "wal/segment") in held()
        writer.give_up(DfsError("a fault of the test"))
        with pytest.raises(DfsError, match="a fault of the test"):
            await writer.close()
    assert str(tmp_path / "wal/segment") not in held()


async def test_a_thread_whose_file_cannot_be_made_ends(tmp_path: Path) -> None:
    dfs = DirectoryDfs(tmp_path, "dfs.own.path")
    await (await dfs.create("/wal/segment")).close()
    with pytest.raises(DfsExists):
        await dfs.create("/wal/segment")
    for thread in threading.enumerate():
        if thread.name == "dfs /wal/segment":
            thread.join(WITHIN_S)
            assert not thread.is_alive()


async def test_a_call_of_hdfs_is_an_error_of_the_dfs_and_what_came_late_is_given_back_later(
    threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hdfs, "GIVE_BACK_AGAIN_S", 0.0)
    java: Any = SimpleNamespace(is_warm=True, leave=lambda: None, Throwable=RuntimeError)
    settings: Any = SimpleNamespace(section="dfs.peer", where="hdfs://one", deadline_s=WITHIN_S, kerberos_keytab=None)
    dfs = hdfs.HdfsDfs.__new__(hdfs.HdfsDfs)
    dfs._settings, dfs._java, dfs._login = settings, java, None
    dfs._crew = HangTolerantPool("test", 2)
    threads.refused = 1
    with pytest.raises(DfsError, match=f"cannot list /wal below hdfs://one: .*{TOLD}"):
        await dfs._call("list", "/wal", lambda fs: None)
    made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    made.set_result("a file")
    given_back = asyncio.Event()
    loop = asyncio.get_running_loop()
    threads.refused = 2
    dfs._take_back(made, lambda _: loop.call_soon_threadsafe(given_back.set))
    async with asyncio.timeout(WITHIN_S):
        await given_back.wait()
    assert threads.refused == 0


async def test_a_writer_of_hdfs_looks_for_a_fencer_again_later(threads: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdfs_writer, "LOOK_INTERVAL_S", 0.0)
    seen = asyncio.Event()
    java: Any = SimpleNamespace(Path=str, leave=lambda: None)
    out = SimpleNamespace(getWrappedStream=lambda: SimpleNamespace(getFileId=lambda: 7), hsync=None)
    settings: Any = SimpleNamespace(where="hdfs", deadline_s=WITHIN_S, sync="hsync")
    looker = Worker("marks")
    writer = HdfsDfsWriter("/f", HdfsFile(None, "/f", out), settings, java, looker, writer_thread("/f"))
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(writer, "_is_taken", lambda: loop.call_soon_threadsafe(seen.set) and False)
    threads.refused = 3
    writer.look_later()
    async with asyncio.timeout(WITHIN_S):
        await seen.wait()
    assert threads.refused == 0
    writer.give_up(DfsError("the end of the test"))
    await looker.close()


async def test_a_directory_says_so(threads: Threads, tmp_path: Path) -> None:
    dfs = DirectoryDfs(tmp_path, "dfs.own.path")
    threads.refused = 1
    with pytest.raises(DfsError, match=TOLD):
        await dfs.list("/")
    async with asyncio.timeout(WITHIN_S):
        assert await dfs.list("/wal") == []
