"""Trimming the remote log: only what the peer holds, only what is closed, and nothing forgotten."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from remote_log.dfs.port import DfsEntry
from remote_log.fencing.claims import claimed_epochs
from remote_log.fencing.reading import missing_from
from remote_log.writing.segments import RemoteSegment
from remote_log.writing.trimmer import Trimmer
from storage.log.segment import wal_name
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs
from tests.remote_log.writing.remote_rig import LAYOUT, Kept, NotingWriter, Now, turns, until
from tests.storage.log.frames import run, segment_bytes
from twinlog.errors import DfsError, LogGap, SyncFailed


def segment(epoch: int, n: int = 0) -> str:
    return LAYOUT.segment(epoch, wal_name(epoch, 1), n)


async def leave(dfs: MemoryDfs, path: str, data: bytes, *, closed: bool = True) -> None:
    writer = await dfs.create(path)
    await writer.append(data)
    if closed:
        await writer.close()


async def rolled_writer(dfs: MemoryDfs, epoch: int = 1) -> NotingWriter:
    """Thirty frames over several segments, all closed but the last two (one in use, one made ahead)."""
    writer = NotingWriter(dfs, epoch=epoch, segment_bytes=600)
    await writer.open(1)
    for frame in run(1, 30, epoch=epoch):
        writer.submit(frame)
        await turns(4)
    await until(lambda: writer.synced_seq == 30)
    await turns(60)
    return writer


async def test_only_what_the_peer_holds_goes(dfs: MemoryDfs) -> None:
    writer = await rolled_writer(dfs)
    before = writer.segments
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    assert await trimmer.trim(Now(writer), before[0].first_seq - 1) == []
    assert await trimmer.trim(Now(writer), before[1].last_seq - 1) == [before[0].path]
    assert writer.segments == before[1:]
    assert await trimmer.trim(Now(writer), before[1].last_seq) == [before[1].path]
    assert before[1].path not in dfs.disk.files
    await writer.close()


async def test_an_open_segment_stays_even_when_everything_is_held(dfs: MemoryDfs) -> None:
    writer = await rolled_writer(dfs)
    await Trimmer(dfs, LAYOUT, 1, 10**6, Kept()).trim(Now(writer), 10**9)
    assert writer.segments
    assert not any(segment.closed for segment in writer.segments)
    assert {segment.path for segment in writer.segments} | {LAYOUT.claim(1)} == set(dfs.disk.files)
    for frame in run(31, 5):
        writer.submit(frame)
    await until(lambda: writer.synced_seq == 35)
    await writer.close()


async def test_leftovers_of_older_epochs_go_by_their_frames(dfs: MemoryDfs) -> None:
    await leave(dfs, segment(1), segment_bytes(run(1, 5)))
    await leave(dfs, segment(1, 1), segment_bytes(run(6, 5)))
    await leave(dfs, segment(2), b"")
    await leave(dfs, segment(9), segment_bytes(run(1, 1, epoch=9), epoch=9))
    await dfs.create_file(LAYOUT.claim(2), b"{}")
    writer = NotingWriter(dfs, epoch=3)
    await writer.open(11, run(11, 1, epoch=3))
    trimmer = Trimmer(dfs, LAYOUT, 3, 10**6, Kept())
    assert await trimmer.trim(Now(writer), 9) == [segment(1), segment(2)]
    reads = dfs.calls["read"]
    assert await trimmer.trim(Now(writer), 9) == []
    assert dfs.calls["read"] == reads, "a segment is read once"
    assert await trimmer.trim(Now(writer), 10) == [segment(1, 1)]
    assert set(dfs.disk.files) == {segment(3), segment(9), LAYOUT.claim(3)}
    await writer.close()


async def test_an_open_leftover_of_an_older_epoch_is_closed_first(dfs: MemoryDfs) -> None:
    await leave(dfs, segment(1), b"", closed=False)
    writer = NotingWriter(dfs, epoch=2)
    await writer.open(1)
    trimmer = Trimmer(dfs, LAYOUT, 2, 10**6, Kept())
    for _ in range(3):
        assert await trimmer.trim(Now(writer), 5) == []
    assert await trimmer.trim(Now(writer), 5) == [segment(1)]
    assert dfs.calls["recover_lease"] == 1
    await writer.close()


async def test_an_open_segment_of_another_writer_of_this_epoch_is_left_alone(dfs: MemoryDfs) -> None:
    """It may be just being opened, to take the place of the writer that the trimmer was given."""
    first, second = NotingWriter(dfs), NotingWriter(dfs)
    await first.open(1, run(1, 1))
    await second.open(2, run(2, 1))
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    assert await trimmer.trim(Now(first), 10) == []
    assert dfs.calls["recover_lease"] == 0
    await first.close()
    assert await trimmer.trim(Now(second), 10) == [segment(1)]
    await second.close()


async def test_a_round_ends_at_the_first_error_and_what_failed_comes_last_in_the_next(dfs: MemoryDfs) -> None:
    """A DFS that does not answer costs one deadline, and one segment that cannot be deleted holds up no other."""
    for n in range(4):
        await leave(dfs, segment(1, n), segment_bytes(run(1 + 2 * n, 2)))
    writer = NotingWriter(dfs, epoch=2)
    await writer.open(9)
    trimmer = Trimmer(dfs, LAYOUT, 2, 10**6, Kept())
    for number in (1, 2):
        dfs.faults["delete", number] = Fault(DfsError("not now"))
        with pytest.raises(DfsError, match="not now"):
            await trimmer.trim(Now(writer), 8)
        assert dfs.calls["delete"] == number
    assert await trimmer.trim(Now(writer), 8) == [segment(1, 2), segment(1, 3), segment(1), segment(1, 1)]
    await writer.close()


async def test_a_damaged_segment_ends_no_round(dfs: MemoryDfs) -> None:
    damaged = bytearray(segment_bytes(run(1, 4)))
    damaged[150] ^= 1
    await leave(dfs, segment(1), bytes(damaged))
    await leave(dfs, segment(1, 1), segment_bytes(run(5, 2)))
    trimmer = Trimmer(dfs, LAYOUT, 2, 10**6, Kept())
    await trimmer.trim(Now(), 100)
    assert segment(1) in trimmer.damaged[0]
    assert set(dfs.disk.files) == {segment(1)}


async def test_a_damaged_segment_of_an_older_epoch_goes_when_the_peer_has_the_start_of_this_one(dfs: MemoryDfs) -> None:
    damaged = bytearray(segment_bytes(run(1, 4)))
    damaged[150] ^= 1
    for epoch in (1, 2):
        await leave(dfs, segment(epoch), bytes(damaged))
    trimmer = Trimmer(dfs, LAYOUT, 2, 5, Kept())
    await trimmer.trim(Now(), 4)
    assert len(trimmer.damaged) == 2
    await trimmer.trim(Now(), 5)
    assert len(trimmer.damaged) == 1
    assert set(dfs.disk.files) == {segment(2)}


async def test_what_was_deleted_without_an_answer_is_forgotten(dfs: MemoryDfs) -> None:
    writer = await rolled_writer(dfs)
    first, second = writer.segments[:2]
    dfs.faults["delete", 1] = Fault(DfsError("no answer"), landed=1)
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    with pytest.raises(DfsError):
        await trimmer.trim(Now(writer), first.last_seq)
    assert first.path not in dfs.disk.files
    assert writer.segments[0] == first
    assert await trimmer.trim(Now(writer), first.last_seq) == []
    assert writer.segments[0] == second
    await writer.close()


async def test_what_cannot_be_read_is_kept_and_reported(dfs: MemoryDfs) -> None:
    damaged = bytearray(segment_bytes(run(1, 4)))
    damaged[150] ^= 1
    await leave(dfs, segment(1), bytes(damaged))
    writer = NotingWriter(dfs, epoch=2)
    await writer.open(5)
    trimmer = Trimmer(dfs, LAYOUT, 2, 10**6, Kept())
    await trimmer.trim(Now(writer), 100)
    assert segment(1) in trimmer.damaged[0]
    assert segment(1) in dfs.disk.files
    await writer.close()


async def test_the_frames_of_an_earlier_writer_of_this_epoch_are_not_taken_for_ones_own(dfs: MemoryDfs) -> None:
    """The remote log was switched off and on: the new writer meets the old one's names, and then has trouble of its own."""
    first, second = NotingWriter(dfs), NotingWriter(dfs)
    await first.open(1, run(1, 5))
    await first.close()
    dfs.faults["create", 2] = Fault(DfsError("no"))
    with pytest.raises(DfsError):
        await second.open(6)
    await second.open(6)
    dfs.faults["append", dfs.calls["append"] + 1] = Fault(DfsError("no"))
    second.submit(run(6, 1)[0])
    await until(lambda: second.synced_seq == 6)
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    assert segment(1) not in await trimmer.trim(Now(second), 4)
    assert segment(1) in await trimmer.trim(Now(second), 5)
    await second.close()


