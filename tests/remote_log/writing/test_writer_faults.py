"""The remote writer when the DFS fails, loses answers, or has another writer; and its end."""

from __future__ import annotations

import asyncio
import random

import pytest

from remote_log.dfs.port import DfsEntry
from remote_log.fencing.claims import claim
from remote_log.fencing.fence import fence
from remote_log.fencing.reading import read_frames
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs, MemoryDisk
from tests.remote_log.writing.remote_rig import LAYOUT, JumpingClock, NotingWriter, SlowDfs, content_of, turns, until
from tests.remote_log.writing.writer_rig import Make, held, path_of, submit_all
from tests.storage.log.frames import a_frame, run
from twinlog.errors import DfsError, Fenced, LeaseLost, LogGap, Unavailable

pytestmark = pytest.mark.usefixtures("nothing_is_raised_into_the_event_loop")


# ---- failure
@pytest.mark.parametrize("landed", [0.0, 0.1, 0.5, 1.0])
async def test_after_a_failure_everything_unsynced_is_appended_again(dfs: MemoryDfs, make: Make, landed: float) -> None:
    writer = make()
    await writer.open(1)
    dfs.faults["append", 4] = Fault(DfsError("the pipeline broke"), landed=landed)
    await submit_all(writer, run(1, 8))
    await until(lambda: writer.synced_seq == 8)
    found = held(dfs)
    assert found["000000"] == ([1, 2, 3] if landed >= 0.5 else [1, 2]), "at 0.5 it ends in the padding"
    assert found["000001"] == [3, 4, 5, 6, 7, 8]
    assert [seq for seq, _ in writer.synced] == sorted({seq for seq, _ in writer.synced})
    assert writer.trouble is None


