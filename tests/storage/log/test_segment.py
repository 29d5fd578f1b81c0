"""Segment files: names and header, and where a torn tail ends and damage begins."""

from __future__ import annotations

import time

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log.frame import MAGIC, Flags, Frame
from storage.log.segment import (
    HEADER_BYTES,
    SegmentHeader,
    check_pair,
    commonest,
    encode_header,
    pairs_named,
    parse_header,
    parse_remote_name,
    parse_wal_name,
    remote_name,
    scan_segment,
    wal_name,
)
from tests.storage.log.frames import a_frame, run, segment_bytes
from twinlog.errors import BrokenHeader, DamagedLog, LogError

NAME = wal_name(1, 1)
REMOTE = remote_name(NAME, 1)


@given(st.integers(0, 10**12 - 1), st.integers(0, 10**8 - 1), st.integers(0, 10**6 - 1))
def test_names_are_read_back_and_kept_apart(epoch: int, index: int, number: int) -> None:
    wal = wal_name(epoch, index)
    assert parse_wal_name(wal) == (epoch, index)
    assert parse_remote_name(remote_name(wal, number)) == (wal, number)
    assert parse_wal_name(remote_name(wal, number)) is None
    assert parse_remote_name(wal) is None


@pytest.mark.parametrize("name", ["", "1-2", "LOCK", wal_name(1, 1) + "x", "0" * 12 + "_" + "0" * 8])
def test_other_names_are_nobody_s(name: str) -> None:
    assert parse_wal_name(name) is None


PAIRS = st.just("") | st.binary(min_size=8, max_size=8).filter(any).map(bytes.hex)


@given(st.integers(0, 2**16 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), PAIRS)
def test_a_header_is_read_back(log: int, epoch: int, first_seq: int, pair: str) -> None:
    header = SegmentHeader(log, epoch, first_seq, NAME, pair=pair)
    data = encode_header(header)
    assert len(data) == HEADER_BYTES == 64
    assert parse_header(data + b"more") == header


def test_every_flipped_bit_of_a_header_is_seen() -> None:
    data = encode_header(SegmentHeader(0, 3, 17, NAME))
    for bit in range(len(data) * 8):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BrokenHeader):
            parse_header(bytes(broken))


def test_a_whole_segment_gives_its_frames() -> None:
    frames = run(5, 4, count=3)
    data = segment_bytes(frames)
    scan = scan_segment(data, NAME)
    assert scan.frames == frames
    assert (scan.end, scan.torn) == (len(data) - 200, False)
    assert scan.header == SegmentHeader(0, 1, 5, NAME)


def test_a_tail_torn_at_any_byte_is_cut_there_and_only_there() -> None:
    frames = run(1, 4, count=2)
    data = segment_bytes(frames, zeros=0)
    start = len(data) - len(frames[-1].data)
    for cut in range(start, len(data)):
        for rest in (b"", bytes(300), b"\xa5" * 50):
            if rest and (data[:cut] + rest).startswith(data):
                continue  # the frame ends in zero bytes, so this is the whole of it
            scan = scan_segment(data[:cut] + rest, NAME)
            assert scan.frames == frames[:-1]
            assert scan.end == start
            assert scan.torn == (cut > start or rest == b"\xa5" * 50)


@pytest.mark.parametrize("name", [NAME, REMOTE])
def test_a_flipped_bit_in_any_byte_of_a_committed_frame_is_loud(name: str) -> None:
    frames = run(1, 5, count=2)
    data = segment_bytes(frames)
    start = HEADER_BYTES + len(frames[0].data)
    for at in range(start, start + len(frames[1].data)):
        for bit in (0, 7):
            broken = bytearray(data)
            broken[at] ^= 1 << bit
            with pytest.raises(DamagedLog) as caught:
                scan_segment(bytes(broken), f"wal/{name}")
            assert caught.value.fields["file"] == f"wal/{name}"
            assert caught.value.fields["offset"] == start
            assert "sequence 3 should follow" in caught.value.message


def test_a_zeroed_block_in_the_middle_is_damage() -> None:
    frames = run(1, 6)
    data = bytearray(segment_bytes(frames))
    start = HEADER_BYTES + len(frames[0].data)
    data[start : start + 2 * len(frames[1].data)] = bytes(2 * len(frames[1].data))
    with pytest.raises(DamagedLog, match="sequence 2 should follow"):
        scan_segment(bytes(data), NAME)


def break_frame(frames: list[Frame], broken: int, **how: int) -> bytes:
    """The segment, with one bit of frame number `broken` flipped."""
    data = bytearray(segment_bytes(frames, **how))
    data[HEADER_BYTES + sum(len(frame.data) for frame in frames[:broken]) + 30] ^= 4
    return bytes(data)


def test_frames_behind_that_went_out_with_the_torn_one_prove_nothing() -> None:
    # 3 and 4 were written in one go, when 2 was the last committed: a power loss may keep 4 and tear 3
    frames = [a_frame(1), a_frame(2), a_frame(3, committed=2), a_frame(4, committed=2)]
    scan = scan_segment(break_frame(frames, 2), NAME)
    assert [frame.first_seq for frame in scan.frames] == [1, 2]
    assert scan.torn
    frames[3] = a_frame(4, committed=3)
    with pytest.raises(DamagedLog):
        scan_segment(break_frame(frames, 2), NAME)