async def test_a_file_that_a_lost_answer_left_goes_too(dfs: MemoryDfs) -> None:
    writer = NotingWriter(dfs)
    await writer.open(1)
    dfs.faults["append", 2] = Fault(DfsError("no"))
    dfs.faults["create", 2] = Fault(DfsError("the answer was lost"), landed=1)
    writer.submit(run(1, 1)[0])
    await until(lambda: writer.synced_seq == 1)
    assert await Trimmer(dfs, LAYOUT, 1, 10**6, Kept()).trim(Now(writer), 1) == [segment(1), segment(1, 1)]
    assert set(dfs.disk.files) == {segment(1, 2), LAYOUT.claim(1)}
    await writer.close()


async def test_without_a_writer_all_that_the_peer_holds_goes(dfs: MemoryDfs) -> None:
    """Degraded: the writer that is gone closed some of its segments, and could not close the last."""
    await leave(dfs, segment(1), segment_bytes(run(1, 5)))
    await leave(dfs, segment(2), segment_bytes(run(6, 5, epoch=2), epoch=2))
    await leave(dfs, segment(2, 1), segment_bytes(run(11, 5, epoch=2), epoch=2), closed=False)
    trimmer = Trimmer(dfs, LAYOUT, 2, 10**6, Kept())
    assert await trimmer.trim(Now(), 9) == [segment(1)]
    for _ in range(3):
        await trimmer.trim(Now(), 14)
    assert set(dfs.disk.files) == {segment(2, 1)}
    assert dfs.calls["recover_lease"] == 1
    assert await trimmer.trim(Now(), 15) == [segment(2, 1)]
    assert not dfs.disk.files


