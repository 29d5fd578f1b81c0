"""The places at which damage of a log can be proven by its readers: for whoever turns bits of it, on twins or in real files.

What always holds: a range ends before a sound frame of the same file, and what is damaged in it was committed by then. At the
end of a log, damage and a torn write are alike: there no reader could know, and whoever stores the file has to
(docs/decisions/2026-11-21-a-damaged-remote-log.md).
This module is pure.
"""

from __future__ import annotations

from itertools import pairwise

import msgspec

from storage.log.frame import HEADER_BYTES, Flags, Frame, parse_frame
from storage.log.record import RecordKind
from storage.log.segment import aligned, parse_header
from twinlog.errors import TwinlogError


def provable(data: bytes) -> list[tuple[int, int]]:
    """The ranges [start, end) of a segment's bytes in which damage can be proven: its header, then each such frame."""
    found = _proven(data)
    return [(0, parse_header(data).begin), *((at, behind) for at, behind, _ in found)] if found else []


def values(data: bytes) -> list[tuple[int, int]]:
    """The ranges of those frames in which the values of rows stand: there a bit that turns contradicts the checksum alone,
    neither the head of its frame nor the form of its records."""
    found = []
    for offset, _, frame in _proven(data):
        for record in () if frame.flags & Flags.COMPRESSED else frame.records:
            if record.kind == RecordKind.UPSERT:
                stored = msgspec.msgpack.encode(record.key) + msgspec.msgpack.encode(record.value)
                end = offset + frame.data.index(stored, HEADER_BYTES) + len(stored)
                found.append((end - len(record.value), end))
    return found


def _proven(data: bytes) -> list[tuple[int, int, Frame]]:
    """The frames in which damage can be proven, each with its offset and that of the one behind it."""
    frames: list[tuple[int, Frame]] = []
    try:
        header = parse_header(data)
        offset = header.begin
        while True:
            frames.append((offset, parse_frame(data, offset)))
            offset = aligned(offset + len(frames[-1][1].data), header.alignment)
    except TwinlogError:  # it ends there
        pass
    attested = max((frame.committed for _, frame in frames if not frame.flags & Flags.ASYNC), default=0)
    return [(at, behind, frame) for (at, frame), (behind, _) in pairwise(frames) if frame.last_seq <= attested]
