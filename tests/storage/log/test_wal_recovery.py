"""The local WAL after a crash: torn tails are cut at every byte, damage is loud at every byte, and nothing acknowledged
is lost whatever a power loss leaves of what was not yet synced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.log.chain import standing, tail_after
from storage.log.frame import Frame
from storage.log.segment import HEADER_BYTES, SegmentHeader, encode_header, wal_name
from storage.log.wal import Wal, WalSettings
from tests.storage.disk.memory_files import MemoryFile, MemoryFiles, Pending
from tests.storage.log.frames import a_frame, run, segment_bytes
from twinlog.errors import DamagedLog, LogGap, SyncFailed

SMALL = WalSettings(segment_bytes=700, tail_bytes_max=1 << 20)
ALL = 1 << 40
OURS, THEIRS = "a1" * 8, "b2" * 8  # pairs


def disk(*segments: tuple[int, Sequence[Frame]], changed: Callable[[bytearray], None] | None = None) -> MemoryFiles:
    """A disk with one file per (epoch, frames), numbered from 1; `changed` alters the last one."""
    files = MemoryFiles()
    data = bytearray()
    for index, (epoch, frames) in enumerate(segments, 1):
        data = bytearray(segment_bytes(frames, epoch=epoch, index=index))
        files.files[path(epoch, index)] = MemoryFile(data, len(data))
    if changed is not None:
        changed(data)
    return files


def path(epoch: int, index: int) -> str:
    return f"wal/{wal_name(epoch, index)}"


async def test_a_tail_torn_at_any_byte_is_cut_and_stays_cut() -> None:
    frames = run(1, 4)
    whole = segment_bytes(frames)
    start = len(whole) - 200 - len(frames[3].data)
    for cut in range(start, len(whole) - 201):
        files = disk((1, frames))
        durable = files.files[path(1, 1)].durable
        durable[cut:] = bytes(len(durable) - cut)
        if bytes(durable) == whole:
            continue  # the frame ends in zero bytes
        for _ in range(2):
            wal = await Wal.open(files)
            assert await wal.read(0, 3, ALL) == frames[:3]
            assert wal.last_seq == 3
            assert bytes(durable) == whole[:start] + bytes(len(whole) - start)


async def test_a_flipped_bit_in_any_byte_of_a_committed_frame_is_loud() -> None:
    frames = run(1, 8)
    start = HEADER_BYTES + sum(len(frame.data) for frame in frames[:2])
    for at in range(start, start + len(frames[2].data)):
        for bit in (1, 6):
            files = disk((1, frames))
            files.files[path(1, 1)].durable[at] ^= 1 << bit
            before = bytes(files.files[path(1, 1)].durable)
            with pytest.raises(DamagedLog) as caught:
                await Wal.open(files)
            assert (caught.value.fields["file"], caught.value.fields["offset"]) == (path(1, 1), start)
            assert files.files[path(1, 1)].durable == before  # nothing was "repaired"


@pytest.mark.parametrize("place", range(5))
async def test_two_frames_swapped_or_one_that_stands_twice_are_loud(place: int) -> None:
    """Each frame is sound, and so is every link by sequence; a reader along the file would come to a gap, or pass over one."""
    frames = run(1, 6)
    swapped = [*frames[:place], frames[place + 1], frames[place], *frames[place + 2 :]]
    twice = [*frames, frames[place]]
    for wrong, behind in ((swapped, place + 1), (twice, 6)):
        with pytest.raises(DamagedLog, match="stands behind a later frame") as raised:
            await Wal.open(disk((1, wrong), (1, run(7, 3))))
        offset = HEADER_BYTES + sum(len(frame.data) for frame in wrong[:behind])
        assert (raised.value.fields["file"], raised.value.fields["offset"]) == (path(1, 1), offset)


async def test_the_lost_end_of_a_sealed_segment_is_loud() -> None:
    # nothing behind the bad place in its own file, but the next file was made after it was durable
    files = disk((1, run(1, 5)), (1, run(6, 3)))
    durable = files.files[path(1, 1)].durable
    durable[-200 - 10] ^= 1
    end = len(durable) - 200 - len(run(1, 5)[-1].data)
    with pytest.raises(DamagedLog, match="sequence 5 should follow there") as caught:
        await Wal.open(files)
    assert (caught.value.fields["file"], caught.value.fields["offset"]) == (path(1, 1), end)
    assert path(1, 2) in caught.value.message
    assert not files.deleted


async def test_the_next_file_proves_nothing_when_it_was_written_along_with_what_is_missing() -> None:
    first = run(1, 5)
    files = disk((1, first[:4]), (1, [a_frame(6, committed=4), a_frame(7, committed=4)]))
    wal = await Wal.open(files)
    assert wal.last_seq == 4
    assert await wal.read_all() == first[:4]
    assert files.deleted == [path(1, 2)]


async def test_what_a_later_frame_excludes_may_be_broken_in_any_way() -> None:
    # 4 failed: it never came to the disk, 5 that was queued behind it did; 6 excludes both
    files = disk((1, [*run(1, 3), a_frame(5, committed=3)]), (1, [a_frame(6, previous=3, committed=3)]))
    files.files[path(1, 1)].durable[HEADER_BYTES + 3 * len(run(1, 1)[0].data) + 20] ^= 1
    wal = await Wal.open(files)
    assert [frame.first_seq for frame in standing(await wal.read_all())] == [1, 2, 3, 6]


async def test_an_epoch_that_lost_its_first_frames_is_torn_and_has_no_hole() -> None:
    # all of epoch 2 was still unsynced: 4 is lost, 5 in the same file and 6 in the next one are whole
    behind = [a_frame(4, epoch=2, committed=3), a_frame(5, epoch=2, committed=3)]
    for last in (a_frame(6, epoch=2, committed=3), a_frame(6, epoch=2, committed=4)):
        files = disk((1, run(1, 3)), (2, behind), (2, [last]))
        files.files[path(2, 2)].durable[HEADER_BYTES + 20] ^= 1
        if last.committed == 3:
            wal = await Wal.open(files)
            assert [frame.first_seq for frame in await wal.read_all()] == [1, 2, 3]
        else:
            with pytest.raises(DamagedLog, match="sequence 4 should follow"):
                await Wal.open(files)


async def test_a_trimmed_log_that_began_with_a_failed_segment_opens() -> None:
    files = MemoryFiles()
    wal = await Wal.open(files, settings=SMALL)
    await wal.start(1, 1)
    frames = run(1, 8)
    for frame in frames:
        await wal.append(frame)
    await asyncio.sleep(0)
    files.hold = True
    failed = wal.append(a_frame(9, committed=8))  # the first frame of the segment that was made when 5 was the last one
    names = [info.name for info in wal.segments()]
    files.fail(f"wal/{names[1]}")
    with pytest.raises(SyncFailed):
        await failed
    files.hold = False
    wal.forget_after(8)
    await wal.roll(10)
    await wal.append(a_frame(10, previous=8, committed=8))
    await wal.append(a_frame(11, committed=10))
    for trim_at in (8, 9, 10, 11):
        await wal.trim(trim_at)
        opened = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
        assert opened.last_seq == 11
        assert (opened.first_previous or 0) <= 8
        assert standing(await opened.read_all())[-1].last_seq == 11
    assert files.deleted == [f"wal/{names[1]}", f"wal/{names[0]}"]


async def test_a_missing_segment_in_the_middle_is_loud() -> None:
    files = disk((1, run(1, 3)), (1, run(4, 3)), (1, run(7, 3)))
    del files.files[path(1, 2)]
    with pytest.raises(DamagedLog, match="sequence 4 should follow"):
        await Wal.open(files)


async def test_a_missing_frame_of_an_older_life_is_damage_even_when_nothing_attests_it() -> None:
    files = disk((1, [a_frame(1), a_frame(2)]), (1, [a_frame(4), a_frame(5)]), (2, [a_frame(6, epoch=2)]))
    with pytest.raises(DamagedLog, match="sequence 3 should follow"):
        await Wal.open(files)


async def test_a_torn_header_at_the_end_goes_away_and_elsewhere_is_damage() -> None:
    for cut in range(HEADER_BYTES):
        files = disk((1, run(1, 3)), (1, []))
        durable = files.files[path(1, 2)].durable
        durable[cut:] = bytes(len(durable) - cut)
        wal = await Wal.open(files)
        assert (wal.last_seq, files.deleted) == (3, [path(1, 2)])
    files = disk((1, []), (1, run(1, 3)))
    files.files[path(1, 1)].durable[10] ^= 1
    with pytest.raises(DamagedLog, match="segment header is damaged") as caught:
        await Wal.open(files)
    assert (caught.value.fields["file"], caught.value.fields["offset"]) == (path(1, 1), 0)


async def test_a_segment_with_another_one_s_header_is_named() -> None:
    files = disk((1, run(1, 3)))
    files.files[path(1, 7)] = files.files.pop(path(1, 1))
    with pytest.raises(DamagedLog, match="give it that name again"):
        await Wal.open(files)


async def test_empty_segments_at_the_end_go_away_and_other_files_are_left_alone() -> None:
    files = disk((1, run(1, 3)), (1, []), (2, []))
    await files.write_new("wal/notes.txt", b"x")
    wal = await Wal.open(files)
    assert sorted(files.files) == [path(1, 1), "wal/notes.txt"]
    await wal.start(3, 4)
    assert path(3, 4) in files.files  # the index goes on


async def test_a_tail_torn_in_an_old_segment_stays_a_tail() -> None:
    # epoch 1 ended with a torn frame that was cut; epoch 2 follows
    files = disk((1, run(1, 3)), (2, [a_frame(4, epoch=2), a_frame(5, epoch=2, committed=4)]))
    wal = await Wal.open(files)
    assert [frame.first_seq for frame in await wal.read(0, 5, ALL)] == [1, 2, 3, 4, 5]


async def test_copies_of_older_frames_at_the_start_of_an_epoch() -> None:
    # the disk had lost 3, which the remote log still held: the restart writes it into its first segment
    copied = [a_frame(3, committed=2), a_frame(4, epoch=2, committed=3), a_frame(5, epoch=2, committed=4)]
    files = disk((1, run(1, 2)), (2, copied))
    wal = await Wal.open(files)
    assert [frame.position for frame in await wal.read(0, 5, ALL)] == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5)]
    # while they are being copied they prove nothing about one another
    files = disk((1, run(1, 2)), (2, run(3, 4)))
    files.files[path(2, 2)].durable[HEADER_BYTES + 20] ^= 1
    assert (await Wal.open(files)).last_seq == 2


# ---- whatever a power loss leaves


class Life:
    """A pair's active site over one disk: what it acknowledged, what it excluded, and what the next life must find.

    `committed` moves as the commit driver's does: in order, when the local append has resolved.
    """

    def __init__(self, files: MemoryFiles, wal: Wal, epoch: int, stands: list[Frame]) -> None:
        self.files, self.wal, self.epoch = files, wal, epoch
        self.stands = stands  # acknowledged
        self.waiting: list[tuple[Frame, asyncio.Future[None]]] = []
        self.excluded: set[int] = set()
        self.next_seq = max([frame.last_seq for frame in stands], default=0) + 1

    @property
    def committed(self) -> int:
        return self.stands[-1].last_seq if self.stands else 0

    def append(self, count: int) -> None:
        previous = self.waiting[-1][0].last_seq if self.waiting else self.committed
        frame = a_frame(self.next_seq, count=count, epoch=self.epoch, previous=previous, committed=self.committed)
        self.next_seq += count
        self.waiting.append((frame, self.wal.append(frame)))

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        while self.waiting and self.waiting[0][1].done() and self.waiting[0][1].exception() is None:
            self.stands.append(self.waiting.pop(0)[0])

    async def fail(self, which: str, choose: Callable[[Pending], bytes]) -> None:
        self.files.fail(which, choose)
        for path in list(self.files.files):
            self.files.sync(path)
        await self.settle()
        if not self.waiting:
            return
        ends = await asyncio.gather(*[future for _, future in self.waiting], return_exceptions=True)
        assert all(isinstance(end, SyncFailed) for end in ends)
        self.excluded |= {frame.first_seq for frame, _ in self.waiting}
        self.waiting.clear()
        self.wal.forget_after(self.committed)
        await self.wal.roll(self.next_seq)


def chooser(data: st.DataObject) -> Callable[[Pending], bytes]:
    """A crash leaves of each unsynced write all, nothing, a beginning, or an end without its beginning."""

    def choose(pending: Pending) -> bytes:
        how = data.draw(st.sampled_from(["all", "none", "begin", "end"]))
        if how == "all":
            return pending.data
        if how == "none":
            return b""
        at = data.draw(st.integers(1, len(pending.data) - 1))
        return pending.data[:at] if how == "begin" else bytes(at) + pending.data[at:]

    return choose


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_no_power_loss_takes_what_was_acknowledged_or_brings_back_what_was_excluded(data: st.DataObject) -> None:
    asyncio.run(lives(data))


async def lives(data: st.DataObject) -> None:
    files = MemoryFiles()
    stands: list[Frame] = []  # acknowledged, in all lives
    excluded: set[int] = set()
    highest = trimmed = 0
    for epoch in range(1, data.draw(st.integers(2, 4)) + 1):
        wal = await Wal.open(files, settings=SMALL)
        found = await wal.read_all()
        log = standing(found)
        # the last frames of the life before may have made it: they are replayed, and stand from now on
        stands = check_log(log, stands, trimmed)
        assert not {frame.first_seq for frame in log} & excluded
        position = data.draw(st.integers(0, len(stands)))
        at = stands[position - 1].last_seq if position else 0
        if at >= trimmed:
            assert tail_after(found, at) == stands[position:]
            assert not stands[position:] or await wal.read(at, ALL, ALL) == stands[position:]
        life = Life(files, wal, epoch, stands)
        life.next_seq = max([highest, *[frame.last_seq for frame in found]]) + 1
        await wal.start(epoch, life.next_seq)
        files.hold = True
        trimming: asyncio.Future[int] | None = None
        for _ in range(data.draw(st.integers(0, 25))):
            step = data.draw(st.sampled_from(["append", "append", "append", "append", "sync", "sync", "fail", "trim", "crash"]))
            pending = sorted(path for path, file in files.files.items() if file.pending)
            if step == "append":
                life.append(data.draw(st.integers(1, 3)))
            elif step == "sync" and pending:
                files.sync(data.draw(st.sampled_from(pending)), data.draw(st.integers(1, 3)))
            elif step == "fail" and pending:
                await life.fail(data.draw(st.sampled_from(pending)), chooser(data))
            elif step in ("trim", "crash"):
                below = data.draw(st.integers(trimmed, life.committed)) + 1
                trimmed = below - 1
                trimming = asyncio.ensure_future(wal.trim(below))
                for _ in range(data.draw(st.integers(0, 5)) if step == "crash" else 100):
                    await asyncio.sleep(0)
                if step == "crash":
                    break
            await life.settle()
        # what failed after the last acknowledged frame was excluded by nobody yet
        excluded = {seq for seq in excluded | life.excluded if seq <= life.committed}
        highest = life.next_seq
        crashed = files.crashed(chooser(data))
        if trimming is not None:
            await trimming
        for _, future in life.waiting:
            future.cancel()
        files = crashed
    check_log(standing(await (await Wal.open(files, settings=SMALL)).read_all()), stands, trimmed)


def check_log(log: list[Frame], acknowledged: list[Frame], trimmed: int) -> list[Frame]:
    """The log is all that was acknowledged, but for what was trimmed, and perhaps something behind it. Returns both."""
    needed = [frame for frame in acknowledged if frame.last_seq > trimmed]
    begin = log.index(needed[0]) if needed else sum(frame.last_seq <= trimmed for frame in log)
    assert log[begin : begin + len(needed)] == needed
    assert log[:begin] == acknowledged[: len(acknowledged) - len(needed)][-begin:] if begin else True
    return acknowledged + log[begin + len(needed) :]


@given(st.data())
@settings(deadline=None, max_examples=150)
def test_a_flipped_bit_in_what_was_committed_is_never_passed_over(data: st.DataObject) -> None:
    """In one life's files, any bit of any frame that a later frame attests, or of any header before one."""

    async def check() -> None:
        files = MemoryFiles()
        wal = await Wal.open(files, settings=SMALL)
        await wal.start(1, 1)
        frames = run(1, data.draw(st.integers(4, 30)), lag=data.draw(st.integers(1, 3)))
        for frame in frames:
            await wal.append(frame)
        await wal.close()
        attested = max(frame.committed for frame in frames)
        places = []
        for info in wal.segments():
            offset = HEADER_BYTES
            for frame in frames[(info.first_seq or 1) - 1 : info.last_seq]:
                if frame.last_seq <= attested:
                    places.append((f"wal/{info.name}", offset, len(frame.data)))
                offset += len(frame.data)
        which, offset, length = data.draw(st.sampled_from(places))
        files.files[which].durable[offset + data.draw(st.integers(0, length - 1))] ^= 1 << data.draw(st.integers(0, 7))
        with pytest.raises(DamagedLog) as caught:
            await Wal.open(files, settings=SMALL)
        assert (caught.value.fields["file"], caught.value.fields["offset"]) == (which, offset)

    asyncio.run(check())