async def test_a_segment_with_a_header_stays_while_the_next_cannot_be_begun(dfs: MemoryDfs) -> None:
    """A takeover that comes now must not think that the remote log was taken away."""
    writer = NotingWriter(dfs)
    await writer.open(1, run(1, 3))
    gate = asyncio.Event()
    dfs.faults["append", 3] = Fault(DfsError("no"))  # frames 4, of which the local log knows nothing any more
    dfs.faults["append", 4] = Fault(gate=gate)  # the header of the next segment
    writer.submit(run(4, 1)[0])
    await until(lambda: dfs.calls["append"] == 4)
    assert [info.closed for info in writer.segments] == [True, False]
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    assert await trimmer.trim(Now(writer), 10) == []
    assert await missing_from(dfs, LAYOUT, 1) is None
    gate.set()
    await until(lambda: writer.synced_seq == 4)
    assert await trimmer.trim(Now(writer), 10) == [segment(1)]
    assert await missing_from(dfs, LAYOUT, 1) is None
    await writer.close()


async def test_a_segment_with_a_header_and_no_frame_stays_while_the_next_cannot_be_begun(dfs: MemoryDfs) -> None:
    """Its first append could not even be called. A takeover that comes now must find the remote log all the same."""
    writer = NotingWriter(dfs)
    await writer.open(1)
    gate = asyncio.Event()
    dfs.faults["append", 2] = Fault(gate=gate)  # the header of the next segment
    current = writer._segment
    assert current is not None
    assert current.writer is not None

    def broken(data: bytes) -> None:
        raise RuntimeError("no")

    current.writer.append = broken  # type: ignore[assignment, method-assign]
    writer.submit(run(1, 1)[0])
    await until(lambda: dfs.calls["append"] == 2)
    first, second = writer.segments
    assert (first.begun, first.closed, first.last_seq, second.begun) == (True, True, 0, False)
    assert await Trimmer(dfs, LAYOUT, 1, 10**6, Kept()).trim(Now(writer), 10) == []
    assert await missing_from(dfs, LAYOUT, 1) is None
    gate.set()
    await until(lambda: writer.synced_seq == 1)
    await writer.close()


