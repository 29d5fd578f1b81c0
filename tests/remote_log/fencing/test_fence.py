"""Fencing: every older segment is proven closed; writer against fencer in many interleavings."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from remote_log.dfs.port import Dfs
from remote_log.fencing.claims import claim
from remote_log.fencing.fence import close_by_recovery, fence
from remote_log.fencing.reading import read_frames
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs, MemoryDisk
from tests.remote_log.fencing.segments import closed_segment, segment
from tests.remote_log.writing.remote_rig import LAYOUT, JumpingClock, NotingWriter, SlowDfs, content_of, turns
from tests.storage.log.frames import run
from twinlog.errors import DfsError, Fenced, LeaseNotRecovered


async def test_fence_closes_every_lower_segment_and_no_other(dfs: Dfs) -> None:
    writers = [await dfs.create(path) for path in (segment(1), segment(1, 1), segment(2), segment(3), segment(4))]
    seen: list[tuple[int, int]] = []
    await fence(dfs, LAYOUT, 3, JumpingClock(), 10.0, lambda *args: seen.append(args))
    assert [await dfs.is_closed(writer.path) for writer in writers] == [True, True, True, False, False]
    assert [*dict.fromkeys(seen)] == [(1, 3), (2, 3), (3, 3)]
    seen.clear()
    await fence(dfs, LAYOUT, 3, JumpingClock(), 10.0, lambda *args: seen.append(args))
    assert seen == [(1, 3), (2, 3), (3, 3)], "those that were closed already count, too"
    for writer in writers:
        await writer.close() if writer.path in (segment(3), segment(4)) else await _give_back(writer)


async def _give_back(writer: object) -> None:
    with pytest.raises(DfsError):
        await writer.close()  # type: ignore[attr-defined]


async def test_fence_closes_a_segment_that_an_old_writer_creates_meanwhile() -> None:
    dfs = MemoryDfs()
    await dfs.create(segment(1))
    other = MemoryDfs(dfs.disk)
    late: list[asyncio.Task[object]] = []

    def create_one_more(closed: int, seen: int) -> None:
        if not late:
            late.append(asyncio.create_task(other.create(segment(1, 1))))

    await fence(dfs, LAYOUT, 2, JumpingClock(), 10.0, create_one_more)
    assert await dfs.is_closed(segment(1, 1))


@pytest.mark.parametrize("was_open", [False, True])
async def test_a_name_that_is_used_anew_is_another_file(was_open: bool) -> None:
    """A DFS that went back, or an old trimmer and writer: what was proven of the file before says nothing of this one."""
    dfs = MemoryDfs()
    await closed_segment(dfs, segment(1), b"")
    await dfs.create(segment(1, 1))
    anew = segment(1, 1) if was_open else segment(1)
    other = MemoryDfs(dfs.disk)
    late: list[asyncio.Task[object]] = []

    def use_anew(closed: int, seen: int) -> None:
        if not late and dfs.disk.files[anew].closed:
            del dfs.disk.files[anew]
            late.append(asyncio.create_task(other.create(anew)))

    await fence(dfs, LAYOUT, 2, JumpingClock(), 10.0, use_anew)
    assert len(late) == 1
    assert await dfs.is_closed(anew)


async def test_fence_stops_at_the_deadline_and_names_the_file() -> None:
    dfs = MemoryDfs(MemoryDisk(recovery_polls=10**9))
    await dfs.create(segment(1))
    clock = JumpingClock()
    with pytest.raises(LeaseNotRecovered) as stopped:
        await fence(dfs, LAYOUT, 2, clock, 30.0)
    assert stopped.value.fields["file"] == segment(1)
    assert 30 <= clock.now_s - 1000 < 31
    assert dfs.calls["recover_lease"] == 2, "once at half of the deadline; each call may start the recovery anew"
    with pytest.raises(LeaseNotRecovered):
        await read_frames(dfs, LAYOUT, 2)


async def test_fence_survives_calls_that_fail() -> None:
    dfs = MemoryDfs()
    await dfs.create(segment(1))
    dfs.faults["recover_lease", 1] = Fault(DfsError("no answer"))
    dfs.faults["is_closed", 2] = Fault(DfsError("no answer"))
    await fence(dfs, LAYOUT, 2, JumpingClock(), 10.0)
    assert await dfs.is_closed(segment(1))


@pytest.mark.parametrize("failures", [1, 3])
async def test_a_first_question_that_fails_is_asked_again(failures: int) -> None:
    """As after a restart of a NameNode: the first call on the old connection finds it at its end."""
    for close in (partial(fence, layout=LAYOUT, below_epoch=2), partial(close_by_recovery, path=segment(1))):
        dfs = MemoryDfs()
        await dfs.create(segment(1))
        for n in range(1, failures + 1):
            dfs.faults["is_closed", n] = Fault(DfsError("end of file"))
        await close(dfs, clock=JumpingClock(), deadline_s=10.0)
        assert await dfs.is_closed(segment(1))


async def test_a_first_question_that_is_never_answered_ends_at_the_deadline() -> None:
    dfs, clock = MemoryDfs(), JumpingClock()
    await dfs.create(segment(1))
    for n in range(1, 1000):
        dfs.faults["is_closed", n] = Fault(DfsError("end of file"))
    with pytest.raises(LeaseNotRecovered, match="end of file") as stopped:
        await close_by_recovery(dfs, segment(1), clock, 10.0)
    assert stopped.value.fields["file"] == segment(1)
    assert 10 <= clock.now_s - 1000 < 11
    assert dfs.calls["recover_lease"] == 0


class AwayAtFirst(MemoryDfs):
    """A recovery that is called for before `back_at_s` comes to nothing: no DataNode with the block is alive."""

    def __init__(self, clock: JumpingClock, back_at_s: float) -> None:
        super().__init__()
        self._clock, self._back_at_s = clock, back_at_s

    async def recover_lease(self, path: str) -> None:
        if self._clock.now_s < self._back_at_s:
            self.calls["recover_lease"] += 1
        else:
            await super().recover_lease(path)


@pytest.mark.parametrize("faults", [0, 2])
async def test_a_recovery_that_came_to_nothing_is_called_for_again(faults: int) -> None:
    clock = JumpingClock()
    dfs = AwayAtFirst(clock, 1020.0)
    await dfs.create(segment(1))
    for n in range(2, 2 + faults):
        dfs.faults["recover_lease", n] = Fault(DfsError("no answer"))
    await close_by_recovery(dfs, segment(1), clock, 60.0)
    assert await dfs.is_closed(segment(1))
    assert 1030 <= clock.now_s < 1034, "after half of the deadline"
    assert dfs.calls["recover_lease"] == 2 + faults


async def test_fence_reports_what_kept_it_from_recovering() -> None:
    dfs = MemoryDfs()
    await dfs.create(segment(1))
    for n in range(1, 1000):
        dfs.faults["recover_lease", n] = Fault(DfsError("the name node is in safe mode"))
    with pytest.raises(LeaseNotRecovered, match="safe mode"):
        await fence(dfs, LAYOUT, 2, JumpingClock(), 10.0)


async def test_a_segment_trimmed_during_the_fence_is_no_obstacle() -> None:
    dfs = MemoryDfs()
    await dfs.create(segment(1))
    gate = asyncio.Event()
    dfs.faults["recover_lease", 1] = Fault(gate=gate)
    fencing = asyncio.create_task(fence(dfs, LAYOUT, 2, JumpingClock(), 10.0))
    await turns(20)
    await MemoryDfs(dfs.disk).delete(segment(1))
    gate.set()
    await fencing


@pytest.mark.parametrize("first", range(0, 300, 50))
async def test_whatever_was_reported_durable_is_read_by_the_fencer(first: int) -> None:
    """P2, over many interleavings: writer opens, appends, rolls; a fencer claims, fences and reads in between."""
    fenced_while_open = 0
    for seed in range(first, first + 50):
        fenced_while_open += await _one_race(random.Random(seed))
    assert fenced_while_open > 10


async def _one_race(rng: random.Random) -> bool:
    disk = MemoryDisk(recovery_polls=rng.randint(0, 3))
    fencer_dfs = SlowDfs(disk, rng)
    writer = NotingWriter(SlowDfs(disk, rng), segment_bytes=800, in_flight_max=rng.randint(1, 4))
    known_at_read: list[int] = []

    async def write() -> None:
        await turns(rng.randint(0, 40))
        try:
            await writer.open(1)
        except Fenced:
            return
        for frame in run(1, 60):
            if writer.fenced:
                return
            writer.submit(frame)
            await turns(rng.randint(0, 8))

    async def take_over() -> list[int]:
        await turns(rng.randint(0, 150))
        await claim(fencer_dfs, LAYOUT, 2, content_of("takeover"))
        await fence(fencer_dfs, LAYOUT, 2, JumpingClock(), 60.0)
        closed = {path: bytes(file.data) for path, file in disk.files.items() if LAYOUT.parse(path)}
        known_at_read.extend(range(1, writer.synced_seq + 1))
        try:
            frames = await read_frames(fencer_dfs, LAYOUT, 2)
        except LeaseNotRecovered:  # a segment created between fence and read: fence again, as the message says
            await fence(fencer_dfs, LAYOUT, 2, JumpingClock(), 60.0)
            frames = await read_frames(fencer_dfs, LAYOUT, 2)
        await turns(400)
        assert all(bytes(disk.files[path].data) == data for path, data in closed.items())
        return [frame.first_seq for frame in frames]

    _, read = await asyncio.gather(write(), take_over())
    reported = set(range(1, writer.synced_seq + 1))
    assert set(known_at_read) <= reported <= set(read)
    await writer.close()
    return bool(writer.fenced) and bool(reported)
