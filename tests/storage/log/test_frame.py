"""Frames: what is encoded comes back, compressed or not; damage and lies are errors that cost no memory."""

from __future__ import annotations

import random

import crc32c
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.log import frame as frames
from storage.log.frame import (
    COMPRESS_BYTES_MIN,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    Flags,
    Frame,
    make_frame,
    parse_frame,
)
from storage.log.record import Record, encode_records
from twinlog.errors import BrokenFrame, LogError

records = st.lists(
    st.builds(
        Record, kind=st.integers(1, 9), table=st.integers(0, 1 << 31), key=st.binary(max_size=40),
        value=st.binary(max_size=40) | st.integers(0, 30_000).map(lambda size: b"value " * (size // 6)),
        request=st.binary(max_size=5),
    ),
    min_size=1, max_size=20,
)


def made(content: list[Record], flags: int = 0) -> Frame:
    return make_frame(epoch=3, first_seq=11, previous=9, timestamp=70, committed=8, records=content, flags=flags)


def sealed(payload: bytes, flags: int) -> bytes:
    """A frame with a CRC that is right, whatever its payload is."""
    header = bytearray(made([Record(9)]).data[:HEADER_BYTES])
    header[5] = flags
    header[-8:] = len(payload).to_bytes(4, "little") + bytes(4)
    crc = crc32c.crc32c(payload, crc32c.crc32c(bytes(header)))
    return bytes(header[:-4]) + crc.to_bytes(4, "little") + payload


@given(records, st.sampled_from([0, int(Flags.ASYNC)]), st.binary(max_size=9))
def test_what_is_encoded_comes_back(content: list[Record], flags: int, before: bytes) -> None:
    frame = made(content, flags)
    read = parse_frame(before + frame.data + b"behind", len(before))
    assert read.data == frame.data
    assert read.records == content
    assert (read.epoch, read.first_seq, read.last_seq) == (3, 11, 10 + len(content))
    assert (read.previous, read.timestamp, read.committed) == (9, 70, 8)
    assert read.flags & Flags.ASYNC == flags
    size = len(encode_records(content))
    if read.flags & Flags.COMPRESSED:
        assert size >= COMPRESS_BYTES_MIN
        assert len(frame.data) - HEADER_BYTES <= 0.75 * size
    else:
        assert len(frame.data) - HEADER_BYTES == size


def test_only_what_shrinks_is_compressed() -> None:
    alike = [Record(1, 7, b"%05d" % n, b"the same thing again") for n in range(500)]
    noise = [Record(1, 7, b"k", random.Random(1).randbytes(50_000))]
    assert made(alike).flags == Flags.COMPRESSED
    assert made(alike, Flags.ASYNC).flags == Flags.COMPRESSED | Flags.ASYNC
    assert made(noise).flags == made(alike[:50]).flags == Flags.NONE
    assert parse_frame(made(noise).data).records == noise


def test_released_records_are_decoded_again() -> None:
    alike = [Record(1, 7, b"%05d" % n, b"the same thing again") for n in range(500)]
    frame = made(alike)
    frame.release_records()
    assert frame.records == alike


def test_a_frame_that_was_not_compressed_stays_readable() -> None:
    content = [Record(1, 7, b"%05d" % n, b"the same thing again") for n in range(500)]
    payload = encode_records(content)
    data = bytearray(sealed(payload, 0))
    assert parse_frame(bytes(data)).records == content


@given(records, st.data())
def test_no_bit_of_it_may_change(content: list[Record], data: st.DataObject) -> None:
    frame = made(content)
    damaged = bytearray(frame.data)
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(BrokenFrame):
        parse_frame(bytes(damaged))


@pytest.mark.parametrize("told", [0, 1, 99_999, 100_001, 5_000_000, PAYLOAD_BYTES_MAX + 1, (1 << 32) - 1])
def test_a_length_that_is_not_true_is_refused(told: int) -> None:
    """A small frame, sound by its CRC, that would expand to more than it says."""
    bomb = pa.Codec("zstd").compress(bytes(100_000), asbytes=True)
    frame = parse_frame(sealed(told.to_bytes(4, "little") + bomb, Flags.COMPRESSED))
    before = pa.total_allocated_bytes()
    with pytest.raises(LogError):
        _ = frame.records
    assert pa.total_allocated_bytes() == before


def test_more_than_a_frame_may_hold_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "PAYLOAD_BYTES_MAX", 100_000)
    content = [Record(1, 7, b"k", bytes(100_000))]
    payload = encode_records(content)
    bomb = pa.Codec("zstd").compress(payload, asbytes=True)
    with pytest.raises(LogError, match="above the limit"):
        _ = parse_frame(sealed(len(payload).to_bytes(4, "little") + bomb, Flags.COMPRESSED)).records
    with pytest.raises(LogError, match="above the limit"):
        made(content)


@given(st.binary(max_size=200))
def test_a_payload_that_is_nonsense_is_an_error(payload: bytes) -> None:
    for flags in (Flags.NONE, Flags.COMPRESSED):
        frame = parse_frame(sealed(payload, flags))
        try:
            assert isinstance(frame.records, list)
        except LogError:
            continue


def test_flags_of_another_release_are_named() -> None:
    with pytest.raises(LogError, match="flags 0x10 are not known"):
        parse_frame(sealed(encode_records([Record(9)]), 16))


class _WithoutMemory:
    """Pyarrow's codec in a process that gets no more memory: an OSError by its class, and with zstd's words."""

    def compress(self, payload: bytes, asbytes: bool) -> bytes:
        raise OSError("ZSTD compression failed: Allocation error : not enough memory")

    def decompress(self, payload: bytes, decompressed_size: int, asbytes: bool) -> bytes:
        raise OSError("ZSTD decompression failed: Allocation error : not enough memory")


def test_want_of_memory_is_called_so_and_is_no_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = parse_frame(made([Record(1, value=b"value " * COMPRESS_BYTES_MIN)]).data)
    assert frame.flags & Flags.COMPRESSED
    monkeypatch.setattr(frames, "_zstd", _WithoutMemory)
    with pytest.raises(MemoryError, match="not enough memory"):
        _ = frame.records
    with pytest.raises(MemoryError, match="not enough memory"):
        made([Record(1, value=b"value " * COMPRESS_BYTES_MIN)])
