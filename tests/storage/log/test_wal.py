"""The local WAL: appending, rolling, failing. Reads are in test_wal_reads.py, crashes in test_wal_recovery.py."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from storage.disk.os_files import OsFiles
from storage.invariants import InvariantBroken, watched
from storage.log.chain import standing, unbroken
from storage.log.frame import Frame
from storage.log.wal import Wal, WalSettings
from storage.log.wal_segments import WalSegment, trimmable
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import a_frame, run
from tests.storage.log.wal_rig import ALL, NO_TAIL, SMALL, append_all, paths, read_in_steps, settle, started
from tests.storage.noise import noise
from twinlog.errors import SyncFailed


async def test_what_was_appended_is_there_after_a_restart_on_a_real_disk(tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    how = WalSettings(segment_bytes=1 << 15)
    wal = await Wal.open(files, settings=how)
    await wal.start(1, 1)
    frames: list[Frame] = []
    while len(frames) < 3000 or len(wal.segments()) <= 3:  # a slow disk makes the next segment later, and the old one grows
        more = run(2 * len(frames) + 1, 100, count=2)
        await asyncio.gather(*[wal.append(frame) for frame in more])
        frames += more
    end = frames[-1].last_seq
    assert await read_in_steps(wal, 0, ALL, 5000) == frames
    await wal.close()
    wal = await Wal.open(files, settings=how)
    assert (wal.first_previous, wal.last_seq) == (0, end)
    assert await wal.read_all() == frames
    assert await wal.read_all(after_seq=5000) == frames[2500:]
    assert await read_in_steps(wal, 5000, ALL, 5000) == frames[2500:]
    await wal.start(2, end + 1)
    await wal.append(a_frame(end + 1, epoch=2))
    assert wal.segments()[-1].name.startswith("000000000002-")
    assert wal.bytes_held == sum((tmp_path / "wal" / info.name).stat().st_size for info in wal.segments())
    await wal.close()
    await files.close()


async def test_a_failed_sync_on_a_real_disk_is_sealed_and_excluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = OsFiles(tmp_path)
    how = WalSettings(segment_bytes=1 << 16)  # large enough that no other segment is being made
    wal = await Wal.open(files, settings=how)
    await wal.start(1, 1)
    await append_all(wal, run(1, 3))
    sealed: list[int] = []
    real = os.pwritev

    def fail_once(descriptor: int, *rest: Any) -> int:
        written = real(descriptor, *rest)
        if not sealed:
            sealed.append(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return written

    monkeypatch.setattr(os, "pwritev", fail_once)
    with pytest.raises(SyncFailed):
        await wal.append(a_frame(4))
    with pytest.raises(SyncFailed, match="sealed"):
        await wal.append(a_frame(5))
    wal.forget_after(3)
    await wal.roll(6)
    await wal.append(a_frame(6, previous=3))
    await wal.close()
    wal = await Wal.open(files, settings=how)
    # written, though never synced: 4 is in the file and must not count
    assert [frame.first_seq for frame in await wal.read_all()] == [1, 2, 3, 4, 6]
    assert await wal.read(0, 6, ALL) == [*run(1, 3), a_frame(6, previous=3)]
    await files.close()


async def test_an_append_resolves_when_it_is_durable_and_not_before() -> None:
    files = MemoryFiles()
    wal = await started(files)
    files.hold = True
    futures = [wal.append(frame) for frame in run(1, 3)]
    await settle()
    assert not any(future.done() for future in futures)
    files.sync(paths(files)[0], 2)
    await settle()
    assert [future.done() for future in futures] == [True, True, False]
    files.sync(paths(files)[0])
    await futures[2]


async def test_rolling_is_by_size_and_the_next_segment_is_made_ahead() -> None:
    files = MemoryFiles()
    wal = await started(files)
    frames = run(1, 40)
    await append_all(wal, frames)
    infos = wal.segments()
    assert len(infos) > 3
    assert all(segment.end <= SMALL.segment_bytes for segment in wal._segments)
    assert [info.first_seq for info in infos[1:]] == [info.last_seq + 1 for info in infos[:-1] if info.last_seq is not None]
    assert await wal.read(0, 40, ALL) == frames


async def test_no_append_waits_for_the_next_segment() -> None:
    files = MemoryFiles()
    wal = await started(files)
    files.gate.clear()
    frames = run(1, 40)
    await append_all(wal, frames)
    assert len(paths(files)) == 1
    assert wal._segments[0].end > 2 * SMALL.segment_bytes
    files.gate.set()
    await settle()
    await wal.append(a_frame(41))
    assert [info.first_seq for info in wal.segments()] == [1, 41]


async def test_a_disk_that_is_full_when_the_next_segment_is_made_is_tried_again() -> None:
    files = MemoryFiles()
    wal = await started(files)
    files.full = True
    await append_all(wal, run(1, 20))
    assert len(paths(files)) == 1
    files.full = False
    await append_all(wal, run(21, 20))
    assert len(wal.segments()) > 1
    assert await wal.read(0, 40, ALL) == [*run(1, 20), *run(21, 20)]


async def test_a_frame_larger_than_a_segment_gets_one_of_its_own() -> None:
    files = MemoryFiles()
    wal = await started(files, NO_TAIL)
    frames = [*run(1, 6), a_frame(7, value=noise(600_000).encode()), *run(8, 3)]
    for frame in frames:
        await wal.append(frame)
        await settle()
    assert [info.first_seq for info in wal.segments()] == [1, 7, 8]
    assert await wal.read(0, 10, ALL) == frames
    assert await wal.read(6, 10, 10) == [frames[6]]


async def test_a_failure_fails_all_that_is_outstanding_until_the_roll() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 3))
    files.hold = True
    futures = [wal.append(a_frame(4)), wal.append(a_frame(5))]
    files.fail(paths(files)[0], lambda pending: pending.data)
    futures.append(wal.append(a_frame(6)))
    ends = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(end) for end in ends] == [SyncFailed] * 3
    files.hold = False
    wal.forget_after(3)
    assert wal.last_seq == 3
    assert await wal.read(0, ALL, ALL) == run(1, 3)
    await wal.roll(7)
    await wal.append(a_frame(7, previous=3))
    expected = [*run(1, 3), a_frame(7, previous=3)]
    assert await wal.read(0, 7, ALL) == expected
    again = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    # 4 and 5 came to the disk, but 7 excludes them
    assert [frame.first_seq for frame in await again.read_all()] == [1, 2, 3, 4, 5, 7]
    assert standing(await again.read_all()) == await again.read(0, 7, ALL) == expected
    assert await again.read(3, 7, ALL) == expected[3:]


async def test_a_failed_last_frame_is_replayed_when_nothing_excluded_it() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 3))
    files.hold = True
    failed = wal.append(a_frame(4))
    files.fail(paths(files)[0], lambda pending: pending.data)
    with pytest.raises(SyncFailed):
        await failed
    again = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    assert again.last_seq == 4


async def test_a_failure_reaches_across_the_roll_to_the_next_segment() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 8))
    await settle()
    files.hold = True
    frames = run(9, 8)
    futures = [wal.append(frame) for frame in frames]
    first, second = paths(files)
    in_second = [frame.first_seq for frame in frames if frame.first_seq >= (wal.segments()[1].first_seq or ALL)]
    assert len(in_second) > 1
    files.sync(second)
    await settle()
    assert not any(future.done() for future in futures)  # durable, but what comes before is not
    files.fail(first)
    ends = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(end) for end in ends] == [SyncFailed] * 8
    with pytest.raises(SyncFailed, match="before this one failed"):
        await wal.append(a_frame(17))
    files.hold = False
    wal.forget_after(8)
    await wal.roll(18)
    await wal.append(a_frame(18, previous=8))
    assert [frame.first_seq for frame in await wal.read(0, 18, ALL)] == [*range(1, 9), 18]
    again = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    assert standing(await again.read_all()) == await wal.read(0, 18, ALL) == await again.read(0, 18, ALL)


async def test_appends_to_the_next_segment_wait_for_those_before_and_then_succeed() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 8))
    await settle()
    files.hold = True
    futures = [wal.append(frame) for frame in run(9, 8)]
    first, second = paths(files)
    files.sync(second)
    files.sync(first)
    await asyncio.gather(*futures)
    files.hold = False
    await wal.append(a_frame(17))
    await wal.close()


async def test_a_frame_that_does_not_link_to_the_newest_one_is_read_all_the_same() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 3))
    await wal.roll(5)
    await wal.append(a_frame(5, previous=2))  # excludes 3, which nobody told the memory tail
    await wal.append(a_frame(6))
    expected = [*run(1, 2), a_frame(5, previous=2), a_frame(6)]
    assert await wal.read(0, 6, ALL) == expected
    assert await wal.read(2, 6, ALL) == expected[2:]
    assert await wal.read(5, 6, ALL) == expected[3:]


async def test_a_roll_that_fails_may_be_tried_again() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 2))
    files.full = True
    with pytest.raises(SyncFailed, match="disk full"):
        await wal.roll(3)
    with pytest.raises(SyncFailed, match="no open segment"):
        await wal.append(a_frame(3))
    files.full = False
    await wal.roll(3)
    await wal.append(a_frame(4, previous=2))
    assert await wal.read(0, 4, ALL) == [*run(1, 2), a_frame(4, previous=2)]


async def test_nothing_is_appended_before_the_start() -> None:
    wal = await Wal.open(MemoryFiles())
    with pytest.raises(SyncFailed, match="no open segment"):
        await wal.append(a_frame(1))


async def test_a_new_epoch_does_not_use_the_segment_made_ahead_for_the_old_one() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 8))
    await settle()
    assert len(paths(files)) == 2
    await wal.start(2, 9)
    await wal.append(a_frame(9, epoch=2))
    assert [(info.epoch, info.last_seq) for info in wal.segments()] == [(1, 8), (2, 9)]
    assert len(paths(files)) == 2


async def in_two_files(files: MemoryFiles) -> tuple[Wal, list[Frame], int]:
    """A WAL with 8 durable frames, and 8 in two files whose appends have not ended; how many of these the first file has."""
    wal = await started(files)
    await append_all(wal, run(1, 8))
    await settle()
    files.hold = True
    outstanding = [a_frame(seq, committed=8) for seq in range(9, 17)]
    for frame in outstanding:
        wal.append(frame).add_done_callback(lambda ended: ended.exception())
    return wal, outstanding, (wal.segments()[1].first_seq or 0) - 9


async def test_another_epoch_in_the_same_process_waits_for_what_is_outstanding() -> None:
    files = MemoryFiles()
    wal, outstanding, _ = await in_two_files(files)
    settled = asyncio.ensure_future(wal.settle())
    for path in paths(files):
        await settle()
        assert not settled.done()
        files.sync(path)
    await settled
    assert await wal.read_all() == [*run(1, 8), *outstanding]
    assert wal.last_seq == 16


async def test_another_epoch_in_the_same_process_does_not_build_on_what_follows_a_failed_file() -> None:
    # as a start of the process would; else the missing frames are copied behind those that follow them, and the log is torn
    files = MemoryFiles()
    wal, outstanding, in_first = await in_two_files(files)
    first, second = paths(files)
    files.sync(second)
    files.fail(first)
    files.hold = False
    await wal.settle()
    local = await wal.read_all()
    assert local == run(1, 8)
    assert (wal.last_seq, await wal.read(8, 16, ALL)) == (8, [])
    assert 0 < in_first < len(outstanding)
    held = {frame.position for frame in local}
    await wal.start(2, 9)
    await append_all(wal, [frame for frame in outstanding if frame.position not in held])
    await append_all(wal, run(17, 3, epoch=2))
    expected = [*run(1, 8), *outstanding, *run(17, 3, epoch=2)]
    again = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    assert standing(await again.read_all()) == await again.read(0, 19, ALL) == expected
    assert await wal.read(0, 19, ALL) == expected


async def test_the_start_of_an_epoch_that_never_opened_is_withdrawn_for_good() -> None:
    files = MemoryFiles()
    wal = await started(files, epoch=2)
    start = a_frame(5, epoch=2)
    await append_all(wal, [*run(1, 4), start])
    await wal.settle()
    await wal.withdraw(start)
    assert (await wal.read_all(), wal.last_seq) == (run(1, 4), 4)
    again = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    assert (await again.read_all(), again.last_seq) == (run(1, 4), 4)
    await again.start(4, 5)
    continued = [*run(5, 2), a_frame(7, epoch=3), a_frame(8, epoch=4)]
    await append_all(again, continued)
    await again.settle()
    assert standing(await again.read_all()) == await again.read(0, 8, ALL) == [*run(1, 4), *continued]


async def test_a_start_that_is_alone_in_its_file_is_withdrawn_too() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 4))
    await wal.start(2, 5)
    await append_all(wal, [start := a_frame(5, epoch=2)])
    await wal.settle()
    await wal.withdraw(start)
    await wal.start(3, 5)
    await append_all(wal, run(5, 2, epoch=3))
    again = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    assert await again.read_all() == await wal.read(0, 6, ALL) == [*run(1, 4), *run(5, 2, epoch=3)]


async def test_what_is_followed_in_its_file_is_not_withdrawn() -> None:
    wal = await started(MemoryFiles())
    await append_all(wal, run(1, 4))
    await wal.settle()
    with watched(), pytest.raises(InvariantBroken, match="0 end with"):
        await wal.withdraw(a_frame(1))
    assert await wal.read_all() == run(1, 4)


@pytest.mark.parametrize("deletions", [0, 1, 2, None])
async def test_what_stands_before_a_hole_goes_and_nothing_else(monkeypatch: pytest.MonkeyPatch, deletions: int | None) -> None:
    """Epoch 2 cut off the last frame of epoch 1. The process dies behind some deletions: that frame stands at no moment."""
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 3))
    await wal.start(2, 3)
    await append_all(wal, run(3, 2, epoch=2))
    await wal.start(3, 9)
    await append_all(wal, behind := run(9, 4, epoch=3))
    await wal.settle()
    delete, done = files.delete, 0

    async def dies(path: str) -> None:
        nonlocal done
        if done == deletions:
            raise SyncFailed("injected: it dies here")
        done += 1
        await delete(path)

    monkeypatch.setattr(files, "delete", dies)
    if deletions in (None, 2):
        await wal.drop_before(behind[0])
        await wal.start(4, 13)
        await append_all(wal, more := run(13, 2, epoch=4))
        assert await wal.read(8, 14, ALL) == await wal.read_all() == [*behind, *more]
        return
    with pytest.raises(SyncFailed):
        await wal.drop_before(behind[0])
    again = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    left = unbroken([frame for frame in await again.read_all() if frame.last_seq < 9])
    assert left == [[*run(1, 2), *run(3, 2, epoch=2)], run(3, 2, epoch=2)][deletions]
    assert await again.read(8, 12, ALL) == behind


def test_what_stands_in_an_older_file_than_what_it_follows_is_not_trimmed() -> None:
    """Frame 3 was copied behind 4 and 5, which stand."""
    layout = [("1", 1, run(1, 2)), ("2", 1, run(4, 2)), ("3", 2, [a_frame(3), a_frame(6, epoch=2)])]
    segments = [WalSegment(f"wal/{name}", epoch, frames[0].first_seq, 1000) for name, epoch, frames in layout]
    for segment, (_, _, frames) in zip(segments, layout, strict=True):
        for frame in frames:
            segment.note(frame)
    assert [segment.name for segment in trimmable(segments, 5)] == ["1"]
    assert [segment.name for segment in trimmable(segments, 6)] == ["1", "2"]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_deletion_that_fails_leaves_what_is_there(monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """Found by the simulator (seed 16001610): a file that was gone could not be read any more, and the site stayed closed."""
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 20))
    before = [segment.name for segment in wal.segments()]
    assert len(before) > 1
    delete = files.delete

    async def fails(path: str) -> None:
        spare = path.rpartition("/")[2] not in before
        if gone or spare:
            await delete(path)
        if not spare:
            raise SyncFailed("injected: the folder was not synced")

    monkeypatch.setattr(files, "delete", fails)
    with pytest.raises(SyncFailed):
        await wal.clear()
    assert [segment.name for segment in wal.segments()] == (before[:-1] if gone else before)
    await wal.read_all()
    deleted: list[str] = []

    async def works(path: str) -> None:
        deleted.append(path.rpartition("/")[2])
        await delete(path)

    monkeypatch.setattr(files, "delete", works)
    await wal.clear()
    assert wal.segments() == []
    assert paths(files) == []
    assert sorted(deleted) == before  # also the one that is gone: its deletion is not durable yet
