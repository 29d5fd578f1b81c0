"""The remote writer: opening, order, groups, pipelining, rolling."""

from __future__ import annotations

import asyncio

import pytest

from remote_log.fencing.claims import claim
from storage.log.segment import HEADER_BYTES, scan_segment, wal_name
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs
from tests.remote_log.writing.remote_rig import LAYOUT, NotingWriter, content_of, turns, until
from tests.remote_log.writing.writer_rig import Make, held, path_of, submit_all
from tests.storage.log.frames import a_frame, run
from twinlog.errors import DfsError, Fenced

pytestmark = pytest.mark.usefixtures("nothing_is_raised_into_the_event_loop")


# ---- opening
async def test_open_creates_then_lists_claims_then_writes(dfs: MemoryDfs, make: Make) -> None:
    writer = make()
    await writer.open(1, run(1, 3))
    assert [operation for operation, _ in dfs.log] == ["list", "create", "list", "append", "append"]
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
    for operation, times in (("create", 1), ("list", 1), ("list", 2), ("append", 1)):
        dfs.faults[operation, dfs.calls[operation] + times] = Fault(DfsError("no"))
        with pytest.raises(DfsError, match="no"):
            await writer.open(1, run(1, 3))
        assert writer.unsynced().frames == 0
    await writer.open(1, run(1, 3))
    assert held(dfs)["000002"] == [1, 2, 3]
    assert [segment.closed for segment in writer.segments] == [True, True, False]  # or the trimmer would keep them for ever


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
    assert dfs.calls["recover_lease"] == 0, "a lease recovery in HDFS takes its time: whoever wrote a full segment closes it"
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
