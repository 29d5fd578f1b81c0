"""Opening the local log after a crash: every segment is checked, the torn tail is cut, and nothing else is changed.

What always holds: what is cut was never acknowledged, as far as these files can prove; what stays is durable before it is
used, for the process before may have died between a write and its sync; anything else that is wrong is a DamagedLog that
names file and offset. Empty segments at the end (made ahead, or torn at birth) go away, so that the last
one holds the last frame. Names that are no segment's are left alone. Source: protocol.md sections 3 and 4.
"""

from __future__ import annotations

from storage.disk.port import Files
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.segment import HEADER_BYTES_MAX, commonest, pairs_named, parse_wal_name, scan_segment
from storage.log.wal_found import FoundWal
from storage.log.wal_segments import TornAt, WalSegment


async def recover(files: Files, folder: str, keys: Keyring = NO_KEYS) -> tuple[list[WalSegment], int, str]:
    """The segments in order, the index of the next one, and the pair whose log this is. Raises DamagedLog, KeyUnavailable."""
    listed = await files.list(folder)
    names = FoundWal(listed).names
    heads = [await files.read(f"{folder}/{name}", 0, HEADER_BYTES_MAX) for name in names]
    found = FoundWal(listed, commonest(pairs_named(heads)))
    for name in found.names:
        path = f"{folder}/{name}"
        data = await files.read(path)
        if not found.add(path, scan_segment(data, path, found.last_seq, keys), len(data)):
            await files.delete(path)  # torn at birth
    await _cut(files, found.segments, found.torn, found.tear())
    last_index = max((parsed[1] for name in listed if (parsed := parse_wal_name(name)) is not None), default=0)
    return found.segments, last_index + 1, found.pair if found.segments else ""


async def _cut(files: Files, segments: list[WalSegment], torn: dict[WalSegment, int], tear: TornAt | None) -> None:
    """Backwards, so that a crash in between leaves something that opens the same way."""
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
