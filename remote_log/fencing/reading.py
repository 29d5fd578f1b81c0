"""Reading the segments of a remote log: their names, the frames of those that are closed, what is missing.

What always holds: `read_frames` reads only segments that are proven closed. Source: protocol.md section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from remote_log.dfs.port import Dfs
from remote_log.fencing.claims import claimed_epochs
from remote_log.layout import EPOCH_MAX, RemoteLayout, SegmentName
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.frame import Frame, parse_frame
from storage.log.segment import (
    HEADER_BYTES,
    HEADER_BYTES_MAX,
    SegmentScan,
    check_order,
    check_pair,
    cipher_of,
    frames_before_damage,
    parse_header,
    parse_remote_name,
    scan_segment,
)
from twinlog.errors import BrokenFrame, BrokenHeader, DamagedLog, DfsNotFound, LeaseNotRecovered

Progress = Callable[[int, int], None]  # segments done, of how many
FIRST_BYTES = 64 << 10, 8 << 20  # read up to the end of a first frame: the usual need, then the most


async def segments_below(dfs: Dfs, layout: RemoteLayout, below_epoch: int) -> list[str]:
    """Paths of the segments of all lower epochs, by epoch and name."""
    paths = []
    for folder in await dfs.list(layout.folder):
        epoch = layout.parse_epoch(folder.name) if folder.is_folder else None
        if epoch is not None and epoch < below_epoch:
            paths += await segments_of(dfs, layout, epoch)
    return paths


async def segments_of(dfs: Dfs, layout: RemoteLayout, epoch: int) -> list[str]:
    """Paths of one epoch's segments, by name."""
    folder = layout.epoch_folder(epoch)
    names = [entry.name for entry in await dfs.list(folder) if not entry.is_folder]
    return [f"{folder}/{name}" for name in names if parse_remote_name(name) is not None]


async def read_frames(
    dfs: Dfs, layout: RemoteLayout, below_epoch: int, damaged: list[DamagedLog] | None = None,
    progress: Progress | None = None, *, pair: str = "", keys: Keyring = NO_KEYS,
) -> list[Frame]:
    """All frames of all lower epochs in the order of (epoch, sequence), each once; the caller follows the chain.

    Raises DamagedLog with the DFS path; KeyUnavailable; LeaseNotRecovered for a segment that is open: fence (again) first.
    With `damaged`, for whoever can do without: of a damaged segment what stands before the damage, and the error goes there.
    A segment of another pair than `pair` is damage as a whole; "": not known.
    """
    frames: dict[bytes, Frame] = {}
    paths = await segments_below(dfs, layout, below_epoch)
    for number, path in enumerate(paths, 1):
        try:
            found = await read_segment(dfs, layout, path, pair, keys)
        except DamagedLog as error:
            if damaged is None:
                raise
            damaged.append(error)
            found = frames_before_damage(await dfs.read(path), path, pair, keys)
        for frame in found:
            frames[frame.data] = frame
        if progress is not None:
            progress(number, len(paths))
    return sorted(frames.values(), key=lambda frame: frame.position)


async def read_segment(
    dfs: Dfs, layout: RemoteLayout, path: str, pair: str = "", keys: Keyring = NO_KEYS
) -> Sequence[Frame]:
    """The frames of one closed segment; none when it was trimmed meanwhile.

    It must be closed behind the reading too: a NameNode may say so before that is durable, and die. Its standby then knows
    the file as open, and reads it as empty until the DataNodes have reported.
    """
    try:
        await _check_closed(dfs, path)
        data = await dfs.read(path)
        await _check_closed(dfs, path)
    except DfsNotFound:
        return ()
    scan = scan_remote(data, layout, path, path, pair, keys)
    check_order(scan, path)
    return scan.frames


async def _check_closed(dfs: Dfs, path: str) -> None:
    if not await dfs.is_closed(path):
        raise LeaseNotRecovered(f"{path} is not closed: fence its epoch (again) before reading", file=path)


def scan_remote(
    data: bytes, layout: RemoteLayout, path: str, shown: str, pair: str = "", keys: Keyring = NO_KEYS
) -> SegmentScan:
    """Returns what stands in one segment. `shown`: its path for messages. Raises DamagedLog, also for one of another epoch,
    log or pair ("": not known), whatever its key; KeyUnavailable."""
    with suppress(BrokenHeader):
        header, name = parse_header(data), layout.parse(path)
        if isinstance(name, SegmentName) and (header.log, header.epoch) != (layout.log, name.epoch):
            raise DamagedLog(f"{shown} has a header of epoch {header.epoch} of log {header.log}:"
                             " it was put into the wrong folder", file=shown, offset=0)
        check_pair(header, pair, shown)
    return scan_segment(data, shown, keys=keys)


async def missing_from(dfs: Dfs, layout: RemoteLayout, epoch: int, keys: Keyring | None = None) -> str | None:
    """Names what the remote log of `epoch` lacks although a synchronous active of `epoch` never takes it away; None: nothing.

    Its claim was there before its first segment; its trimmer keeps the newest segment that has a header (trimmer.py). With
    `keys`, raises KeyUnavailable where they do not open that segment.
    """
    if epoch not in await claimed_epochs(dfs, layout):
        return f"the claim {layout.claim(epoch)}"
    for path in reversed(await segments_of(dfs, layout, epoch)):
        with suppress(BrokenHeader, DfsNotFound):
            header = parse_header(await dfs.read(path, 0, HEADER_BYTES_MAX))
            if header.epoch == epoch:
                if keys is not None:
                    cipher_of(header, keys, path)
                return None
    return f"every segment below {layout.epoch_folder(epoch)}"


async def newest_pair(dfs: Dfs, layout: RemoteLayout) -> str:
    """Returns the pair that the newest segment with a header names; "": there is none."""
    for path in reversed(await segments_below(dfs, layout, EPOCH_MAX + 1)):
        with suppress(BrokenHeader, DfsNotFound):
            return parse_header(await dfs.read(path, 0, HEADER_BYTES_MAX)).pair
    return ""


async def begins_after(dfs: Dfs, layout: RemoteLayout, epoch: int) -> int | None:
    """The sequence that the oldest frame of this log there continues, up to `epoch`, also while it is written; whoever holds
    less cannot follow it. None: no frame proves anything."""
    for path in await segments_below(dfs, layout, epoch + 1):
        data, begin = b"", HEADER_BYTES
        for length in FIRST_BYTES:
            with suppress(BrokenHeader, BrokenFrame, DfsNotFound):  # it is trimmed meanwhile
                data = await dfs.read(path, 0, length)
                begin = parse_header(data).begin
                return parse_frame(data, begin, sealed=True).previous
        if any(data[begin:]):  # else nothing was written into it yet
            return None
    return None
