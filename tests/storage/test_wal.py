"""The local WAL: appending, rolling, failing, reading, trimming. Crashes are in test_wal_recovery.py."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.chain import standing
from storage.errors import DamagedLog, LogGap, SyncFailed
from storage.frame import Frame
from storage.os_files import OsFiles
from storage.wal import Wal, WalSettings
from tests.storage.log_frames import a_frame, run
from tests.storage.memory_files import MemoryFiles
from tests.storage.noise import noise

SMALL = WalSettings(segment_bytes=1000, tail_bytes_max=1 << 20)
NO_TAIL = WalSettings(segment_bytes=1000, tail_bytes_max=1)  # keeps the newest frame only: reads come from files
ALL = 1 << 40


async def started(files: MemoryFiles, how: WalSettings = SMALL, *, epoch: int = 1, next_seq: int = 1) -> Wal:
    wal = await Wal.open(files, settings=how)
    await wal.start(epoch, next_seq)
    return wal


async def append_all(wal: Wal, frames: Sequence[Frame]) -> None:
    for frame in frames:
        await wal.append(frame)


async def read_in_steps(wal: Wal, after_seq: int, upto_seq: int, bytes_max: int) -> list[Frame]:
    read: list[Frame] = []
    while step := await wal.read(after_seq, upto_seq, bytes_max):
        read += step
        after_seq = step[-1].last_seq
    return read


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)


def paths(files: MemoryFiles) -> list[str]:
    return sorted(files.files)


async def test_what_was_appended_is_there_after_a_restart_on_a_real_disk(tmp_path: Path) -> None:
    files = OsFiles(tmp_path)
    how = WalSettings(segment_bytes=1 << 15)
    wal = await Wal.open(files, settings=how)
    await wal.start(1, 1)
    frames = run(1, 3000, count=2)
    for at in range(0, len(frames), 100):
        await asyncio.gather(*[wal.append(frame) for frame in frames[at : at + 100]])
    assert len(wal.segments()) > 3
    assert await read_in_steps(wal, 0, ALL, 5000) == frames
    await wal.close()
    wal = await Wal.open(files, settings=how)
    assert (wal.first_previous, wal.last_seq) == (0, 6000)
    assert await wal.read_all() == frames
    assert await wal.read_all(after_seq=5000) == frames[2500:]
    assert await read_in_steps(wal, 5000, ALL, 5000) == frames[2500:]
    await wal.start(2, 6001)
    await wal.append(a_frame(6001, epoch=2))
    assert [info.is_open for info in wal.segments()][-2:] == [False, True]
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
    real = os.fdatasync

    def fail_once(descriptor: int) -> None:
        if not sealed:
            sealed.append(descriptor)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail_once)
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
    assert all(info.used_bytes <= SMALL.segment_bytes for info in infos)
    assert [info.first_seq for info in infos[1:]] == [info.last_seq + 1 for info in infos[:-1] if info.last_seq is not None]
    assert [info.is_open for info in infos] == [False] * (len(infos) - 1) + [True]
    assert await wal.read(0, 40, ALL) == frames


async def test_no_append_waits_for_the_next_segment() -> None:
    files = MemoryFiles()
    wal = await started(files)
    files.gate.clear()
    frames = run(1, 40)
    await append_all(wal, frames)
    assert len(paths(files)) == 1
    assert wal.segments()[0].used_bytes > 2 * SMALL.segment_bytes
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


@pytest.mark.parametrize("how", [SMALL, NO_TAIL])
async def test_reading_is_bounded_and_links_to_where_the_reader_is(how: WalSettings) -> None:
    files = MemoryFiles()
    wal = await started(files, how, next_seq=11)
    frames = run(11, 30, count=3)
    await append_all(wal, frames)
    assert await wal.read(10, ALL, 1) == frames[:1]
    assert await wal.read(10, ALL, 2 * len(frames[0].data)) == frames[:2]
    assert await wal.read(13, 20, ALL) == frames[1:3]  # 20..22 is not yet whole
    assert await wal.read(13, 15, ALL) == []
    assert await wal.read(100, 100, ALL) == await wal.read(120, 100, ALL) == []
    assert await wal.read(100, ALL, ALL) == []
    with pytest.raises(LogGap, match="begins after 10"):
        await wal.read(9, 100, ALL)
    with pytest.raises(LogGap):
        await wal.read(14, 100, ALL)


async def test_an_empty_wal_offers_nothing() -> None:
    wal = await Wal.open(MemoryFiles())
    assert (wal.first_previous, wal.last_seq, wal.bytes_held, wal.segments()) == (None, 0, 0, [])
    assert await wal.read_all() == []
    with pytest.raises(LogGap):
        await wal.read(0, 1, ALL)


async def test_trimming_takes_whole_old_segments_and_never_the_open_one() -> None:
    files = MemoryFiles()
    wal = await started(files, NO_TAIL)
    await append_all(wal, run(1, 40))
    infos = wal.segments()
    boundary = infos[2].first_seq
    assert boundary is not None
    held_before = wal.bytes_held
    assert await wal.trim(boundary) == SMALL.segment_bytes  # the second stays until something durable is behind it
    assert await wal.trim(boundary + 1) == SMALL.segment_bytes
    assert await wal.trim(boundary + 1) == 0
    assert [info.name for info in wal.segments()] == [info.name for info in infos[2:]]
    assert wal.bytes_held == held_before - 2 * SMALL.segment_bytes
    assert files.deleted == [f"wal/{info.name}" for info in infos[:2]]
    assert wal.first_previous == boundary - 1
    assert await wal.read(boundary - 1, 40, ALL) == run(1, 40)[boundary - 1 :]
    with pytest.raises(LogGap):
        await wal.read(boundary - 2, 40, ALL)
    again = await Wal.open(files.crashed(lambda _: b""), settings=NO_TAIL)
    assert (again.first_previous, again.last_seq) == (boundary - 1, 40)
    assert infos[-1].last_seq == 40
    await wal.trim(41)
    assert [info.name for info in wal.segments()] == [infos[-1].name]


async def test_a_reader_whose_segment_is_trimmed_under_it_is_told() -> None:
    files = MemoryFiles()
    wal = await started(files, NO_TAIL)
    await append_all(wal, run(1, 40))
    files.reading.clear()
    reading = asyncio.ensure_future(wal.read(0, 40, ALL))
    await settle()
    await wal.trim(41)
    files.reading.set()
    with pytest.raises(LogGap, match="trimmed"):
        await reading


async def test_a_frame_that_can_no_longer_be_read_is_an_error_and_not_the_end() -> None:
    files = MemoryFiles()
    wal = await started(files, NO_TAIL)
    await append_all(wal, run(1, 40))
    last = wal.segments()[-1]
    assert last.first_seq is not None
    files.files[f"wal/{last.name}"].durable[64 + 30] ^= 1
    assert await wal.read(last.first_seq - 2, 39, ALL) == [a_frame(last.first_seq - 1, committed=last.first_seq - 2)]
    with pytest.raises(DamagedLog, match="offset 64") as caught:
        await wal.read(last.first_seq - 1, 39, ALL)
    assert caught.value.fields["file"] == f"wal/{last.name}"


async def test_a_cleared_wal_begins_anew() -> None:
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 20))
    await wal.clear()
    assert paths(files) == []
    assert (wal.first_previous, wal.last_seq, wal.bytes_held) == (None, 0, 0)
    with pytest.raises(LogGap):
        await wal.read(0, 1, ALL)
    await wal.start(3, 500)
    await wal.append(a_frame(500, epoch=3))
    assert await wal.read(499, 500, ALL) == [a_frame(500, epoch=3)]
    assert wal.first_previous == 499


async def test_a_hole_between_two_epochs_is_where_reading_begins() -> None:
    # active in epoch 1, then a standby that kept its files, then active again: 11 to 19 were never written here
    files = MemoryFiles()
    wal = await started(files)
    await append_all(wal, run(1, 10))
    await wal.start(3, 20)
    await append_all(wal, run(20, 5, epoch=3))
    await wal.close()
    wal = await Wal.open(files, settings=SMALL)
    assert (wal.first_previous, wal.last_seq) == (19, 24)
    assert await wal.read(19, 24, ALL) == run(20, 5, epoch=3)
    with pytest.raises(LogGap):
        await wal.read(9, 24, ALL)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[str, int]]:
    return draw(st.lists(st.tuples(st.sampled_from(["append", "append", "append", "fail", "epoch"]), st.integers(1, 6))))


async def grow(wal: Wal, files: MemoryFiles, history: list[tuple[str, int]]) -> list[Frame]:
    """Appends, failed appends that an own roll follows, new epochs. Returns what stands."""
    stands: list[Frame] = []
    epoch, next_seq = 1, 1

    def previous() -> int:
        return stands[-1].last_seq if stands else 0

    for what, number in history:
        if what == "append":
            frame = a_frame(next_seq, count=number, epoch=epoch, previous=previous(), committed=previous())
            next_seq += number
            await wal.append(frame)
            stands.append(frame)
        elif what == "fail":
            files.hold = True
            failed = [a_frame(next_seq + n, epoch=epoch, previous=next_seq + n - 1 if n else previous()) for n in range(number)]
            next_seq += number
            futures = [wal.append(frame) for frame in failed]
            broken = next(info.name for info in wal.segments() if (info.last_seq or 0) >= failed[0].first_seq)
            files.fail(f"wal/{broken}", lambda pending, n=number: pending.data if n % 2 else b"")  # type: ignore[misc]
            for path in paths(files):
                files.sync(path)
            assert all(isinstance(end, SyncFailed) for end in await asyncio.gather(*futures, return_exceptions=True))
            files.hold = False
            wal.forget_after(previous())
            await wal.roll(next_seq)
        else:
            epoch += 1
            await wal.start(epoch, next_seq)
    frame = a_frame(next_seq, epoch=epoch, previous=previous())
    await wal.append(frame)
    return [*stands, frame]


@given(steps(), st.data())
@settings(deadline=None)
def test_memory_and_files_tell_the_same(history: list[tuple[str, int]], data: st.DataObject) -> None:
    async def check() -> None:
        files = MemoryFiles()
        wal = await started(files, SMALL)
        stands = await grow(wal, files, history)
        other_files = MemoryFiles()
        other = await started(other_files, NO_TAIL)
        assert await grow(other, other_files, history) == stands
        reopened = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
        positions = [0, *[frame.last_seq for frame in stands]]
        for _ in range(5):
            after, upto = data.draw(st.sampled_from(positions)), data.draw(st.sampled_from(positions))
            limit = data.draw(st.sampled_from([1, 300, ALL]))
            expected = [frame for frame in stands if after < frame.last_seq <= upto]
            for log in (wal, other, reopened):
                assert await read_in_steps(log, after, upto, limit) == expected
        assert standing(await wal.read_all()) == stands
        assert (wal.first_previous, wal.last_seq) == (reopened.first_previous, reopened.last_seq) == (0, stands[-1].last_seq)

    asyncio.run(check())
