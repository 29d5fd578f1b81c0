"""Reading and trimming a WAL: bounded, linked, from memory or from files, and never past what is gone."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.chain import standing
from storage.log.frame import Frame
from storage.log.segment import HEADER_BYTES
from storage.log.wal import Wal, WalSettings
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import a_frame, run, segment_bytes
from tests.storage.log.wal_rig import ALL, NO_TAIL, SMALL, append_all, paths, read_in_steps, settle, started
from twinlog.errors import DamagedLog, LogGap, SyncFailed


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


@pytest.mark.parametrize("after_seq", [0, 2, 3, 5])
@pytest.mark.parametrize("place", range(8))
@pytest.mark.parametrize("repeated", [False, True])
async def test_a_frame_that_was_not_written_where_it_stands_is_named(after_seq: int, place: int, repeated: bool) -> None:
    """The file changes under a running site. A gap instead would have the other site filled anew."""
    frames = run(1, 9)
    files = MemoryFiles()
    wal = await started(files, WalSettings(segment_bytes=1 << 16, tail_bytes_max=1))
    await append_all(wal, frames)
    path = f"wal/{wal.segments()[0].name}"
    wrong = [*frames[: place + 1], frames[place], *frames[place + 1 :]]
    if not repeated:
        wrong = [*frames[:place], frames[place + 1], frames[place], *frames[place + 2 :]]
    offsets = [HEADER_BYTES + sum(len(frame.data) for frame in wrong[:before]) for before in (place, place + 1)]
    data = segment_bytes(wrong, zeros=0)
    files.files[path].durable[HEADER_BYTES : len(data)] = data[HEADER_BYTES:]
    with pytest.raises(DamagedLog) as raised:
        await read_in_steps(wal, after_seq, 9, 200)
    assert (raised.value.fields["file"], raised.value.fields["offset"]) == (path, offsets[repeated])
    with pytest.raises(DamagedLog) as raised:
        await wal.read_all()
    assert (raised.value.fields["file"], raised.value.fields["offset"]) == (path, offsets[1])
    await wal.close()