async def test_a_segment_that_is_made_ahead_during_the_round_stays(dfs: MemoryDfs) -> None:
    """It is on the DFS when the round lists, and its writer knows of it only when its turn comes."""
    await leave(dfs, segment(1), segment_bytes(run(1, 5)))
    writer = NotingWriter(dfs, epoch=2)
    await writer.open(6, run(6, 1, epoch=2))
    ahead, known = segment(2, 7), writer._segments.known
    file = await MemoryDfs(dfs.disk).create(ahead)
    deleted = dfs.delete

    async def delete(path: str) -> None:
        await deleted(path)
        known.append(RemoteSegment(ahead, wal_name(2, 1)))  # the answer to its creation arrives

    dfs.delete = delete  # type: ignore[method-assign]
    assert await Trimmer(dfs, LAYOUT, 2, 6, Kept()).trim(Now(writer), 5) == [segment(1)]
    assert ahead in dfs.disk.files
    await file.close()
    await writer.close()


async def test_a_round_costs_two_listings_whatever_there_is(dfs: MemoryDfs) -> None:
    await leave(dfs, segment(2), segment_bytes(run(1, 5, epoch=2), epoch=2))
    for epoch in range(1, 40):
        await dfs.create_file(LAYOUT.claim(epoch), b"{}")
    writer = await rolled_writer(dfs, epoch=40)
    trimmer = Trimmer(dfs, LAYOUT, 40, 10**6, Kept())
    await trimmer.trim(Now(writer), 3)
    before = dict(dfs.calls)
    assert len(writer.segments) > 4
    await trimmer.trim(Now(writer), 3)
    assert dfs.calls == before | {"list": before["list"] + 3}, "the folder of each epoch in which something is kept"
    await trimmer.trim(Now(writer), 10**9)
    before = dict(dfs.calls)
    await trimmer.trim(Now(writer), 10**9)
    assert dfs.calls == before | {"list": before["list"] + 2}
    await writer.close()


async def test_an_open_segment_is_not_taken_for_one_left_behind_while_a_writer_is_being_made(dfs: MemoryDfs) -> None:
    """Not even when the making began after the round: it is asked in the step that would recover its lease."""
    gate = asyncio.Event()
    dfs.faults["is_closed", 1] = Fault(gate=gate)
    writer, writers = NotingWriter(dfs), Now()
    await writer.open(1)
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    trimming = asyncio.ensure_future(trimmer.trim(writers, 5))
    await until(lambda: dfs.calls["is_closed"] == 1)
    writers.making_remote = True
    gate.set()
    assert await trimming == []
    assert dfs.calls["recover_lease"] == 0
    writers.making_remote = False
    assert await trimmer.trim(writers, 5) == []
    assert dfs.calls["recover_lease"] == 1
    await writer.close()


