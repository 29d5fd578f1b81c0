"""Sealed segments: what was written is read with the right key, and nothing else is."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.invariants import InvariantBroken, watched
from storage.log.encryption import NO_KEYS, Keyring, LogKey, log_keys
from storage.log.frame import HEADER_BYTES, Frame, parse_frame
from storage.log.segment import (
    HEADER_BYTES_MAX,
    REMOTE_ALIGNMENT,
    SegmentHeader,
    aligned,
    encode_frames,
    encode_header,
    encrypted,
    frames_before_damage,
    parse_header,
    scan_segment,
)
from tests.storage.log.frames import run
from tests.storage.log.keys import SETTING, ring
from twinlog.errors import BrokenHeader, DamagedLog, KeyUnavailable, LogError

WAL, REMOTE = "000000000001-00000001", "000000000001-00000001.000000"
ALIGNMENTS = st.sampled_from([1, REMOTE_ALIGNMENT])
KEYS = ring("k1")


def segment(frames: list[Frame], alignment: int = 1, keys: Keyring = KEYS, name: str = WAL) -> bytes:
    header, cipher = encrypted(SegmentHeader(0, 1, 1, name, alignment, "0123456789abcdef"), keys)
    head = encode_header(header)
    return head + encode_frames(frames, alignment, len(head), cipher)


def places(data: bytes) -> list[tuple[int, int]]:
    """Returns [begin, end) of each frame as it stands."""
    header, found = parse_header(data), []
    at = header.begin
    while at < len(data) and data[at]:
        end = at + len(parse_frame(data, at, sealed=True).data)
        found.append((at, end))
        at = aligned(end, header.alignment)
    return found


def with_crc(frame: bytes) -> bytes:
    """`frame` with the CRC that its bytes have: whoever changes them can make it anew."""
    import crc32c

    crc = crc32c.crc32c(frame[HEADER_BYTES:], crc32c.crc32c(frame[: HEADER_BYTES - 4] + bytes(4)))
    return frame[: HEADER_BYTES - 4] + struct.pack("<I", crc) + frame[HEADER_BYTES:]


def put(data: bytes, at: int, piece: bytes) -> bytes:
    return data[:at] + piece + data[at + len(piece) :]


@given(st.integers(1, 5), st.binary(max_size=3000), ALIGNMENTS, st.integers(0, 600))
def test_what_was_written_is_read_with_the_key_and_zeros_behind_are_its_end(
    count: int, value: bytes, alignment: int, zeros: int
) -> None:
    frames = run(1, count, value=value)
    data = segment(frames, alignment)
    scan = scan_segment(data + bytes(zeros), WAL, keys=KEYS)
    assert (scan.frames, scan.end, scan.torn) == (frames, len(data), False)
    assert [frame.data for frame in scan.frames] == [frame.data for frame in frames], "byte for byte, as in the other log"
    assert [frame.records for frame in scan.frames] == [frame.records for frame in frames]
    assert len(value) < 8 or value not in data or not value.strip(value[:1])


@given(st.data(), ALIGNMENTS)
def test_every_flipped_bit_is_found_whoever_mends_the_crc(data: st.DataObject, alignment: int) -> None:
    whole = segment(run(1, 3), alignment)
    assert scan_segment(whole, WAL, keys=KEYS).frames == run(1, 3)
    place = data.draw(st.sampled_from(places(whole)))
    at, bit = data.draw(st.integers(*place).filter(lambda at: at < place[1])), data.draw(st.integers(0, 7))
    frame = bytearray(whole[slice(*place)])
    frame[at - place[0]] ^= 1 << bit
    mended = put(whole, place[0], with_crc(bytes(frame)))
    if mended == whole:
        return  # the bit was the CRC's
    try:
        scan = scan_segment(mended, WAL, keys=KEYS)
    except LogError:
        return
    assert scan.torn, "it looks like no frame: its magic, its length or its count"
    assert len(scan.frames) < 3
    assert scan.frames == run(1, 3)[: len(scan.frames)]


@given(st.data(), ALIGNMENTS)
def test_a_segment_that_was_cut_ends_at_its_last_whole_frame(data: st.DataObject, alignment: int) -> None:
    frames = run(1, 4)
    whole = segment(frames, alignment)
    cut = data.draw(st.integers(0, len(whole)))
    scan = scan_segment(whole[:cut] + bytes(data.draw(st.sampled_from([0, 700]))), WAL, keys=KEYS)
    if scan.header is None:
        assert cut < HEADER_BYTES_MAX
    else:
        assert scan.frames == frames[: sum(end <= cut for _, end in places(whole))]


@pytest.mark.parametrize("alignment", [1, REMOTE_ALIGNMENT])
def test_a_frame_that_was_moved_is_refused(alignment: int) -> None:
    whole, other = (segment(run(1, 3), alignment) for _ in range(2))
    spans = places(whole)
    first, second = (whole[slice(*span)] for span in spans[:2])
    assert len(first) == len(second)
    for changed in (
        put(whole, spans[1][0], first), put(put(whole, *(spans[0][0], second)), spans[1][0], first),  # in its own segment
        put(whole, spans[1][0], other[slice(*spans[1])]),  # the same frame, sealed for the same place of another one
        put(whole, spans[1][0], run(1, 3)[1].data + bytes(16)),  # as it was before it was sealed
    ):
        with pytest.raises(DamagedLog, match="tag does not"):
            scan_segment(changed, WAL, keys=KEYS)
        assert len(frames_before_damage(changed, WAL, keys=KEYS)) <= 1


def test_a_header_is_bound_to_its_key_and_a_data_key_to_its_header() -> None:
    whole = segment(run(1, 2))
    header = parse_header(whole)
    for changed in (replace(header, epoch=2), replace(header, pair="ff" * 8), replace(header, wal="000000000001-00000002")):
        forged = encode_header(changed) + whole[header.begin :]
        with pytest.raises(KeyUnavailable, match="does not open it"):
            scan_segment(forged, WAL, keys=KEYS)
    flipped = bytearray(whole)
    flipped[100] ^= 1
    with pytest.raises(BrokenHeader):
        parse_header(bytes(flipped))
    with pytest.raises(DamagedLog, match="the segment header is damaged"):  # and never torn at birth: frames stand behind
        scan_segment(bytes(flipped), WAL, keys=KEYS)


def test_a_key_that_is_missing_or_wrong_is_named_and_is_no_damage() -> None:
    whole = segment(run(1, 2))
    for keys, said in (
        (NO_KEYS, "the key 'k1', which remote_log.encryption_keys"),
        (ring("k2"), f"the key 'k1', which {SETTING} does not have"),
        (Keyring(SETTING, [LogKey("k1", bytes(32))]), f"that id in {SETTING} does not open it"),
    ):
        for read in (scan_segment, frames_before_damage):
            with pytest.raises(KeyUnavailable, match=said) as raised:
                read(whole, "a-file", keys=keys)
            assert (raised.value.fields["file"], raised.value.fields["key_id"]) == ("a-file", "k1")
    assert not issubclass(KeyUnavailable, DamagedLog | BrokenHeader)


def test_every_key_reads_the_first_writes_and_plain_is_read_only_where_it_is_named() -> None:
    frames = run(1, 2)
    rotated = ring("k3", "k2", "k1")
    for keys in (ring("k1"), ring("k2", "k1"), rotated):
        assert scan_segment(segment(frames, keys=keys), WAL, keys=rotated).frames == frames
    assert parse_header(segment(frames, keys=rotated)).key_id == "k3"
    plain = segment(frames, keys=ring("plain", "k1"))
    assert plain == segment(frames, keys=NO_KEYS), "byte for byte as without keys"
    assert scan_segment(plain, WAL, keys=ring("k1", "plain")).frames == frames
    with pytest.raises(KeyUnavailable, match=r"is not encrypted, and .* does not allow that"):
        scan_segment(plain, WAL, keys=ring("k1"))


def test_nothing_is_sealed_twice_at_one_offset_nor_by_a_reader() -> None:
    """The nonce is the offset."""
    first, second = run(1, 2)
    header, cipher = encrypted(SegmentHeader(0, 1, 1, WAL), KEYS)
    assert cipher is not None
    cipher.seal(first, header.begin)
    for offset in (header.begin, header.begin + len(first.data) + 15, 0):
        with watched(), pytest.raises(InvariantBroken, match="nothing is sealed twice"):
            cipher.seal(second, offset)
    cipher.seal(second, header.after(first, header.begin))
    reader = scan_segment(segment([first]), WAL, keys=KEYS).cipher
    assert reader is not None
    with watched(), pytest.raises(InvariantBroken, match="nor by a reader"):
        reader.seal(second, 1 << 20)


def test_each_segment_has_a_data_key_of_its_own() -> None:
    assert len({segment(run(1, 1)) for _ in range(20)}) == 20


def test_a_sealed_frame_is_no_frame_anywhere_else() -> None:
    whole = segment(run(1, 1))
    begin = parse_header(whole).begin
    with pytest.raises(LogError, match="encrypted"):
        parse_frame(whole, begin)
    with pytest.raises(LogError, match="is encrypted"):
        _ = parse_frame(whole, begin, sealed=True).records
    in_the_clear = encode_header(SegmentHeader(0, 1, 1, WAL)) + whole[begin:]
    with pytest.raises(LogError, match="encrypted"):
        scan_segment(in_the_clear, WAL)


def test_references_that_are_none_and_keys_that_are_none_are_named_and_never_shown() -> None:
    secret = base64.b64encode(bytes(range(32))).decode()
    found = log_keys(["k1=file:a", "k2=env:B", "plain"], lambda where: secret)
    assert [key.key_id for key in found] == ["k1", "k2", "plain"]
    assert secret not in repr(found)
    assert str(bytes(range(32))) not in repr(found)
    for references, said in (
        (["k2=file:a", f"k1={secret}"], "has no reference at place 2"), ([secret], "place 1"), (["k1"], "place 1"),
        (["k1=file:a", "k1=file:b"], "names 'k1' twice"), (["plain=file:a"], "place 1"), (["k" * 33 + "=file:a"], "place 1"),
    ):
        with pytest.raises(ValueError, match=said) as raised:
            log_keys(references, lambda where: secret)
        assert secret not in str(raised.value)
    for text in ("", "short", secret[:-4], secret + "AAAA", "not base64!!"):
        with pytest.raises(ValueError, match="which is not 32 bytes in base64") as raised:
            log_keys(["k1=file:a"], lambda where: text)  # noqa: B023
        assert not text or text not in str(raised.value)
