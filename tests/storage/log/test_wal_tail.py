"""The tail of the log in memory: what it holds and gives, and that its bound is one of memory, also where frames are small."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from storage.invariants import InvariantBroken, watched
from storage.log import wal_tail
from storage.log.frame import Frame
from storage.log.wal_tail import MemoryTail
from tests.planting import planted
from tests.storage.engines.engine_rig import Log, upsert
from tests.storage.log.frames import a_frame, run
from tests.suite.traced import in_own_process, traced
from twinlog.errors import LogGap

MIB = 1 << 20


def _appended(tail: MemoryTail) -> int:
    """Returns the last sequence number of 20,000 small frames."""
    log = Log()
    for _ in range(20_000):
        frame = log.frame(upsert(b"key", b"v" * 20))
        tail.append(frame)
        frame.release_records()
    return log.seq


def _appended_traced() -> tuple[int, int]:
    """Returns what the tail takes, and what it believes that it takes, in bytes."""
    tail = MemoryTail(MIB)
    with traced() as taken:
        _appended(tail)
    return taken.held_bytes, tail.size_bytes


def test_small_frames_stay_within_the_bound() -> None:
    taken, counted = in_own_process(_appended_traced)
    assert MIB / 2 < taken < MIB * 5 / 4
    assert taken * 0.8 < counted <= MIB
    tail = MemoryTail(MIB)
    last = _appended(tail)
    assert tail.reaches(last - 1_000)
    assert not tail.reaches(last - 10_000)


def held(*frames: Frame, bytes_max: int = MIB) -> MemoryTail:
    tail = MemoryTail(bytes_max)
    for frame in frames:
        tail.append(frame)
    return tail


def test_it_holds_what_was_appended_and_gives_what_lies_between_two_frames() -> None:
    frames = run(1, 4, count=2)
    tail = held(*frames)
    assert tail.read(0, 99, MIB) == frames
    assert tail.read(2, 6, MIB) == frames[1:3]
    assert tail.read(2, 7, MIB) == frames[1:3]
    assert tail.read(8, 99, MIB) == []
    assert tail.read(2, 99, 1) == frames[1:2]
    assert (tail.reaches(0), held(*frames[1:]).reaches(2), held(*frames[1:]).reaches(1)) == (True, True, False)
    assert not held().reaches(5)


def test_a_sequence_within_a_frame_is_the_end_of_none() -> None:
    frames = run(1, 3, count=2)
    tail = held(*frames)
    assert [tail.frame_at(seq) for seq in range(8)] == [None, None, frames[0], None, frames[1], None, frames[2], None]
    with pytest.raises(LogGap, match="no frame ends at sequence 3"):
        tail.read(3, 99, MIB)


@pytest.mark.parametrize("next_frame", [a_frame(7, previous=6), a_frame(9, previous=2, epoch=2)], ids=["a hole", "a cut"])
def test_a_frame_that_does_not_link_empties_it(next_frame: Frame) -> None:
    tail = held(*run(1, 4), next_frame)
    assert tail.frame_at(3) is None
    assert not tail.reaches(next_frame.previous - 1)
    assert tail.read(next_frame.previous, 99, MIB) == [next_frame]


def test_what_failed_leaves_and_frees_its_room() -> None:
    frames = run(1, 9)
    unit = len(frames[0].data) + 300
    tail = held(*frames, bytes_max=10 * unit)
    tail.forget_after(7)
    assert tail.read(0, 99, MIB) == frames[:7]
    for seq in (10, 11, 12):
        tail.append(a_frame(seq, previous=7 if seq == 10 else None, value=b""))
    assert tail.reaches(0)
    tail.append(a_frame(13, value=b""))
    assert not tail.reaches(0)
    assert tail.reaches(1)


def test_the_newest_frame_stays_however_large_it_is() -> None:
    frames = run(1, 2)
    assert held(*frames, bytes_max=1).read(1, 99, MIB) == frames[1:]


@pytest.mark.parametrize(("right", "wrong", "message"), [
    ("keep = max(self._start, bisect_right(self._seqs, seq))", "keep = max(self._start, bisect_right(self._seqs, seq + 1))",
     "frames above 4 were taken back"),
    ("        self._bytes -= sum(len(frame.data) + _OBJECT_BYTES for frame in self._frames[keep:] if frame is not None)\n", "",
     "bytes of memory"),
])
def test_a_planted_mistake_is_seen_when_frames_are_taken_back(right: str, wrong: str, message: str) -> None:
    for module, broken in ((wal_tail, False), (planted(wal_tail, right, wrong), True)):
        tail = module.MemoryTail(MIB)
        for frame in run(1, 6):
            tail.append(frame)
        with watched() as seen, pytest.raises(InvariantBroken, match=message) if broken else nullcontext():
            tail.forget_after(4)
        assert len(seen) == broken
