"""Reading the local log's files in pieces, along the chain, without holding up the event loop for long.

What always holds: what is returned stands and links to where the reader is; excluded frames are passed over, also when
what excludes them lies far behind; a frame that should be there and cannot be read is an error, never the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.disk.port import Files
from storage.log.frame import Frame, parse_frame
from storage.log.wal_segments import WalSegment, excluder
from twinlog.errors import BrokenFrame, DamagedLog, LogError, LogGap

_CHUNK_BYTES = 256 << 10  # parsed in a few milliseconds


async def read_segments(
    files: Files, segments: Sequence[WalSegment], after_seq: int, upto_seq: int, bytes_max: int
) -> list[Frame]:
    """Standing frames in (after_seq, upto_seq]; at least one if there is one, else about `bytes_max` bytes.

    `segments` may lose its oldest entries meanwhile. Raises LogGap where a link is missing or was just trimmed,
    DamagedLog where the files end before `upto_seq`, or hold another frame than the one that was written there.
    """
    excluded = excluder(segments)
    read: list[Frame] = []
    at, size = after_seq, 0
    path, offset = "", 0
    for segment in [segment for segment in segments if segment.last_seq > after_seq]:
        path, offset = segment.path, segment.offset_near(at + 1)
        last_seq: int | None = None  # of the frame before, in the file
        while frames := await _next_frames(files, segments, segment, offset):
            for frame in frames:
                if frame.previous != last_seq and not segment.begins_at(offset, frame):
                    raise DamagedLog(
                        f"{path}: {frame!r} at offset {offset} is not the frame that was written there; restore the file from a"
                        " copy, or rejoin this site from the other one",
                        file=path, offset=offset,
                    )
                last_seq = frame.last_seq
                offset += len(frame.data)
                if frame.last_seq <= at or excluded.excludes(frame):
                    continue
                if frame.last_seq > upto_seq or (read and size + len(frame.data) > bytes_max):
                    return read
                if frame.previous != at:
                    raise LogGap(
                        f"{path}: {frame!r} continues sequence {frame.previous}, but {at} is the last one before it",
                        held_seq=at, offered_previous=frame.previous,
                    )
                read.append(frame)
                size += len(frame.data)
                at = frame.last_seq
    if not read and at < upto_seq:
        raise DamagedLog(
            f"{path}: no frame can be read at offset {offset}, where sequence {at + 1} should follow; restore the file from a"
            " copy, or rejoin this site from the other one",
            file=path, offset=offset,
        )
    return read


async def find_frame(files: Files, segments: Sequence[WalSegment], seq: int) -> Frame | None:
    """The standing frame that ends at `seq`, if it is held. Raises LogGap where it was just trimmed."""
    excluded = excluder(segments)
    for segment in [segment for segment in segments if segment.last_seq >= seq]:
        offset = segment.offset_near(seq)
        while frames := await _next_frames(files, segments, segment, offset):
            for frame in frames:
                offset += len(frame.data)
                if frame.last_seq == seq and not excluded.excludes(frame):
                    return frame
            if frames[-1].first_seq > seq:
                break
    return None


async def _next_frames(files: Files, segments: Sequence[WalSegment], segment: WalSegment, offset: int) -> list[Frame]:
    """Some whole frames from `offset` on. None: the end, or what failed and never came to the disk."""
    length = _CHUNK_BYTES
    while offset < segment.end:
        try:
            data = await files.read(segment.path, offset, min(length, segment.end - offset))
        except LogError as error:
            if segment in segments:
                raise
            raise LogGap(f"{segment.path} has just been trimmed") from error
        frames = _whole_frames(data)
        if frames or offset + length >= segment.end:
            return frames
        length *= 2  # a frame larger than that
    return []


def _whole_frames(data: bytes) -> list[Frame]:
    frames: list[Frame] = []
    offset = 0
    while True:
        try:
            frame = parse_frame(data, offset)
        except BrokenFrame:
            return frames
        frames.append(frame)
        offset += len(frame.data)