async def test_the_newest_segment_of_a_writer_that_came_during_the_round_stays(dfs: MemoryDfs) -> None:
    """A takeover that comes now must not think that the remote log was taken away."""
    writer, writers = NotingWriter(dfs), Now(making_remote=True)
    await writer.open(1, run(1, 3))
    gate, rolling = asyncio.Event(), asyncio.Event()
    dfs.faults["is_closed", 1] = Fault(gate=gate)
    trimming = asyncio.ensure_future(Trimmer(dfs, LAYOUT, 1, 10**6, Kept()).trim(writers, 10))
    await until(lambda: dfs.calls["is_closed"] == 1)
    writers.remote, writers.making_remote = writer, False
    dfs.faults["append", 3] = Fault(DfsError("no"))
    dfs.faults["append", 4] = Fault(gate=rolling)  # the header of the next segment
    writer.submit(run(4, 1)[0])
    await until(lambda: dfs.calls["append"] == 4)
    gate.set()
    assert await trimming == []
    assert await missing_from(dfs, LAYOUT, 1) is None
    rolling.set()
    await writer.close()


async def test_a_name_that_is_given_again_is_another_file(dfs: MemoryDfs) -> None:
    """The deletion was not answered, the remote log was switched on, and off again before its next round."""
    await leave(dfs, segment(1), segment_bytes(run(1, 5)))
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    dfs.faults["delete", 1] = Fault(DfsError("no answer"), landed=1)
    with pytest.raises(DfsError):
        await trimmer.trim(Now(), 5)
    await leave(dfs, segment(1), segment_bytes(run(6, 5)))
    assert await trimmer.trim(Now(), 5) == []
    assert segment(1) in dfs.disk.files


async def test_what_was_made_and_closed_while_the_listing_was_on_its_way_is_not_forgotten(dfs: MemoryDfs) -> None:
    writer = NotingWriter(dfs, segment_bytes=600)
    await writer.open(1)
    listed, list_now, looks = asyncio.Event(), dfs.list, itertools.count()

    async def list_late(folder: str) -> list[DfsEntry]:
        entries = await list_now(folder)
        if folder == LAYOUT.epoch_folder(1) and not next(looks):  # the trimmer's; the writer looks, too
            await listed.wait()
        return entries

    dfs.list = list_late  # type: ignore[method-assign]
    trimming = asyncio.ensure_future(Trimmer(dfs, LAYOUT, 1, 10**6, Kept()).trim(Now(writer), 0))
    await turns(10)
    for frame in run(1, 20):
        writer.submit(frame)
        await turns(4)
    await until(lambda: writer.synced_seq == 20)
    await turns(60)
    before = writer.segments
    assert sum(segment.closed for segment in before) > 1
    listed.set()
    await trimming
    assert writer.segments == before
    await writer.close()


@pytest.mark.parametrize("which", [0, -1])
async def test_a_segment_that_nobody_deleted_and_is_gone_is_an_error(dfs: MemoryDfs, which: int) -> None:
    """That DFS went back to an earlier state: what it lost is in the WAL only. An idle pair makes no segment for hours."""
    writer = NotingWriter(dfs, segment_bytes=600)
    await writer.open(1)
    for frame in run(1, 20):
        writer.submit(frame)
        await turns(4)
    await until(lambda: writer.synced_seq == 20 and writer.segments[0].closed)
    trimmer = Trimmer(dfs, LAYOUT, 1, 10**6, Kept())
    assert await trimmer.trim(Now(writer), 0) == []
    del dfs.disk.files[writer.segments[which].path]
    with pytest.raises(LogGap, match="went back to an earlier state"):
        await trimmer.trim(Now(writer), 0)
    await writer.close()


async def test_only_claims_below_ones_own_go_and_only_with_a_writer(dfs: MemoryDfs) -> None:
    for epoch in (1, 2, 3, 5):
        await dfs.create_file(LAYOUT.claim(epoch), b"{}")
    trimmer = Trimmer(dfs, LAYOUT, 3, 10**6, Kept())
    await trimmer.trim(Now(), 0)
    assert await claimed_epochs(dfs, LAYOUT) == [1, 2, 3, 5]
    writer = NotingWriter(dfs, epoch=3)
    await trimmer.trim(Now(writer), 0)
    assert await claimed_epochs(dfs, LAYOUT) == [3, 5]
    await dfs.create_file(LAYOUT.claim(4), b"{}")
    gone = Trimmer(dfs, LAYOUT, 6, 10**6, Kept())
    with pytest.raises(DfsError, match="is gone"):
        await gone.trim(Now(writer), 0)
    assert await claimed_epochs(dfs, LAYOUT) == [3, 4, 5]


