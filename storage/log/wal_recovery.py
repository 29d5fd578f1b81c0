"""Opening the local log after a crash: every segment is checked, the torn tail is cut, and nothing else is changed.

What always holds: what is cut was never acknowledged, as far as these files can prove; what stays is durable before it is
used, for the process before may have died between a write and its sync; anything else that is wrong is a DamagedLog that
names file and offset. Empty segments at the end (made ahead, or torn at birth) go away, so that the last
one holds the last frame. Names that are no segment's are left alone. Source: protocol.md sections 3 and 4.
"""

from __future__ import annotations

from storage.disk.port import Files
from storage.log.segment import SegmentHeader, parse_wal_name, scan_segment
from storage.log.wal_segments import WalSegment, find_tear
from twinlog.errors import DamagedLog


async def recover(files: Files, folder: str) -> tuple[list[WalSegment], int]:
    """The segments in order, and the index of the next one. Raises DamagedLog."""
    names = {name: parsed for name in await files.list(folder) if (parsed := parse_wal_name(name)) is not None}
    ordered = sorted(names, key=lambda name: names[name])
    segments: list[WalSegment] = []
    torn: dict[WalSegment, int] = {}
    last_seq = 0
    for name in ordered:
        path = f"{folder}/{name}"
        data = await files.read(path)
        scan = scan_segment(data, path, last_seq)
        if scan.header is None and name == ordered[-1]:
            await files.delete(path)  # torn at birth
            break
        header = _checked(scan.header, path, names[name][0])
        segment = WalSegment(path, header.epoch, header.first_seq, len(data))
        for frame in scan.frames:
            segment.note(frame)
            last_seq = frame.last_seq
        if scan.torn:
            torn[segment] = scan.end
        segments.append(segment)
    await _cut(files, segments, torn)
    return segments, max((index for _, index in names.values()), default=0) + 1


async def _cut(files: Files, segments: list[WalSegment], torn: dict[WalSegment, int]) -> None:
    """Backwards, so that a crash in between leaves something that opens the same way."""
    tear = find_tear(segments)
    if tear is not None:
        for segment in reversed(segments[tear.place + 1 :]):
            await files.delete(segment.path)
        del segments[tear.place + 1 :]
        segments[-1].cut(tear.offset)
        torn[segments[-1]] = tear.offset
    while segments and not segments[-1].runs:
        await files.delete(segments.pop().path)
    if segments and segments[-1] in torn:
        await files.truncate_tail(segments[-1].path, torn[segments[-1]])
    for segment in segments:
        await files.make_durable(segment.path)


def _checked(header: SegmentHeader | None, path: str, epoch: int) -> SegmentHeader:
    if header is None:
        raise DamagedLog(
            f"{path}: the segment header is damaged, and later segments follow; restore the file from a copy, or rejoin this"
            " site from the other one",
            file=path, offset=0,
        )
    if header.wal != path.rpartition("/")[2] or header.epoch != epoch:
        raise DamagedLog(f"{path} has the header of {header.wal}: give it that name again", file=path, offset=0)
    return header
