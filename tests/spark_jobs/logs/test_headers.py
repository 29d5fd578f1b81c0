"""Frames found all at once are the ones that storage/log/frame.py finds one by one, whatever stands in the bytes."""

from __future__ import annotations

from unittest import mock

import crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.logs import headers as log_headers
from spark_jobs.logs.headers import HEADER, headers_at, sound_offsets
from storage.log.frame import HEADER_BYTES, MAGIC, Flags, FrameHeader, sound_header
from storage.log.segment import aligned, encode_frames
from tests.storage.log.frames import a_frame, run
from twinlog.errors import LogError

FRAMES = [*run(1, 9, count=2), a_frame(19, value=MAGIC * 20), *run(20, 6), a_frame(26, flags=Flags.ASYNC | Flags.BARRIER)]
DATA = {alignment: encode_frames(FRAMES, alignment) for alignment in (1, 512)}
BEGINS = {
    alignment: [len(encode_frames(FRAMES[:number], alignment)) for number in range(len(FRAMES) + 1)] for alignment in DATA
}


def one_by_one(data: bytes, offset: int, alignment: int) -> tuple[list[int], list[FrameHeader], int]:
    """The twin that cannot be wrong: as long as the product's own function finds a frame."""
    offsets: list[int] = []
    headers: list[FrameHeader] = []
    try:
        while True:
            header = sound_header(memoryview(data), offset, sealed=True)
            offsets.append(offset)
            headers.append(header)
            end = offset + HEADER_BYTES + header[10]
            offset = aligned(end, alignment)
            if any(data[end:offset]):
                return offsets, headers, end
    except LogError:
        return offsets, headers, offset


def agree(data: bytes, offset: int, alignment: int) -> None:
    offsets, headers, end = one_by_one(data, offset, alignment)
    found, found_end = sound_offsets(data, offset, alignment)
    assert (found.tolist(), found_end) == (offsets, end)
    assert headers_at(data, found).tolist() == headers


@pytest.mark.parametrize("alignment", DATA)
def test_the_array_has_the_headers_fields(alignment: int) -> None:
    assert HEADER.itemsize == HEADER_BYTES
    agree(DATA[alignment], 0, alignment)
    assert len(sound_offsets(DATA[alignment], 0, alignment)[0]) == len(FRAMES)


@pytest.mark.parametrize("frames_max", [1, 4, 4096])
@pytest.mark.parametrize("alignment", DATA)
@settings(max_examples=200, deadline=None)
@given(given_data=st.data(), zeros=st.integers(0, 200))
def test_both_ways_end_at_the_same_frame(alignment: int, frames_max: int, given_data: st.DataObject, zeros: int) -> None:
    length = len(DATA[alignment])
    flips = given_data.draw(st.lists(st.tuples(st.integers(0, length - 1), st.integers(0, 7)), max_size=3))
    cut, begin = given_data.draw(st.integers(0, length)), given_data.draw(st.sampled_from([0, 1, *BEGINS[alignment]]))
    changed = bytearray(DATA[alignment])
    for place, bit in flips:
        changed[place] ^= 1 << bit
    with mock.patch.object(log_headers, "_FRAMES_MAX", frames_max):
        agree(bytes(changed[:cut]) + bytes(zeros), begin, alignment)


@settings(max_examples=100, deadline=None)
@given(number=st.integers(0, len(FRAMES) - 1), place=st.integers(0, 55), value=st.integers(0, 255))
def test_a_sealed_header_of_any_kind_is_taken_or_refused_alike(number: int, place: int, value: int) -> None:
    """The CRC fits, and yet a version, a flag, a count or a length may be one that no frame of this release has."""
    changed = bytearray(FRAMES[number].data)
    changed[place] = value
    changed[56:60] = bytes(4)
    changed[56:60] = crc32c.crc32c(bytes(changed)).to_bytes(4, "little")
    data, begins = DATA[1], BEGINS[1]
    agree(data[: begins[number]] + bytes(changed) + data[begins[number + 1] :], 0, 1)
