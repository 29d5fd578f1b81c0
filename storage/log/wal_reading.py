"""Reading the local log's files in pieces, along the chain, without holding up the event loop for long.

What always holds: what `read_segments` returns stands and links to where the reader is; excluded frames are passed over, also
when what excludes them lies far behind; a frame that should be there and cannot be read is an error, never the end; no reader
has more in memory than what it gives, and one piece of a file.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from storage.disk.port import Files
from storage.log.encryption import SegmentCipher, read_frame
from storage.log.frame import FRAME_BYTES_MAX, TAG_BYTES, Frame
from storage.log.wal_segments import WalSegment, excluder, runs_in_order
from twinlog.errors import BrokenFrame, DamagedLog, LogError, LogGap

_CHUNK_BYTES = 256 << 10  # parsed in a few milliseconds
_REMEDY = "restore the file from a copy, or rejoin this site from the other one"


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
                        f"{path}: {frame!r} at offset {offset} is not the frame that was written there; {_REMEDY}",
                        file=path, offset=offset,
                    )
                last_seq = frame.last_seq
                offset = segment.after(frame, offset)
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
            f"{path}: no frame can be read at offset {offset}, where sequence {at + 1} should follow; {_REMEDY}",
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
                offset = segment.after(frame, offset)
                if frame.last_seq == seq and not excluded.excludes(frame):
                    return frame
            if frames[-1].first_seq > seq:
                break
    return None


async def frames_of(
    files: Files, path: str, begin: int, end: int, cipher: SegmentCipher | None = None
) -> AsyncGenerator[list[Frame], None]:
    """The frames that stand back to back in [begin, end) of a file, in groups of about 256 KiB, or one larger frame. `cipher`:
    of an encrypted segment. Raises BrokenFrame, with file and offset, where no whole frame follows."""
    offset, length = begin, _CHUNK_BYTES
    while offset < end:
        data = await files.read(path, offset, min(length, end - offset))
        frames = _whole_frames(data, cipher, offset)
        if frames:
            frames = frames if length == _CHUNK_BYTES else frames[:1]  # a longer piece was read for the first one alone
            yield frames
            offset, length = offset + sum(_stored_bytes(frame, cipher) for frame in frames), _CHUNK_BYTES
        elif len(data) < length or length >= FRAME_BYTES_MAX:
            raise BrokenFrame(f"{path}: no whole frame begins at offset {offset}", file=path, offset=offset)
        else:
            length *= 2


async def read_runs(files: Files, segments: Sequence[WalSegment], after_seq: int = 0) -> AsyncGenerator[list[Frame], None]:
    """Every frame that ends above `after_seq`, standing or not, in the order of (epoch, sequence), a group at a time. A copy of
    one that was given is passed over. Raises DamagedLog where the files do not hold what was written there."""
    reached = (-1, -1)
    for run, segment in runs_in_order(segments):
        if run.last_seq <= after_seq:
            continue
        end = 0
        async with aclosing(frames_of(files, segment.path, run.offset, run.end, segment.cipher)) as groups:
            try:
                async for frames in groups:
                    end = frames[-1].last_seq
                    new = [frame for frame in frames if frame.last_seq > after_seq and frame.position > reached]
                    if new:
                        reached = new[-1].position
                        yield new
            except BrokenFrame as error:
                raise DamagedLog(f"{error.message}; {_REMEDY}", **error.fields) from error
        if end != run.last_seq:
            raise DamagedLog(
                f"{segment.path}: the frames from offset {run.offset} on end at sequence {end}, and {run.last_seq} was written"
                f" there; {_REMEDY}", file=segment.path, offset=run.offset,
            )


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
        frames = _whole_frames(data, segment.cipher, offset)
        if frames or offset + length >= segment.end:
            return frames
        length *= 2  # a frame larger than that
    return []


def _whole_frames(data: bytes, cipher: SegmentCipher | None, begin: int) -> list[Frame]:
    """`begin`: where `data` begins in its file."""
    frames: list[Frame] = []
    offset = 0
    while True:
        try:
            frame = read_frame(data, offset, cipher, begin + offset)
        except BrokenFrame:
            return frames
        frames.append(frame)
        offset += _stored_bytes(frame, cipher)


def _stored_bytes(frame: Frame, cipher: SegmentCipher | None) -> int:
    return len(frame.data) + (0 if cipher is None else TAG_BYTES)