async def test_a_reader_behind_a_hole_gets_a_gap_and_not_the_older_frames() -> None:
    files = disk((1, run(1, 3)), (3, run(9, 2, epoch=3)))
    wal = await Wal.open(files)
    assert wal.first_previous == 8
    with pytest.raises(LogGap):
        await wal.read(0, 10, ALL)
    with pytest.raises(LogGap):
        tail_after(await wal.read_all(), 3)
    assert encode_header(SegmentHeader(0, 1, 1, wal_name(1, 1))) == files.files[path(1, 1)].durable[:HEADER_BYTES]


@pytest.mark.parametrize("foreign", range(4))
async def test_a_segment_of_another_pair_is_loud_and_stays(foreign: int) -> None:
    """Its frames are sound, and link: only its header says it. In the last place it would be taken for the end of the log."""
    files, frames = MemoryFiles(), run(1, 8)
    for index in range(4):
        data = segment_bytes(frames[2 * index : 2 * index + 2], index=index + 1, pair=THEIRS if index == foreign else OURS)
        files.files[path(1, index + 1)] = MemoryFile(bytearray(data), len(data))
    before = {name: bytes(file.durable) for name, file in files.files.items()}
    with pytest.raises(DamagedLog, match=f"another pair: its header names {THEIRS}, and this log is of {OURS}") as caught:
        await Wal.open(files)
    assert (caught.value.fields["file"], caught.value.fields["offset"]) == (path(1, foreign + 1), 0)
    assert {name: bytes(file.durable) for name, file in files.files.items()} == before


async def test_a_log_keeps_its_pair_until_it_is_cleared() -> None:
    files = MemoryFiles()
    wal = await Wal.open(files, settings=SMALL)
    assert wal.pair == ""
    await wal.start(1, 1, OURS)
    for frame in run(1, 12):
        await wal.append(frame)
    await wal.close()
    wal = await Wal.open(files.crashed(lambda _: b""), settings=SMALL)
    assert (wal.pair, len(wal.segments()) > 1) == (OURS, True)
    await wal.clear()
    await wal.start(2, 13, THEIRS)
    assert wal.pair == THEIRS
    await wal.close()
