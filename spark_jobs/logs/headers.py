"""The headers of many frames at once, as one array: what storage/log/frame.py's `sound_header` takes frame by frame.

What always holds: `sound_offsets` ends exactly where `sound_header` would find the first frame that is not sound, encrypted or
not, so it is only faster. A log of single rows has a frame for every 200 bytes: taken one by one they cost several times what
their CRCs do.
This module is pure.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import crc32c
import numpy as np
from numpy.typing import NDArray

from storage.log.frame import HEADER_BYTES, MAGIC, PAYLOAD_BYTES_MAX, TAG_BYTES, VERSION, Flags
from storage.log.segment import aligned

Headers: TypeAlias = NDArray[np.void]
Offsets: TypeAlias = NDArray[np.int64]

HEADER = np.dtype([  # as in the bytes
    ("magic", "S4"), ("version", "u1"), ("flags", "u1"), ("log", "<u2"), ("count", "<u4"), ("epoch", "<u8"), ("seq", "<u8"),
    ("previous", "<u8"), ("timestamp", "<u8"), ("committed", "<u8"), ("payload_bytes", "<u4"), ("crc", "<u4"),
])
_CRC_OFFSET = HEADER_BYTES - 4
_UNKNOWN_FLAGS = np.uint8(0xFF & ~sum(Flags))
_magic_and_length = struct.Struct("<4s48xI").unpack_from
_FRAMES_MAX, _BYTES_MAX = 4096, 1 << 20  # looked at together: damage makes no more than this be looked at twice


def sound_offsets(data: bytes, offset: int, alignment: int) -> tuple[Offsets, int]:
    """Returns the offsets of the sound frames that follow one another from `offset` on, and their end: where the next one would
    begin, or behind a frame itself when its padding is not zero. HOT."""
    found: list[Offsets] = []
    while begins := _chained(data, offset, alignment):
        offsets = np.array(begins, np.int64)
        headers = headers_at(data, offsets)
        ends = offsets + HEADER_BYTES + headers["payload_bytes"]
        sound = _sound(data, headers, offsets, ends)
        count = len(begins) if sound.all() else int(np.argmin(sound))
        padded = _padded(data, ends[:count].tolist(), alignment)
        if padded < count:
            found.append(offsets[: padded + 1])
            offset = int(ends[padded])
            break
        found.append(offsets[:count])
        offset = begins[count] if count < len(begins) else aligned(int(ends[-1]), alignment)
        if count < len(begins):
            break
    return np.concatenate(found) if found else np.empty(0, np.int64), offset


def headers_at(data: bytes, offsets: Offsets) -> Headers:
    """A header for each of the offsets; each has one."""
    if not len(offsets):
        return np.empty(0, HEADER)
    everywhere: Headers = np.ndarray((len(data) - HEADER_BYTES + 1,), HEADER, data, strides=(1,))
    return everywhere[offsets]


def _chained(data: bytes, offset: int, alignment: int) -> list[int]:
    """Offsets that lead on from one to the next by the lengths that stand there, sound or not; a bounded number of them."""
    begins: list[int] = []
    add = begins.append
    last = len(data) - HEADER_BYTES
    upto = offset + _BYTES_MAX
    while offset <= last and offset < upto and len(begins) < _FRAMES_MAX:
        magic, length = _magic_and_length(data, offset)
        if magic != MAGIC or offset + length > last:
            break
        add(offset)
        offset = offset + HEADER_BYTES + length
        offset += -offset % alignment
    return begins


def _padded(data: bytes, ends: list[int], alignment: int) -> int:
    """Returns how many of the frames that end at `ends` have nothing but zeros behind them, up to the place of the next one;
    counted up to the first that has not."""
    if alignment == 1:
        return len(ends)
    return next((place for place, end in enumerate(ends) if data[end : aligned(end, alignment)].strip(b"\0")), len(ends))


def _sound(data: bytes, headers: Headers, offsets: Offsets, ends: Offsets) -> NDArray[np.bool_]:
    """Returns for each frame [offset, end), one behind the other, whether it is sound."""
    begin, end = int(offsets[0]), int(ends[-1])
    piece = bytearray(memoryview(data)[begin:end])  # with zeros where the CRCs stand, as they were when these were made
    places = offsets - begin
    fields: NDArray[Any] = np.ndarray((len(piece) - HEADER_BYTES + 1,), "<u4", piece, offset=_CRC_OFFSET, strides=(1,))
    fields[places] = 0
    view, crc = memoryview(piece), crc32c.crc32c
    crcs = [crc(view[at:to]) for at, to in zip(places.tolist(), (ends - begin).tolist(), strict=True)]
    plain = (headers["count"] > 0) & (headers["payload_bytes"] <= PAYLOAD_BYTES_MAX + TAG_BYTES)
    known = (headers["version"] == VERSION) & (headers["flags"] & _UNKNOWN_FLAGS == 0)
    sound: NDArray[np.bool_] = (np.array(crcs, np.uint32) == headers["crc"]) & plain & known
    return sound
