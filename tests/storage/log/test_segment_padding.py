"""Remote segments: each frame begins at a multiple of 512 bytes; tears within the padding, and padding that is not zero."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.frame import Flags
from storage.log.segment import (
    HEADER_BYTES,
    REMOTE_ALIGNMENT,
    SegmentHeader,
    encode_frames,
    encode_header,
    frames_before_damage,
    parse_header,
    remote_name,
    scan_segment,
    wal_name,
)
from tests.storage.log.frames import a_frame, run, segment_bytes
from twinlog.errors import BrokenHeader, DamagedLog

NAME = remote_name(wal_name(1, 1), 1)


def padded(*sizes: int, lag: int = 1) -> bytes:
    frames = [a_frame(n + 1, committed=max(0, n + 1 - lag), value=b"v" * size) for n, size in enumerate(sizes)]
    return segment_bytes(frames, alignment=REMOTE_ALIGNMENT, zeros=0)


def flipped(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 0x10
    return bytes(changed)


@given(st.integers(0, 16), st.integers(0, 2**64 - 1))
def test_the_header_says_where_frames_begin(bits: int, epoch: int) -> None:
    header = SegmentHeader(0, epoch, 7, wal_name(1, 1), 1 << bits)
    data = encode_header(header)
    assert len(data) == header.begin == max(HEADER_BYTES, 1 << bits)
    assert parse_header(data) == parse_header(data[:HEADER_BYTES]) == header
    assert data[5] == bits, "0, as it always was, where frames follow one another"


@given(st.lists(st.integers(0, 2000), max_size=8))
def test_every_append_begins_at_a_multiple_and_nothing_is_lost(sizes: list[int]) -> None:
    frames = [a_frame(n + 1, value=b"v" * size) for n, size in enumerate(sizes)]
    header = segment_bytes([], alignment=REMOTE_ALIGNMENT, zeros=0)
    parts = [header, *(encode_frames([one], REMOTE_ALIGNMENT) for one in frames)]
    assert all(len(part) % REMOTE_ALIGNMENT == 0 for part in parts)
    data = b"".join(parts)
    assert data == segment_bytes(frames, first_seq=1, alignment=REMOTE_ALIGNMENT, zeros=0)
    scan = scan_segment(data, NAME)
    assert (scan.frames, scan.end, scan.torn) == (frames, len(data), False)


def test_a_tear_at_any_byte_costs_only_the_frame_it_is_in() -> None:
    data, frames = padded(10, 600, 10), [a_frame(1, value=b"v" * 10), a_frame(2, committed=1, value=b"v" * 600)]
    begin, end = 512 * 3 - 512, 512 * 2 + len(frames[1].data)
    for cut in range(begin, 512 * 4):
        scan = scan_segment(data[:cut], NAME)
        assert scan.frames == (frames if cut >= end else frames[:1])
        assert scan.torn == (begin < cut < end)
        assert scan.end == (512 * 4 if cut >= end else begin)


def test_padding_that_is_not_zero_is_damage_as_soon_as_a_frame_proves_that_it_was_durable() -> None:
    data, end = padded(10, 10), 512 + len(a_frame(1, value=b"v" * 10).data)
    for place in (end, 1023):
        with pytest.raises(DamagedLog, match=f"padding at offset {end} is damaged") as caught:
            scan_segment(flipped(data, place), f"/dfs/{NAME}")
        assert (caught.value.fields["file"], caught.value.fields["offset"]) == (f"/dfs/{NAME}", end)
        assert [frame.first_seq for frame in frames_before_damage(flipped(data, place), NAME)] == [1]


def test_padding_that_is_not_zero_is_a_torn_tail_where_nothing_proves_more() -> None:
    end = 512 + len(a_frame(1, value=b"v" * 10).data)
    for data in (padded(10), padded(10, 10, lag=2)):  # nothing behind it, or what went out together with it
        scan = scan_segment(flipped(data, end), NAME)
        assert ([frame.first_seq for frame in scan.frames], scan.end, scan.torn) == ([1], end, True)
    asynchronous = [a_frame(1, value=b"v" * 10), a_frame(2, committed=1, flags=Flags.ASYNC)]
    assert scan_segment(flipped(segment_bytes(asynchronous, alignment=REMOTE_ALIGNMENT), end), NAME).torn


def test_padding_of_the_header_belongs_to_the_header() -> None:
    data = padded(10)
    for place in (HEADER_BYTES, REMOTE_ALIGNMENT - 1):
        with pytest.raises(BrokenHeader, match="zeros"):
            parse_header(flipped(data, place))
        with pytest.raises(DamagedLog, match="header is damaged"):
            scan_segment(flipped(data, place), NAME)
        torn = scan_segment(flipped(segment_bytes([], alignment=REMOTE_ALIGNMENT), place), NAME)
        assert (torn.header, torn.frames, torn.torn) == (None, [], True)


def test_a_header_that_was_torn_within_its_padding_stands() -> None:
    whole = segment_bytes([], alignment=REMOTE_ALIGNMENT, zeros=0)
    for cut in (HEADER_BYTES, 300, len(whole)):
        scan = scan_segment(whole[:cut], NAME)
        assert (scan.header, scan.frames, scan.torn) == (parse_header(whole), [], False)


def test_a_zeroed_frame_in_the_middle_is_damage() -> None:
    data = bytearray(segment_bytes(run(1, 6), alignment=REMOTE_ALIGNMENT))
    data[1024:2048] = bytes(1024)
    with pytest.raises(DamagedLog, match="sequence 2 should follow"):
        scan_segment(bytes(data), NAME)
