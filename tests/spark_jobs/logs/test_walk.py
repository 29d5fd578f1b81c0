"""Walking along a segment: nothing stops it, what is whole is found, what is not is torn or damaged as for readers."""

from __future__ import annotations

import crc32c
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.logs.files import Segment
from spark_jobs.logs.walk import DAMAGED, EPOCH, MISPLACED, TORN, UNREADABLE, Mark, Walk, walk
from storage.log.frame import Flags, Frame, make_frame, parse_frame
from storage.log.record import EpochStart, Record, RecordKind
from storage.log.segment import HEADER_BYTES, SegmentScan, remote_name, scan_segment, wal_name
from tests.storage.log.frames import a_frame, run, segment_bytes
from twinlog.errors import DamagedLog

NAME = wal_name(1, 1)
REMOTE = remote_name(NAME, 1)
SEGMENT = Segment(NAME, 0, 1, NAME, 0)
FRAMES = run(1, 12, count=2)


def walked(data: bytes) -> Walk:
    return walk(data, f"/wal/{NAME}", SEGMENT)


def seqs(found: Walk) -> list[int]:
    return [int(seq) for seq in found.frames["seq"]]


def begin(number: int) -> int:
    """Offset of frame `number`."""
    return HEADER_BYTES + sum(len(frame.data) for frame in FRAMES[:number])


def flipped(data: bytes, place: int, bit: int = 0) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 1 << bit
    return bytes(changed)


def test_a_whole_segment_has_its_frames_and_no_mark() -> None:
    found = walked(segment_bytes(FRAMES))
    assert seqs(found) == [frame.first_seq for frame in FRAMES]
    assert found.offsets.tolist() == [begin(number) for number in range(len(FRAMES))]
    assert found.marks == []
    assert found.end == begin(len(FRAMES))


def test_behind_a_damaged_frame_the_walk_goes_on_and_the_mark_names_what_is_lost() -> None:
    found = walked(flipped(segment_bytes(FRAMES), begin(4) + 70))
    assert seqs(found) == [frame.first_seq for number, frame in enumerate(FRAMES) if number != 4]
    (mark,) = found.marks
    assert mark[:6] == (DAMAGED, begin(4), begin(5), 1, FRAMES[4].first_seq, FRAMES[4].last_seq)


def test_two_damaged_places_are_two_marks() -> None:
    data = flipped(flipped(segment_bytes(FRAMES), begin(2) + 65), begin(7) + 3)
    marks = walked(data).marks
    assert [(mark.kind, mark.offset) for mark in marks] == [(DAMAGED, begin(2)), (DAMAGED, begin(7))]


def test_a_damaged_length_is_found_by_the_next_frame() -> None:
    (mark,) = walked(flipped(segment_bytes(FRAMES), begin(3) + 52)).marks
    assert (mark.kind, mark.offset, mark.end) == (DAMAGED, begin(3), begin(4))


def test_a_damaged_segment_header_leaves_its_frames() -> None:
    found = walked(flipped(segment_bytes(FRAMES), 20))
    assert seqs(found) == [frame.first_seq for frame in FRAMES]
    assert [(mark.kind, mark.offset, mark.end, mark.last_seq) for mark in found.marks] == [(DAMAGED, 0, HEADER_BYTES, -1)]


@pytest.mark.parametrize("left", [1, 40, 61])
def test_a_torn_tail_is_torn(left: int) -> None:
    data = segment_bytes(FRAMES, zeros=0)[: begin(11) + left] + bytes(500)
    found = walked(data)
    assert seqs(found) == [frame.first_seq for frame in FRAMES[:11]]
    assert [(mark.kind, mark.offset, mark.seq) for mark in found.marks] == [(TORN, begin(11), FRAMES[11].first_seq)]


def test_frames_behind_a_tear_that_attest_nothing_were_never_durable() -> None:
    frames = [a_frame(seq) for seq in range(1, 6)]  # as if written at one time: none says that another was committed
    data = segment_bytes(frames)
    found = walked(flipped(data, HEADER_BYTES + 2 * len(frames[0].data) + 62))
    assert seqs(found) == [1, 2]
    assert [mark.kind for mark in found.marks] == [TORN]


@pytest.mark.parametrize("data", [b"", bytes(4096), segment_bytes(FRAMES)[:30] + bytes(100)])
def test_a_file_in_which_nothing_was_ever_begun_is_no_damage(data: bytes) -> None:
    found = walked(data)
    assert len(found.frames) == 0
    assert all(mark.kind == TORN for mark in found.marks)


def test_a_file_under_another_name_is_said() -> None:
    other = Segment(wal_name(2, 9), 0, 2, wal_name(2, 9), 0)
    (mark,) = walk(segment_bytes(FRAMES), f"/wal/{other.name}", other).marks
    assert mark.kind == MISPLACED
    assert NAME in mark.detail


