"""Files of the WAL that are made, closed or deleted in part: none of them is left where a later segment would prove that
something had been lost out of it, and the next change finishes what was given up because its epoch had ended."""

from __future__ import annotations

import asyncio
import gc

import pytest

from storage.disk.port import LogFile
from storage.log.wal import Wal
from tests.storage.disk.memory_files import MemoryFile, MemoryFiles, MemoryLogFile
from tests.storage.log.frames import a_frame, run
from tests.storage.log.wal_rig import SMALL, append_all, paths, settle, started
from twinlog.errors import SyncFailed

LEFT = ["whole", "torn header", "nothing"]


class HalfMade(MemoryFiles):
    """The next creation leaves `left`, and fails; `stuck`: deletions fail, too, before anything is done."""

    left: str | None = None
    stuck = False
    error: BaseException = SyncFailed("injected: the folder was not synced")

    async def create_log(self, path: str, header: bytes, size_bytes: int) -> LogFile:
        left, self.left = self.left, None
        if left is None:
            return await super().create_log(path, header, size_bytes)
        if left == "whole":
            await super().create_log(path, header, size_bytes)
        elif left == "torn header":
            self.files[path] = MemoryFile(bytearray(header[:20] + bytes(size_bytes - 20)), 20)
        raise self.error

    async def delete(self, path: str) -> None:
        if self.stuck:
            raise SyncFailed("injected: nothing can be deleted")
        await super().delete(path)


async def beyond_a_failed_creation(files: HalfMade, left: str) -> Wal:
    """The segment made ahead was not; the log is in the second one since, which the third attempt made."""
    wal = await started(files)
    files.left = left
    await append_all(wal, run(1, 60))
    assert files.left is None
    assert len(wal.segments()) > 1
    return wal


@pytest.mark.parametrize("left", LEFT)
async def test_a_creation_that_fails_leaves_no_file_before_the_next_one(left: str) -> None:
    """Found by the simulator (seed 17100096): trimmed up to such a file, the log could not be opened any more."""
    files = HalfMade()
    wal = await beyond_a_failed_creation(files, left)
    assert await wal.trim(wal.last_seq + 1) > 0
    await wal.settle()
    last = wal.last_seq
    assert last > 0
    await wal.close()
    again = await Wal.open(files, settings=SMALL)
    assert again.last_seq == last
    assert [frame.last_seq for frame in await again.read_all()][-1] == last


@pytest.mark.parametrize("left", LEFT)
async def test_while_it_cannot_be_deleted_no_segment_is_made(left: str) -> None:
    files = HalfMade()
    wal = await started(files)
    files.left, files.stuck = left, True
    frames = run(1, 200)
    await append_all(wal, frames)
    await settle()
    assert len(wal.segments()) == 1, "the old one grows"
    with pytest.raises(SyncFailed):
        await wal.roll(wal.last_seq + 1)
    files.stuck = False
    await wal.roll(wal.last_seq + 1)
    assert len(paths(files)) == 2


@pytest.mark.parametrize("left", LEFT)
async def test_a_cleared_log_begins_anew_behind_a_creation_that_failed(left: str) -> None:
    files = HalfMade()
    wal = await started(files)
    files.left = left
    with pytest.raises(SyncFailed):
        await wal.roll(5)
    await wal.clear()
    await wal.start(2, 9)
    await append_all(wal, run(9, 12, epoch=2))
    await wal.close()
    again = await Wal.open(files, settings=SMALL)
    assert (await again.read_all())[0].first_seq == 9


async def test_a_segment_made_ahead_that_is_not_deleted_at_once_goes_before_the_next_one() -> None:
    files = HalfMade()
    wal = await started(files)
    await append_all(wal, run(1, 6))
    await settle()
    before = set(paths(files))
    assert len(before) == 2, "one in use, and one made ahead"
    files.stuck = True
    with pytest.raises(SyncFailed):
        await wal.start(2, 20)
    files.stuck = False
    await wal.start(2, 20)
    assert len(paths(files)) == 2
    assert len(before & set(paths(files))) == 1


@pytest.mark.parametrize("error", [RuntimeError("x"), MemoryError("x"), asyncio.CancelledError("x")], ids=repr)
async def test_whatever_fails_while_a_segment_is_made_ahead_it_is_tried_again(error: BaseException) -> None:
    files = HalfMade()
    files.error = error
    wal = await beyond_a_failed_creation(files, "nothing")
    await wal.close()


@pytest.mark.parametrize(("error", "reported"), [(RuntimeError("x"), True), (SyncFailed("x"), False)], ids=repr)
async def test_what_nobody_foresaw_in_the_making_is_reported(error: BaseException, reported: bool) -> None:
    said: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context.get("exception")))
    files = HalfMade()
    files.error = error
    wal = await beyond_a_failed_creation(files, "nothing")
    await wal.close()
    gc.collect()
    assert said == ([error] if reported else [])


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