@pytest.fixture
def dfs() -> MemoryDfs:
    return MemoryDfs()


async def test_the_newest_segment_with_a_frame_stays_until_the_next_one_has_one(dfs: MemoryDfs) -> None:
    """A storage or a WAL that is put back from an older copy shows by that frame that it does not reach so far."""
    writer = NotingWriter(dfs)
    await writer.open(1, run(1, 5))
    failing = asyncio.Event()
    dfs.faults["append", 3] = Fault(DfsError("no"), gate=failing)
    writer.submit(run(6, 1)[0])
    await until(lambda: dfs.calls["append"] == 3)
    writer.drop_after(5)  # it failed in the WAL, too
    failing.set()
    await until(lambda: len(writer.segments) == 2 and writer.segments[1].begun)
    first, second = writer.segments
    assert first.closed
    assert second.last_seq < second.first_seq
    trimmer = Trimmer(dfs, LAYOUT, 1, 1, Kept())
    assert await trimmer.trim(Now(writer), 6) == []
    writer.submit(run(7, 1)[0])
    await until(lambda: writer.synced_seq == 7)
    assert await trimmer.trim(Now(writer), 6) == [first.path]
    await writer.close()


async def test_what_the_history_has_cut_is_kept_aside_before_it_is_deleted(dfs: MemoryDfs) -> None:
    """This site opened without the remote log, on an older copy of its disk: nobody else may have these frames."""
    await leave(dfs, segment(1), segment_bytes(run(1, 5)))
    await leave(dfs, segment(1, 1), segment_bytes(run(6, 5)))
    aside = Kept({1: 7})
    trimmer = Trimmer(dfs, LAYOUT, 2, 8, aside)
    aside.failure = SyncFailed("the disk is full")
    for _ in range(2):
        with pytest.raises(SyncFailed):
            await trimmer.trim(Now(), 100)
    assert set(dfs.disk.files) == {segment(1), segment(1, 1)}
    aside.failure = None
    assert await trimmer.trim(Now(), 100) == [segment(1), segment(1, 1)]
    assert [frame.first_seq for frame in aside.cut] == [8, 9, 10]


async def test_what_is_kept_aside_does_not_wait_for_the_peer(dfs: MemoryDfs) -> None:
    await leave(dfs, segment(1), segment_bytes(run(1, 5)))
    aside = Kept({1: 3})
    trimmer = Trimmer(dfs, LAYOUT, 2, 4, aside)
    for _ in range(2):
        assert await trimmer.trim(Now(), 0) == []
    assert [frame.first_seq for frame in aside.cut] == [4, 5]


async def test_a_damaged_segment_is_kept_aside_before_it_goes(dfs: MemoryDfs) -> None:
    damaged = bytearray(segment_bytes(run(1, 4)))
    damaged[150] ^= 1
    await leave(dfs, segment(1), bytes(damaged))
    aside = Kept()
    assert await Trimmer(dfs, LAYOUT, 2, 5, aside).trim(Now(), 5) == [segment(1)]
    assert aside.damaged == {segment(1): bytes(damaged)}


async def test_claims_stay_as_long_as_a_damaged_segment_of_an_older_epoch(dfs: MemoryDfs) -> None:
    """Whoever looks into the damage finds in the claims whose epochs these were."""
    damaged = bytearray(segment_bytes(run(1, 4)))
    damaged[150] ^= 1
    await leave(dfs, segment(1), bytes(damaged))
    for epoch in (1, 2):
        await dfs.create_file(LAYOUT.claim(epoch), b"{}")
    trimmer, writer = Trimmer(dfs, LAYOUT, 2, 50, Kept()), NotingWriter(dfs, epoch=2)
    await trimmer.trim(Now(writer), 49)
    assert await claimed_epochs(dfs, LAYOUT) == [1, 2]
    await trimmer.trim(Now(writer), 50)
    assert await claimed_epochs(dfs, LAYOUT) == [2]
