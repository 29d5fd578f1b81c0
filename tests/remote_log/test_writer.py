"""The remote writer: order, groups, pipelining, rolling, and above all what it does when the DFS fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from remote_log.claims import claim, fence, read_frames
from storage.errors import DfsError, Fenced, LeaseLost, Unavailable
from storage.frame import Frame
from storage.segment import HEADER_BYTES, scan_segment, wal_name
from tests.remote_log.memory_dfs import Fault, MemoryDfs, MemoryDisk
from tests.remote_log.remote_rig import LAYOUT, JumpingClock, NotingWriter, SlowDfs, content_of, turns, until
from tests.storage.log_frames import a_frame, run

Make = Callable[..., NotingWriter]


@pytest.fixture
def dfs() -> MemoryDfs:
    return MemoryDfs()


@pytest.fixture
async def make(dfs: MemoryDfs) -> AsyncIterator[Make]:
    """Writers that are closed at the end."""
    made: list[NotingWriter] = []

    def build(**settings: Any) -> NotingWriter:
        made.append(NotingWriter(dfs, **settings))
        return made[-1]

    yield build
    dfs.down = False
    for fault in dfs.faults.values():
        if fault.gate is not None:
            fault.gate.set()
    for writer in made:
        await writer.close()


@pytest.fixture(autouse=True)
async def nothing_is_raised_into_the_event_loop() -> AsyncIterator[None]:
    """Callbacks and tasks raise there; nobody would see it."""
    raised: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: raised.append(context))
    yield
    assert raised == []


def held(dfs: MemoryDfs) -> dict[str, list[int]]:
    """Segment number -> first sequences of its frames, as a reader finds them."""
    return {
        path[-6:]: [frame.first_seq for frame in scan_segment(bytes(file.data), path).frames]
        for path, file in sorted(dfs.disk.files.items()) if "/claims/" not in path
    }


def path_of(n: int) -> str:
    return LAYOUT.segment(1, wal_name(1, 1), n)


async def submit_all(writer: NotingWriter, frames: list[Frame]) -> None:
    """Each in a turn of its own, so that each may become an append of its own."""
    for frame in frames:
        writer.submit(frame)
        await asyncio.sleep(0)


# ---- opening
async def test_open_creates_then_lists_claims_then_writes(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1, run(1, 3))
    assert [operation for operation, _ in dfs.log] == ["create", "list", "append", "append"]
    assert held(dfs) == {"000000": [1, 2, 3]}
    assert writer.synced == [(3, 1000.0)]


async def test_open_without_frames_makes_the_header_durable_and_reports_nothing(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(40)
    scan = scan_segment(bytes(dfs.disk.files[path_of(0)].data), path_of(0))
    assert scan.header is not None
    assert (scan.header.epoch, scan.header.first_seq, scan.header.wal) == (1, 40, wal_name(1, 1))
    assert writer.synced == []


async def test_copies_of_an_older_epoch_are_durable_before_a_frame_that_attests_them(dfs: MemoryDfs) -> None:
    """Else a torn copy with the sound start frame behind it would look like damage."""
    copies, start = run(5, 2, epoch=1), a_frame(7, epoch=2, committed=6)
    writer = NotingWriter(dfs, epoch=2)
    dfs.faults["append", 3] = Fault(gate=asyncio.Event())
    opening = asyncio.create_task(writer.open(7, [*copies, start]))
    await until(lambda: dfs.calls["append"] == 3)
    path = LAYOUT.segment(2, wal_name(2, 1), 0)
    assert scan_segment(bytes(dfs.disk.files[path].data), path).frames == copies
    opening.cancel()
    await asyncio.wait([opening])
    dfs.faults["append", 3].gate.set()  # type: ignore[union-attr]
    await writer.close()


async def test_open_under_a_higher_claim_writes_nothing(dfs: MemoryDfs, make: Make) -> None:
    await claim(dfs, LAYOUT, 2, content_of("other"))
    with pytest.raises(Fenced):
        await make().open(1, run(1, 3))
    assert dfs.calls["append"] == 0


async def test_open_fails_with_the_dfs_and_can_be_called_again(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    for operation in ("create", "list", "append"):
        dfs.faults[operation, dfs.calls[operation] + 1] = Fault(DfsError("no"))
        with pytest.raises(DfsError, match="no"):
            await writer.open(1, run(1, 3))
        assert writer.unsynced().frames == 0
    await writer.open(1, run(1, 3))
    assert held(dfs)["000002"] == [1, 2, 3]


async def test_a_second_writer_of_the_same_epoch_takes_the_next_number(dfs: MemoryDfs, make: Make) -> None:
    first, second = make(), make()
    await first.open(1, run(1, 1))
    await second.open(2, run(2, 1))
    assert held(dfs) == {"000000": [1], "000001": [2]}


async def test_trouble_of_one_writer_does_not_close_the_segment_of_another(dfs: MemoryDfs, make: Make) -> None:
    first, second = make(), make()
    await first.open(1)
    await second.open(1)
    dfs.faults["append", dfs.calls["append"] + 1] = Fault(DfsError("no"))
    second.submit(a_frame(1))
    await until(lambda: second.synced_seq == 1)
    assert not dfs.disk.files[path_of(0)].closed


# ---- the hot path
async def test_what_is_submitted_in_one_turn_goes_in_one_append(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    for frame in run(1, 5):
        writer.submit(frame)
    await until(lambda: writer.synced_seq == 5)
    assert dfs.calls["append"] == 2, "the header and one group"
    assert writer.synced == [(5, 1000.0)]


async def test_appends_overlap_up_to_the_limit_and_the_rest_is_grouped(dfs: MemoryDfs, make: Make) -> None:
    writer = make(in_flight_max=3)
    await writer.open(1)
    gate = asyncio.Event()
    dfs.faults["append", 2] = Fault(gate=gate)
    await submit_all(writer, run(1, 20))
    assert writer.unsynced().frames == 20
    gate.set()
    await until(lambda: writer.synced_seq == 20)
    assert [seq for seq, _ in writer.synced] == [1, 2, 3, 20]
    assert held(dfs) == {"000000": list(range(1, 21))}


async def test_the_proof_is_as_of_the_start_of_the_append(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1)
    gate = asyncio.Event()
    dfs.faults["append", 2] = Fault(gate=gate)
    writer.submit(a_frame(1))
    await turns(5)
    writer.clock.now_s += 7
    assert writer.unsynced().age_s == 7
    gate.set()
    await until(lambda: writer.synced_seq == 1)
    assert writer.synced == [(1, 1000.0)]
    assert writer.unsynced() == type(writer.unsynced())(0, 0, 0.0)


# ---- rolling
async def test_full_segments_roll_and_each_header_names_its_first_frame(dfs: MemoryDfs, make: Make) -> None:
    writer = make(segment_bytes=1000)
    await writer.open(1)
    await submit_all(writer, run(1, 100))
    await until(lambda: writer.synced_seq == 100)
    await until(lambda: sum(not segment.closed for segment in writer.segments) <= 2)
    found = held(dfs)
    assert len(found) > 3
    assert [seq for seqs in found.values() for seq in seqs] == list(range(1, 101))
    for segment in writer.segments:
        data = bytes(dfs.disk.files[segment.path].data)
        assert segment.closed == dfs.disk.files[segment.path].closed
        if scan := scan_segment(data, segment.path).frames:
            header = scan_segment(data, segment.path).header
            assert header is not None
            assert header.first_seq == segment.first_seq == scan[0].first_seq
            assert (segment.last_seq, segment.bytes) == (scan[-1].last_seq, len(data))


async def test_a_segment_rolls_under_the_name_of_the_wal_segment_of_the_time(dfs: MemoryDfs, make: Make) -> None:
    writer = make(segment_bytes=300)
    await writer.open(1)
    writer.wal_index = 2
    await submit_all(writer, run(1, 30))
    await until(lambda: writer.synced_seq == 30)
    assert LAYOUT.segment(1, wal_name(1, 2), 1) in dfs.disk.files


async def test_a_next_segment_that_cannot_be_made_holds_nothing_up(dfs: MemoryDfs, make: Make) -> None:
    writer = make(segment_bytes=300)
    await writer.open(1)
    for n in range(2, 5000):
        dfs.faults["create", n] = Fault(DfsError("no new files today"))
    await submit_all(writer, run(1, 50))
    await until(lambda: writer.synced_seq == 50)
    assert held(dfs) == {"000000": list(range(1, 51))}


async def test_an_old_segment_that_cannot_be_closed_is_recovered(dfs: MemoryDfs, make: Make) -> None:
    writer = make(segment_bytes=300)
    await writer.open(1)
    dfs.faults["close", 1] = Fault(DfsError("no"))
    dfs.faults["recover_lease", 1] = Fault(DfsError("no"))
    await submit_all(writer, run(1, 10))
    await until(lambda: writer.segments[0].closed)
    assert dfs.disk.files[path_of(0)].closed


async def test_frames_wait_for_the_new_header(dfs: MemoryDfs, make: Make) -> None:
    """A header that is torn with a sound frame behind it would look like damage."""
    writer = make(segment_bytes=300)
    await writer.open(1)
    await submit_all(writer, run(1, 3))
    await until(lambda: len(writer.segments) == 2 and writer.synced_seq == 3)
    await turns(20)
    gate = asyncio.Event()
    dfs.faults["append", dfs.calls["append"] + 1] = Fault(gate=gate)
    await submit_all(writer, run(4, 20))
    await turns(20)
    assert dfs.log[-1] == ("append", path_of(1))
    calls = dfs.calls["append"]
    gate.set()
    await until(lambda: writer.synced_seq == 23)
    assert bytes(dfs.disk.files[path_of(1)].data[:HEADER_BYTES]) != bytes(HEADER_BYTES)
    assert dfs.calls["append"] > calls


# ---- failure
@pytest.mark.parametrize("landed", [0.0, 0.5, 1.0])
async def test_after_a_failure_everything_unsynced_is_appended_again(dfs: MemoryDfs, make: Make, landed: float) -> None:
    writer = make()
    await writer.open(1)
    dfs.faults["append", 4] = Fault(DfsError("the pipeline broke"), landed=landed)
    await submit_all(writer, run(1, 8))
    await until(lambda: writer.synced_seq == 8)
    found = held(dfs)
    assert found["000000"] == ([1, 2, 3] if landed == 1 else [1, 2])
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
    """With any call failing now and then, its effect lost, halved or kept: all frames become durable, reports are in order
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