def test_a_frame_below_the_headers_first_sequence_is_said() -> None:
    (mark,) = walked(segment_bytes(FRAMES, first_seq=3)).marks
    assert (mark.kind, mark.offset, mark.seq, mark.last_seq) == (MISPLACED, begin(0), 1, 2)


def test_a_format_of_another_release_ends_the_walk_with_a_mark() -> None:
    later = a_frame(25, count=2).data
    data = segment_bytes([*FRAMES, Frame(
        log=0, epoch=1, first_seq=25, count=2, previous=24, timestamp=1, committed=0, flags=0, data=_resealed(later),
    )])
    (mark,) = walked(data).marks
    assert (mark.kind, mark.offset) == (UNREADABLE, begin(12))
    assert "version 7" in mark.detail


def _resealed(data: bytes) -> bytes:
    bare = data[:4] + b"\x07" + data[5:56] + b"\0\0\0\0"
    return bare[:56] + crc32c.crc32c(data[60:], crc32c.crc32c(bare)).to_bytes(4, "little") + data[60:]


def test_the_start_of_an_epoch_is_marked() -> None:
    value = msgspec.msgpack.encode(EpochStart(1, "b", "takeover", "plan"))
    records = [Record(RecordKind.EPOCH_START, value=value)]
    start = make_frame(epoch=1, first_seq=5, previous=3, timestamp=1, committed=0, records=records)
    found = walked(segment_bytes([start, a_frame(6)], first_seq=1))
    assert found.marks == [Mark(EPOCH, HEADER_BYTES, HEADER_BYTES + len(start.data), 1, 5, 3, "takeover by b")]


@pytest.mark.parametrize("alignment", [1, 512])
@settings(max_examples=300, deadline=None)
@given(source=st.data(), bit=st.integers(0, 7))
def test_readers_and_the_walk_agree_on_every_flip(alignment: int, source: st.DataObject, bit: int) -> None:
    """storage/log/segment.py's scan is what readers take: its frames come first, and damage is what it calls damage."""
    whole = segment_bytes(FRAMES, alignment=alignment)
    places = st.integers(0, len(whole) - 201)
    data = flipped(flipped(whole, source.draw(places), bit), source.draw(places), 7 - bit)
    data = data[: source.draw(st.integers(0, len(whole)))]
    name = NAME if alignment == 1 else REMOTE
    found = walk(data, f"/log/{name}", Segment(name, 0, 1, NAME, 0))
    bad = [mark for mark in found.marks if mark.kind in (DAMAGED, UNREADABLE)]
    scan, damage = _scanned(data, name)
    if scan is None:
        assert (bad[0].kind, bad[0].offset) == (DAMAGED, damage)
    else:
        assert bad == []
        assert seqs(found) == [frame.first_seq for frame in scan.frames]
        assert any(mark.kind == TORN for mark in found.marks) == scan.torn
    sound = {frame.data for frame in FRAMES}
    for at in found.offsets.tolist():
        assert parse_frame(data, at).data in sound
    assert all(end % alignment == 0 for end in found.ends)


@pytest.mark.parametrize(("place", "offset"), [(-1, "end"), (0, "end"), (100, "header")])
def test_padding_that_is_not_zero_is_marked_and_the_frames_behind_are_found(place: int, offset: str) -> None:
    data = segment_bytes(FRAMES, alignment=512)
    end = 512 + len(FRAMES[0].data)
    at, marked = (place, 0) if offset == "header" else ((end if place == 0 else 1023), end)
    found = walk(flipped(data, at), f"/log/{REMOTE}", Segment(REMOTE, 0, 1, NAME, 0))
    assert seqs(found) == [frame.first_seq for frame in FRAMES]
    assert [(mark.kind, mark.offset, mark.last_seq < mark.seq) for mark in found.marks] == [(DAMAGED, marked, True)]


def _scanned(data: bytes, name: str) -> tuple[SegmentScan | None, object]:
    """Returns the scan of the product's readers, or the place where they find damage."""
    try:
        return scan_segment(data, f"/log/{name}"), None
    except DamagedLog as error:
        return None, error.fields["offset"]


def test_asynchronous_frames_of_a_remote_segment_attest_nothing() -> None:
    name = f"{NAME}.000001"
    remote = Segment(f"000000000001/{name}", 0, 1, NAME, 0)
    frames = [a_frame(seq, committed=seq - 1, flags=Flags.ASYNC) for seq in range(1, 8)]
    data = flipped(segment_bytes(frames), HEADER_BYTES + 62)
    assert [mark.kind for mark in walk(data, f"/dfs/{remote.name}", remote).marks] == [TORN]
    assert [mark.kind for mark in walked(data).marks] == [DAMAGED]