async def test_the_old_segment_is_closed_before_the_new_one_is_made(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    dfs.faults["append", 2] = Fault(DfsError("no"))
    at_create: list[bool] = []
    real = dfs.create

    async def create(path: str):  # type: ignore[no-untyped-def]
        at_create.append(dfs.disk.files[path_of(0)].closed)
        return await real(path)

    dfs.create = create  # type: ignore[method-assign]
    writer.submit(a_frame(1))
    await until(lambda: writer.synced_seq == 1)
    assert at_create == [True]
    assert [segment.closed for segment in writer.segments] == [True, False]


async def test_it_tries_for_ever_with_back_off(dfs: MemoryDfs, make: Make) -> None:
    writer = make(retry_first_s=0.05, retry_max_s=2.0)
    await writer.open(1)
    dfs.down = True
    writer.submit(a_frame(1))
    await until(lambda: len(writer.clock.slept) == 12)
    assert writer.clock.slept[:8] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
    assert isinstance(writer.trouble, DfsError)
    assert writer.unsynced().frames == 1
    assert writer.unsynced().age_s > 8
    writer.submit(a_frame(2))
    dfs.down = False
    await until(lambda: writer.synced_seq == 2)
    assert writer.trouble is None


async def test_there_is_back_off_too_when_only_frames_fail(dfs: MemoryDfs, make: Make) -> None:
    """A full disk takes small headers."""
    writer = make()
    await writer.open(1)
    for n in range(2, 40, 1):
        dfs.faults["append", n] = Fault(DfsError("no space left") if n % 2 == 0 or n < 4 else None)
    writer.submit(a_frame(1))
    await until(lambda: writer.synced_seq == 1)
    waits = [wait for wait in writer.clock.slept if wait >= 0.05]
    assert max(waits) == 2.0


async def test_a_lost_lease_without_a_higher_claim_means_a_new_segment(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1, run(1, 1))
    await fence(MemoryDfs(dfs.disk), LAYOUT, 2, JumpingClock(), 10.0)
    await submit_all(writer, run(2, 3))
    await until(lambda: writer.synced_seq == 4)
    assert held(dfs) == {"000000": [1], "000001": [2, 3, 4]}
    assert not writer.fenced


async def test_a_higher_claim_ends_it_for_good(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1, run(1, 1))
    other = MemoryDfs(dfs.disk)
    await claim(other, LAYOUT, 2, content_of("takeover"))
    await fence(other, LAYOUT, 2, JumpingClock(), 10.0)
    await submit_all(writer, run(2, 3))
    await until(lambda: bool(writer.fenced))
    assert [error.fields for error in writer.fenced] == [{"epoch": 1, "by_epoch": 2}]
    assert writer.synced_seq == 1
    assert held(dfs) == {"000000": [1]}
    with pytest.raises(Fenced):
        writer.submit(a_frame(5))
    await turns(50)
    assert len(writer.fenced) == 1
    assert held(dfs) == {"000000": [1]}


@pytest.mark.parametrize("left", [None, 512, 1024])
@pytest.mark.parametrize("at", ["failure", "roll"])
async def test_a_dfs_that_went_back_ends_it_for_good(dfs: MemoryDfs, make: Make, left: int | None, at: str) -> None:
    """A segment that was closed is gone, or ends earlier: what it had is in the WAL only, and is copied by the next epoch."""
    writer = make(segment_bytes=2000)
    await writer.open(1)
    for number in range(1, 40):
        writer.submit(a_frame(number))
        await until(lambda number=number: writer.synced_seq == number)
    await until(lambda: writer.segments[0].closed)
    first = dfs.disk.files[writer.segments[0].path]
    if left is None:
        del dfs.disk.files[writer.segments[0].path]
    else:
        assert len(first.data) > left
        del first.data[left:]
    if at == "failure":
        dfs.faults["append", dfs.calls["append"] + 1] = Fault(DfsError("the connection broke"))
    for number in range(40, 60):
        if not writer.fenced:
            writer.submit(a_frame(number))
            await turns(40)
    assert [error.code for error in writer.fenced] == ["log-gap"]
    synced = writer.synced_seq
    with pytest.raises(LogGap, match="went back to an earlier state"):
        writer.submit(a_frame(60))
    await turns(100)
    assert writer.synced_seq == synced


async def test_a_segment_that_was_open_and_ends_earlier_ends_it_too(dfs: MemoryDfs, make: Make) -> None:
    """A directory makes zeros ahead of the data: the length of the file that is back says nothing."""
    writer = make()
    await writer.open(1)
    for number in range(1, 9):
        writer.submit(a_frame(number))
        await until(lambda number=number: writer.synced_seq == number)
    (segment,) = writer.segments
    file = dfs.disk.files[segment.path]
    left = len(file.data) - 1024
    del file.data[left:]
    file.data += bytes(64 << 10)
    dfs.faults["append", dfs.calls["append"] + 1] = Fault(DfsError("the connection broke"))
    writer.submit(a_frame(9))
    await until(lambda: writer.fenced != [])
    assert [error.code for error in writer.fenced] == ["log-gap"]


class LateListings(MemoryDfs):
    """The answer to a listing of the segments is held while `free` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.free = asyncio.Event()
        self.free.set()
        self.held = 0

    async def list(self, folder: str) -> list[DfsEntry]:
        entries = await super().list(folder)
        if folder == LAYOUT.epoch_folder(1) and not self.free.is_set():
            self.held += 1
            await self.free.wait()
        return entries


async def test_a_segment_that_is_closed_while_it_is_listed_has_not_gone_back() -> None:
    """The length in the answer is that of an open file, which HDFS does not know yet."""
    dfs = LateListings()
    dfs.faults["close", 1] = Fault(gate=asyncio.Event())
    writer = NotingWriter(dfs, segment_bytes=2000)
    await writer.open(1)
    for number in range(1, 4):
        writer.submit(a_frame(number))
        await until(lambda number=number: writer.synced_seq == number)
    await until(lambda: len(writer.segments) == 2)
    dfs.free.clear()
    for number in range(4, 6):  # they go to the second one, which is soon half full, so that a third one is made ahead
        writer.submit(a_frame(number))
        await until(lambda number=number: writer.synced_seq == number)
    await until(lambda: dfs.held == 1)
    assert not writer.segments[0].closed
    dfs.faults["close", 1].gate.set()
    await until(lambda: writer.segments[0].closed)
    dfs.free.set()
    await until(lambda: len(writer.segments) == 3 or writer.fenced != [])
    assert writer.fenced == []
    await writer.close()


async def test_a_segment_that_the_trimmer_deletes_meanwhile_is_not_missed(dfs: MemoryDfs, make: Make) -> None:
    writer = make(segment_bytes=2000)
    await writer.open(1)
    for number in range(1, 20):
        writer.submit(a_frame(number))
        await until(lambda number=number: writer.synced_seq == number)
    path = writer.segments[0].path
    writer.let_go(path)
    del dfs.disk.files[path]
    dfs.faults["append", dfs.calls["append"] + 1] = Fault(DfsError("the connection broke"))
    writer.submit(a_frame(20))
    await until(lambda: writer.synced_seq == 20)
    assert writer.fenced == []


async def test_a_claim_seen_while_rolling_ends_it_too(dfs: MemoryDfs, make: Make) -> None:
    writer = make(segment_bytes=300)
    await writer.open(1)
    await claim(MemoryDfs(dfs.disk), LAYOUT, 2, content_of("takeover"))
    await submit_all(writer, run(1, 2))
    await until(lambda: bool(writer.fenced))


async def test_a_create_whose_answer_was_lost_leaves_no_open_file(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    dfs.faults["append", 2] = Fault(DfsError("no"))
    dfs.faults["create", 2] = Fault(DfsError("the answer was lost"), landed=1)
    writer.submit(a_frame(1))
    await until(lambda: writer.synced_seq == 1)
    assert held(dfs) == {"000000": [], "000001": [], "000002": [1]}
    assert [path for path, file in dfs.disk.files.items() if not file.closed] == [path_of(2)]
    assert [segment.path for segment in writer.segments] == [path_of(0), path_of(2)], "what is not surely ours is read first"


# ---- local failure
async def test_what_failed_locally_is_not_written_again(dfs: MemoryDfs, make: Make) -> None:
    writer = make(in_flight_max=2)
    await writer.open(1)
    gate = asyncio.Event()
    dfs.faults["append", 2] = Fault(DfsError("no"), gate=gate)
    await submit_all(writer, run(1, 6))
    writer.drop_after(1)
    assert writer.unsynced().frames == 1
    writer.submit(a_frame(7, previous=1))
    gate.set()
    await until(lambda: writer.synced_seq == 7)
    assert held(dfs) == {"000000": [], "000001": [1, 7]}


async def test_frames_dropped_during_the_retry_leave_the_later_ones_in_place(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    gate = asyncio.Event()
    dfs.faults["append", 2] = Fault(DfsError("no"))
    dfs.faults["append", 4] = Fault(gate=gate)
    for frame in run(1, 3):
        writer.submit(frame)
    await until(lambda: dfs.calls["append"] == 4)
    writer.drop_after(1)
    writer.submit(a_frame(4, previous=1))
    gate.set()
    await until(lambda: writer.synced_seq == 4)
    assert held(dfs)["000001"] == [1, 2, 3, 4], "what was on its way landed, and the chain excludes it"
    assert writer.unsynced().frames == 0


# ---- the end
async def test_close_waits_for_what_is_on_its_way_and_closes_the_files(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    gate = asyncio.Event()
    dfs.faults["append", 2] = Fault(gate=gate)
    writer.submit(a_frame(1))
    await turns(5)
    closing = asyncio.create_task(writer.close())
    await turns(5)
    assert not closing.done()
    gate.set()
    await closing
    assert writer.synced_seq == 1
    assert dfs.disk.files[path_of(0)].closed
    with pytest.raises(Unavailable):
        writer.submit(a_frame(2))


async def test_a_close_that_nobody_waits_for_any_more_closes_the_files_too(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    gate = asyncio.Event()
    dfs.faults["append", 2] = Fault(gate=gate)
    writer.submit(a_frame(1))
    await turns(5)
    closing = asyncio.create_task(writer.close())
    await turns(5)
    closing.cancel()
    gate.set()
    await until(lambda: dfs.disk.files[path_of(0)].closed)
    assert closing.cancelled()


async def test_close_in_the_middle_of_trouble_ends(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    dfs.down = True
    writer.submit(a_frame(1))
    await until(lambda: len(writer.clock.slept) > 2)
    await writer.close()
    slept = len(writer.clock.slept)
    await turns(50)
    assert len(writer.clock.slept) == slept


# ---- everything at once
@pytest.mark.parametrize("first", range(0, 200, 50))
async def test_random_faults(first: int) -> None:
    """Any call fails now and then, its effect lost, halved or kept: all frames become durable, reports are in order
    and true when they are made, no reader ever meets damage, and the chain of what is found is whole."""
    reopened = 0
    for seed in range(first, first + 50):
        rng = random.Random(seed)
        dfs = SlowDfs(MemoryDisk(recovery_polls=rng.randint(0, 2)), rng, 3)
        writer = NotingWriter(dfs, segment_bytes=rng.choice((300, 900, 10_000)), in_flight_max=rng.randint(1, 5))
        await writer.open(1)
        for operation in ("append", "append", "append", "create", "list", "recover_lease", "is_closed", "close"):
            dfs.faults[operation, rng.randint(2, 12)] = Fault(
                (LeaseLost if rng.random() < 0.2 else DfsError)("fault"), landed=rng.choice((0, 0.3, 0.7, 1))
            )
        reports = 0
        for frame in run(1, 60):
            writer.submit(frame)
            await turns(rng.randint(0, 4))
            if len(writer.synced) > reports:
                reports = len(writer.synced)
                assert set(range(1, writer.synced_seq + 1)) <= {seq for seqs in held(dfs).values() for seq in seqs}
        await until(lambda writer=writer: writer.synced_seq == 60)  # type: ignore[misc]
        seqs = [seq for seq, _ in writer.synced]
        assert seqs == sorted(set(seqs))
        assert [start for _, start in writer.synced] == sorted(start for _, start in writer.synced)
        await writer.close()
        reopened += len(held(dfs)) > 1
        reader = MemoryDfs(dfs.disk)
        await fence(reader, LAYOUT, 2, JumpingClock(), 60.0)
        assert [frame.first_seq for frame in await read_frames(reader, LAYOUT, 2)] == list(range(1, 61))
    assert reopened > 30
