"""A change of the WAL that is given up in its middle, because its epoch has ended: the next one finishes what it left."""

from __future__ import annotations

import asyncio

import pytest

from storage.log.wal import Wal
from tests.storage.disk.memory_files import MemoryFiles, MemoryLogFile
from tests.storage.log.frames import a_frame, run
from tests.storage.log.wal_rig import append_all, paths, settle, started
from twinlog.errors import SyncFailed


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were closed to the end."""
    ended: list[str] = []
    close = MemoryLogFile.close

    async def noted(file: MemoryLogFile) -> None:
        await close(file)
        ended.append(file.path)

    monkeypatch.setattr(MemoryLogFile, "close", noted)
    return ended


async def given_up(change: asyncio.Future[None]) -> None:
    await settle()
    change.cancel()
    with pytest.raises(asyncio.CancelledError):
        await change


async def outstanding(files: MemoryFiles) -> tuple[Wal, asyncio.Future[None]]:
    """A log with three durable frames, and one whose sync has not ended."""
    wal = await started(files)
    await append_all(wal, run(1, 3))
    files.hold = True
    return wal, wal.append(a_frame(4, committed=3))


@pytest.mark.parametrize("change", ["roll", "settle", "close"])
async def test_what_a_given_up_change_waited_for_has_ended_before_the_log_is_settled(change: str, closed: list[str]) -> None:
    files = MemoryFiles()
    wal, last = await outstanding(files)
    (path,) = paths(files)
    await given_up(asyncio.ensure_future(wal.roll(5) if change == "roll" else getattr(wal, change)()))
    with pytest.raises(SyncFailed, match="no open segment"):
        await wal.append(a_frame(5))
    settled = asyncio.ensure_future(wal.settle())
    await settle()
    assert not settled.done()  # a frame that lands behind the recovery would tear the log
    files.sync(path)
    await settled
    assert last.done()
    assert await wal.read_all() == [*run(1, 3), a_frame(4, committed=3)]
    assert closed == [path]


async def test_a_segment_made_ahead_whose_close_was_given_up_is_closed_and_deleted(
    monkeypatch: pytest.MonkeyPatch, closed: list[str]
) -> None:
    files, gate = MemoryFiles(), asyncio.Event()
    wal = await started(files)
    await append_all(wal, run(1, 8))
    await settle()
    current, ahead = paths(files)
    noted = MemoryLogFile.close

    async def slow(file: MemoryLogFile) -> None:
        if file.path == ahead:
            await gate.wait()
        await noted(file)

    monkeypatch.setattr(MemoryLogFile, "close", slow)
    await given_up(asyncio.ensure_future(wal.settle()))
    assert closed == [current]
    gate.set()
    await wal.settle()
    assert closed == [current, ahead]
    assert paths(files) == [current]