def test_the_first_frame_is_placed_by_the_header_or_by_what_came_before() -> None:
    frames = [a_frame(10), a_frame(11, committed=8)]
    assert scan_segment(break_frame(frames, 0), NAME).torn
    # a segment that was made ahead knows only that nothing below 5 is in it
    with pytest.raises(DamagedLog):
        scan_segment(break_frame(frames, 0, first_seq=5), NAME)
    assert scan_segment(break_frame(frames, 0, first_seq=5), NAME, after_seq=9).torn


def test_copied_frames_of_an_older_epoch_prove_nothing() -> None:
    copied = [*run(5, 3, epoch=1), a_frame(9, previous=7, epoch=2, committed=4)]
    scan = scan_segment(break_frame(copied, 0, epoch=2), NAME)
    assert scan.frames == []
    copied.append(a_frame(10, epoch=2, committed=7))
    with pytest.raises(DamagedLog):
        scan_segment(break_frame(copied, 0, epoch=2), NAME)


def test_asynchronous_frames_prove_nothing_about_a_remote_segment() -> None:
    frames = [a_frame(1), a_frame(2), a_frame(3, committed=2, flags=Flags.ASYNC)]
    assert scan_segment(break_frame(frames, 1), REMOTE).torn
    with pytest.raises(DamagedLog):
        scan_segment(break_frame(frames, 1), NAME)


def test_a_torn_header_is_a_torn_tail_only_when_nothing_follows() -> None:
    whole = segment_bytes([])
    for cut in range(HEADER_BYTES):
        scan = scan_segment(whole[:cut] + bytes(300), NAME)
        assert (scan.header, scan.frames, scan.end) == (None, [], 0)
        assert scan.torn == (cut > 0)
    assert scan_segment(b"", NAME).torn is False


def test_every_flipped_bit_of_a_header_with_frames_behind_is_damage() -> None:
    data = segment_bytes(run(1, 1))
    for at in range(HEADER_BYTES):
        broken = bytearray(data)
        broken[at] ^= 1 << at % 8
        with pytest.raises(DamagedLog) as caught:
            scan_segment(bytes(broken), NAME)
        assert (caught.value.fields["file"], caught.value.fields["offset"]) == (NAME, 0)


def test_a_format_of_another_release_is_no_damage() -> None:
    data = bytearray(encode_header(SegmentHeader(0, 1, 1, NAME)))
    data[4] = 9
    data[60:] = crc32c.crc32c(bytes(data[:60])).to_bytes(4, "little")
    with pytest.raises(LogError, match="version 9"):
        scan_segment(bytes(data), NAME)


@given(st.binary(max_size=400), st.lists(st.sampled_from([MAGIC, b"\0" * 40, MAGIC + b"\1\0\0\0"]), max_size=8))
def test_garbage_behind_the_last_frame_is_cut(garbage: bytes, magics: list[bytes]) -> None:
    frames = run(1, 3)
    data = segment_bytes(frames, zeros=0) + garbage + b"".join(magics)
    scan = scan_segment(data, NAME)
    assert scan.frames == frames
    assert scan.torn == bool((garbage + b"".join(magics)).strip(b"\0"))


def test_the_search_stays_linear() -> None:
    beginning = bytearray(a_frame(2).data[:60])
    beginning[52:56] = (900_000).to_bytes(4, "little")  # a length that a CRC would have to run over each time
    data = segment_bytes(run(1, 1), zeros=0) + bytes(beginning) * 30_000
    began = time.process_time()
    with pytest.raises(DamagedLog, match="false frame beginnings"):
        scan_segment(data, NAME)
    assert time.process_time() - began < 5


def test_a_segment_of_an_older_format_is_called_so() -> None:
    """The name had 36 bytes in format 1, and no pair."""
    old = bytearray(encode_header(SegmentHeader(0, 1, 1, NAME)))
    old[4] = 1
    old[-4:] = crc32c.crc32c(bytes(old[:-4])).to_bytes(4, "little")
    with pytest.raises(LogError, match=r"version 1 is not known to this release \(it knows 2 and 3\)"):
        parse_header(bytes(old))


@given(st.lists(PAIRS, min_size=1, max_size=5))
def test_most_segments_say_whose_log_it_is(pairs: list[str]) -> None:
    heads = [encode_header(SegmentHeader(0, 1, 1, NAME, pair=pair)) for pair in pairs]
    named = commonest(pairs_named([*heads, b"", bytes(64)]))
    assert pairs.count(named) == max(pairs.count(pair) for pair in pairs)
    for pair in pairs:
        if named in ("", pair):
            check_pair(parse_header(heads[pairs.index(pair)]), named, NAME)
        else:
            with pytest.raises(DamagedLog, match="another pair") as raised:
                check_pair(parse_header(heads[pairs.index(pair)]), named, NAME)
            assert (raised.value.fields["file"], raised.value.fields["offset"]) == (NAME, 0)
