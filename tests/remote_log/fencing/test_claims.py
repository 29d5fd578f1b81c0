"""Claims, fencing, and reading what was fenced; writer against fencer in many interleavings."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import pytest

from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.port import Dfs
from remote_log.fencing.claims import (
    FIRST_BYTES,
    ClaimContent,
    begins_after,
    check_not_fenced,
    claim,
    claimed_epochs,
    close_by_recovery,
    fence,
    list_claims,
    missing_from,
    read_frames,
)
from storage.log.segment import wal_name
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs, MemoryDisk
from tests.remote_log.writing.remote_rig import LAYOUT, JumpingClock, NotingWriter, SlowDfs, content_of, turns
from tests.storage.log.frames import a_frame, run, segment_bytes
from tests.storage.noise import noise
from twinlog.errors import ClaimLost, DamagedLog, DfsError, Fenced, LeaseNotRecovered


@pytest.fixture(params=["memory", "directory"])
def dfs(request: pytest.FixtureRequest, tmp_path: Path) -> Dfs:
    return MemoryDfs() if request.param == "memory" else DirectoryDfs(tmp_path, "dfs.root")


def segment(epoch: int, n: int = 0, index: int = 1) -> str:
    return LAYOUT.segment(epoch, wal_name(epoch, index), n)


async def closed_segment(dfs: Dfs, path: str, data: bytes) -> None:
    writer = await dfs.create(path)
    await writer.append(data)
    await writer.close()


async def test_of_many_claimers_exactly_one_wins(dfs: Dfs) -> None:
    plans = [f"plan-{i}" for i in range(20)]
    results = await asyncio.gather(*[claim(dfs, LAYOUT, 2, content_of(plan)) for plan in plans], return_exceptions=True)
    winners = [plan for plan, result in zip(plans, results, strict=True) if result is None]
    assert len(winners) == 1
    for result in results:
        if result is not None:
            assert isinstance(result, ClaimLost)
            winner = result.fields["winner"]
            assert isinstance(winner, dict)
            assert winner["plan"] == winners[0]
    assert await list_claims(dfs, LAYOUT) == {2: content_of(winners[0])}


async def test_the_same_plan_takes_its_own_claim_again(dfs: Dfs) -> None:
    await claim(dfs, LAYOUT, 2, content_of("mine"))
    later = ClaimContent(site="b", plan="mine", kind="takeover", reason="after a crash", wall_ms=9, follows_epoch=1)
    await claim(dfs, LAYOUT, 2, later)
    assert await list_claims(dfs, LAYOUT) == {2: content_of("mine")}


async def test_a_claim_whose_answer_was_lost_is_found_again() -> None:
    dfs = MemoryDfs()
    dfs.faults["create_file", 1] = Fault(DfsError("the answer was lost"), landed=1)
    with pytest.raises(DfsError):
        await claim(dfs, LAYOUT, 2, content_of("mine"))
    await claim(dfs, LAYOUT, 2, content_of("mine"))


async def test_a_higher_claim_wins_over_a_free_lower_one(dfs: Dfs) -> None:
    await claim(dfs, LAYOUT, 5, content_of("later", 5))
    with pytest.raises(ClaimLost) as lost:
        await claim(dfs, LAYOUT, 3, content_of("mine", 3))
    assert lost.value.fields["winner_epoch"] == 5
    assert await claimed_epochs(dfs, LAYOUT) == [5]


async def test_a_higher_claim_that_appears_during_ours_is_seen() -> None:
    dfs = MemoryDfs()
    gate = asyncio.Event()
    dfs.faults["create_file", 1] = Fault(gate=gate)
    ours = asyncio.create_task(claim(dfs, LAYOUT, 2, content_of("mine")))
    await turns(10)
    await claim(MemoryDfs(dfs.disk), LAYOUT, 3, content_of("later", 3))
    gate.set()
    with pytest.raises(ClaimLost):
        await ours


async def test_a_claim_that_cannot_be_read_is_no_free_epoch(dfs: Dfs) -> None:
    await dfs.create_file(LAYOUT.claim(4), b"{half")
    with pytest.raises(DamagedLog) as damaged:
        await list_claims(dfs, LAYOUT)
    assert damaged.value.fields["file"] == LAYOUT.claim(4)
    with pytest.raises(DamagedLog):
        await claim(dfs, LAYOUT, 4, content_of("mine", 4))
    with pytest.raises(Fenced):
        await check_not_fenced(dfs, LAYOUT, 3)


async def test_only_a_higher_claim_fences(dfs: Dfs) -> None:
    await claim(dfs, LAYOUT, 1, content_of("o", 1))
    await check_not_fenced(dfs, LAYOUT, 1)
    await claim(dfs, LAYOUT, 2, content_of("p"))
    await check_not_fenced(dfs, LAYOUT, 2)
    with pytest.raises(Fenced) as fenced:
        await check_not_fenced(dfs, LAYOUT, 1)
    assert fenced.value.fields == {"epoch": 1, "by_epoch": 2}


async def test_a_dfs_without_ones_own_claim_proves_nothing(dfs: Dfs) -> None:
    with pytest.raises(DfsError, match="is gone"):
        await check_not_fenced(dfs, LAYOUT, 2)
    await claim(dfs, LAYOUT, 1, content_of("older", 1))
    with pytest.raises(DfsError, match="is gone"):
        await check_not_fenced(dfs, LAYOUT, 2)


async def test_where_a_remote_log_begins(dfs: Dfs) -> None:
    assert await begins_after(dfs, LAYOUT, 2) is None
    await closed_segment(dfs, segment(3), segment_bytes(run(30, 2, epoch=3), epoch=3))
    await closed_segment(dfs, segment(2, 1), segment_bytes([], epoch=2, first_seq=12))
    writer = await dfs.create(segment(2, 2))
    await writer.append(segment_bytes(run(12, 3, epoch=2), epoch=2))
    assert await begins_after(dfs, LAYOUT, 2) == 11, "also while it is open"
    await writer.close()
    await closed_segment(dfs, segment(1, 1), segment_bytes(run(5, 2)))
    assert await begins_after(dfs, LAYOUT, 2) == 4, "of whatever epoch is left"
    large = a_frame(3, value=noise(2 * FIRST_BYTES[0]).encode())
    await closed_segment(dfs, segment(1), segment_bytes([large]))
    assert await begins_after(dfs, LAYOUT, 2) == 2, "a large frame is read whole"
    await closed_segment(dfs, segment(1, index=0), segment_bytes(run(1, 1))[:-220])
    assert await begins_after(dfs, LAYOUT, 2) is None, "it cannot be told, so nothing is said"


async def test_what_is_missing_from_a_remote_log_is_named(dfs: Dfs) -> None:
    assert await missing_from(dfs, LAYOUT, 2) == f"the claim {LAYOUT.claim(2)}"
    await claim(dfs, LAYOUT, 2, content_of("p"))
    every = f"every segment below {LAYOUT.epoch_folder(2)}"
    await closed_segment(dfs, segment(1), segment_bytes(run(1, 2)))
    assert await missing_from(dfs, LAYOUT, 2) == every
    await closed_segment(dfs, segment(2), b"")
    await closed_segment(dfs, segment(2, 1), segment_bytes([], epoch=2)[:40])
    assert await missing_from(dfs, LAYOUT, 2) == every
    writer = await dfs.create(segment(2, 2))
    await writer.append(segment_bytes([], epoch=2))
    assert await missing_from(dfs, LAYOUT, 2) is None, "also while it is open"
    await writer.close()
    await closed_segment(dfs, segment(2, 3), b"")
    assert await missing_from(dfs, LAYOUT, 2) is None


async def test_fence_closes_every_lower_segment_and_no_other(dfs: Dfs) -> None:
    writers = [await dfs.create(path) for path in (segment(1), segment(1, 1), segment(2), segment(3), segment(4))]
    seen: list[tuple[str, int, int]] = []
    await fence(dfs, LAYOUT, 3, JumpingClock(), 10.0, lambda *args: seen.append(args))
    assert [await dfs.is_closed(writer.path) for writer in writers] == [True, True, True, False, False]
    assert seen == [(segment(1), 1, 3), (segment(1, 1), 2, 3), (segment(2), 3, 3)]
    await fence(dfs, LAYOUT, 3, JumpingClock(), 10.0, lambda *args: seen.append(args))
    assert len(seen) == 3
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

    def create_one_more(path: str, closed: int, seen: int) -> None:
        if path == segment(1):
            late.append(asyncio.create_task(other.create(segment(1, 1))))

    await fence(dfs, LAYOUT, 2, JumpingClock(), 10.0, create_one_more)
    assert await dfs.is_closed(segment(1, 1))


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


async def test_frames_come_in_order_and_once(dfs: Dfs) -> None:
    one, two = run(1, 6), run(5, 3, epoch=2)
    await closed_segment(dfs, segment(1), segment_bytes(one[:4]))
    await closed_segment(dfs, segment(1, 1), segment_bytes(one[2:]))
    await closed_segment(dfs, segment(2), segment_bytes(two, epoch=2))
    await closed_segment(dfs, segment(3), segment_bytes(run(9, 1, epoch=3), epoch=3))
    await closed_segment(dfs, segment(2, 7), b"")
    await dfs.create_file(LAYOUT.epoch_folder(2) + "/notes.txt", b"an operator's")
    assert await read_frames(dfs, LAYOUT, 3) == one + two


async def test_an_open_segment_is_not_read(dfs: Dfs) -> None:
    writer = await dfs.create(segment(1))
    await writer.append(segment_bytes(run(1, 2)))
    with pytest.raises(LeaseNotRecovered) as refused:
        await read_frames(dfs, LAYOUT, 2)
    assert refused.value.fields["file"] == segment(1)
    await writer.close()


async def test_damage_is_named_and_a_torn_tail_is_cut(dfs: Dfs) -> None:
    frames = run(1, 4)
    whole = segment_bytes(frames)
    torn = segment_bytes(frames[:3], zeros=0) + frames[3].data[:-5]
    await closed_segment(dfs, segment(1), torn)
    assert await read_frames(dfs, LAYOUT, 2) == frames[:3]
    await dfs.delete(segment(1))
    damaged = bytearray(whole)
    damaged[len(segment_bytes(frames[:1], zeros=0)) + 70] ^= 1
    await closed_segment(dfs, segment(1), bytes(damaged))
    with pytest.raises(DamagedLog) as error:
        await read_frames(dfs, LAYOUT, 2)
    assert error.value.fields["file"] == segment(1)


async def test_a_segment_in_the_wrong_folder_is_damage(dfs: Dfs) -> None:
    await closed_segment(dfs, segment(1), segment_bytes(run(1, 2, epoch=2), epoch=2))
    with pytest.raises(DamagedLog, match="wrong folder"):
        await read_frames(dfs, LAYOUT, 2)


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


async def test_copies_of_an_older_epoch_are_read_too(dfs: Dfs) -> None:
    copies, start = run(3, 2), a_frame(5, epoch=2, committed=4)
    await closed_segment(dfs, segment(2), segment_bytes([*copies, start], epoch=2))
    assert await read_frames(dfs, LAYOUT, 3) == [*copies, start]
