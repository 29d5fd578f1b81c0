"""The segments of one remote writer: made, checked against the claims, closed, remembered for the trimmer.

What always holds: no frame goes into a segment before the claims were listed after its creation; a segment's header is
durable before the first frame is sent; every append begins at a multiple of ALIGNMENT, so that it cannot harm, whatever
becomes of it, what was acknowledged before; a segment is marked closed only when the DFS has proven it; only a file that
this writer has surely made itself is in its list, for the trimmer deletes by that list what it does not read first; before a
segment is made, the DFS must still hold what was durable in the others. A file whose creation may have happened is closed like
the others, and left to the trimmer's eyes.
Source: protocol.md sections 3 and 5, storage/log/segment.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from remote_log.dfs.port import Dfs, DfsWriter
from remote_log.fencing.claims import check_not_fenced
from remote_log.fencing.fence import close_by_recovery
from remote_log.layout import RemoteLayout
from storage.clock import Clock
from storage.log.encryption import NO_KEYS, Keyring, SegmentCipher
from storage.log.frame import Frame
from storage.log.segment import REMOTE_ALIGNMENT, SegmentHeader, aligned, encode_frames, encode_header, encrypted
from twinlog.errors import DfsError, DfsExists, DfsNotFound, LogGap

ALIGNMENT = REMOTE_ALIGNMENT  # bytes
MARK_BYTES = 128  # the header of a frame, with the checksum of all of it


class AppendMark(NamedTuple):
    """An append to a segment: its position, its first bytes, and the position of its end."""

    at: int
    begin: bytes
    end: int


NO_MARK = AppendMark(0, b"", 0)


def mark_of(data: bytes, end: int) -> AppendMark:
    """The mark of an append of `data` that ends at `end`. HOT."""
    return AppendMark(end - len(data), data[:MARK_BYTES], end)


@dataclass(slots=True)
class RemoteSegment:
    """`last_seq`: of the last frame that was SENT, so that nothing that may be in the file is overlooked; below
    `first_seq` when none was. `writer` None: given back. `bytes`: as sent, header and padding included. `cipher`: seals its
    frames; None: they are plain."""

    path: str
    wal_name: str
    writer: DfsWriter | None = None
    first_seq: int = 0
    last_seq: int = -1
    bytes: int = 0
    begun: bool = False  # its header is durable
    closed: bool = False
    mark: AppendMark = NO_MARK  # of the last append that has succeeded
    needless: bool = False  # the trimmer deletes it, or has
    cipher: SegmentCipher | None = None


class RemoteSegments:
    """All segments that one writer has begun, oldest first, in `known`."""

    def __init__(
        self, dfs: Dfs, layout: RemoteLayout, epoch: int, clock: Clock, wal_name: Callable[[], str],
        recovery_deadline_s: float, numbers: Iterator[int], pair: str, keys: Keyring = NO_KEYS,
    ) -> None:
        """`pair`, `keys`: for the headers. `numbers`: for the names of segments, and never one twice in an epoch, whoever the
        writer: a DFS that went back may have a file of before, which must not be taken for another one."""
        self.known: list[RemoteSegment] = []
        self._dfs, self._layout, self._epoch, self._clock = dfs, layout, epoch, clock
        self._wal_name, self._recovery_deadline_s = wal_name, recovery_deadline_s
        self._numbers, self._number = numbers, next(numbers)
        self._pair, self._keys = pair, keys
        self._releasing: set[asyncio.Task[None]] = set()
        self._unchecked: RemoteSegment | None = None
        self._uncertain: set[str] = set()  # paths whose creation failed, or seemed to
        self._closing = asyncio.Lock()  # of these: a DFS may begin a recovery anew with each call

    async def open_next(self) -> RemoteSegment:
        """A new segment, after whose creation no higher claim was seen. Raises Fenced, DfsError, and LogGap as `check_kept`."""
        await self.check_kept()
        if self._unchecked is None:
            self._unchecked = await self._create()
        await check_not_fenced(self._dfs, self._layout, self._epoch)
        segment, self._unchecked = self._unchecked, None
        return segment

    async def reopen(self) -> RemoteSegment:
        """At the start and after a failure: prove every segment of this writer closed, then open the next one. Raises Fenced,
        DfsError."""
        await check_not_fenced(self._dfs, self._layout, self._epoch)
        await self.check_kept()  # what is gone cannot be proved to be closed
        for segment in [segment for segment in self.known if not segment.closed and segment is not self._unchecked]:
            self._release(segment)
            await self._prove_closed(segment)
        await self._close_uncertain()
        return await self.open_next()

    async def check_kept(self) -> None:
        """Raises LogGap when the DFS lacks what was durable on it, and what nobody deleted: it is back at an earlier state. A
        segment that is not closed when the listing begins may be listed with a length of earlier; and one that ends earlier may
        be followed by zeros, so the newest one that is closed is looked into: whatever is gone, its end is."""
        kept = [(segment, segment.mark.end if segment.closed else 0) for segment in self.known if not segment.needless]
        if not kept:
            return
        folder = self._layout.epoch_folder(self._epoch)
        there = {f"{folder}/{entry.name}": entry.length for entry in await self._dfs.list(folder)}
        for segment, closed_bytes in kept:
            if there.get(segment.path, -1) < closed_bytes and not self.is_needless(segment.path):
                raise went_back(segment.path, there.get(segment.path))
        newest = next((segment for segment, closed_bytes in reversed(kept) if closed_bytes), None)
        if newest is not None and not self.is_needless(newest.path):
            await self._check_mark(newest)

    async def _check_mark(self, segment: RemoteSegment) -> None:
        try:
            begin = await self._dfs.read(segment.path, segment.mark.at, len(segment.mark.begin))
        except DfsNotFound:
            begin = b""
        if begin != segment.mark.begin and not self.is_needless(segment.path):
            raise went_back(segment.path, segment.mark.at)

    def is_needless(self, path: str) -> bool:
        """True when the trimmer has deleted it, or deletes it now."""
        return all(segment.needless for segment in self.known if segment.path == path)

    def header(self, segment: RemoteSegment, first_seq: int) -> bytes:
        """Returns what must be durable in the segment before its first frame, with the sequence `first_seq`, is sent."""
        header = SegmentHeader(self._layout.log, self._epoch, first_seq, segment.wal_name, ALIGNMENT, self._pair)
        header, segment.cipher = encrypted(header, self._keys)
        data = encode_header(header)
        segment.first_seq, segment.last_seq, segment.bytes = first_seq, first_seq - 1, len(data)
        return data

    def stored_bytes(self, frame: Frame) -> int:
        """The length of a frame in a segment, with its padding. HOT."""
        return aligned(len(frame.data) + self._keys.added_bytes, ALIGNMENT)

    async def finish(self, segment: RemoteSegment) -> None:
        """Close a segment that is full; by lease recovery when its writer cannot. Raises DfsError: call again."""
        if segment.writer is not None:
            writer, segment.writer = segment.writer, None
            with suppress(DfsError):  # the proof that follows shows it
                await writer.close()
        await self._prove_closed(segment)
        if not self._closing.locked():  # else another one is at it, and nothing waits for this
            await self._close_uncertain()

    def release_all(self) -> None:
        """Close what can be closed, without waiting for it. The next fence closes the rest."""
        self._unchecked = None
        for segment in self.known:
            self._release(segment)

    async def close(self) -> None:
        """The same, and wait for it; every call of the DFS has its deadline."""
        self.release_all()
        if self._releasing:
            await asyncio.wait(self._releasing)

    def let_go(self, path: str) -> None:
        """The trimmer is about to delete it: from now on it may be missing."""
        for segment in self.known:
            segment.needless = segment.needless or segment.path == path

    def forget(self, path: str) -> None:
        """The trimmer has deleted it."""
        self.known = [segment for segment in self.known if segment.path != path]

    async def _create(self) -> RemoteSegment:
        while True:
            wal_name = self._wal_name()
            path = self._layout.segment(self._epoch, wal_name, self._number)
            tried_before = path in self._uncertain
            self._uncertain.discard(path)  # while it is being made nobody may close it: `finish` may run beside this
            try:
                writer = await self._dfs.create(path)
            except DfsExists:  # of an earlier writer of this epoch, or of our own create that seemed to fail
                self._number = next(self._numbers)
                if tried_before:
                    self._uncertain.add(path)
                continue
            except BaseException:  # also when this was cancelled
                self._uncertain.add(path)
                raise
            self._number = next(self._numbers)
            segment = RemoteSegment(path, wal_name, writer)
            self.known.append(segment)
            return segment

    async def _close_uncertain(self) -> None:
        async with self._closing:
            for path in sorted(self._uncertain):
                await close_by_recovery(self._dfs, path, self._clock, self._recovery_deadline_s)
                self._uncertain.discard(path)

    async def _prove_closed(self, segment: RemoteSegment) -> None:
        await close_by_recovery(self._dfs, segment.path, self._clock, self._recovery_deadline_s)
        segment.closed = True

    def _release(self, segment: RemoteSegment) -> None:
        """Let a writer that will not be used again close its file if it can, and give back what it holds."""
        writer, segment.writer = segment.writer, None
        if writer is None:
            return

        async def release() -> None:
            with suppress(DfsError):  # whether the file is closed is proven elsewhere
                await writer.close()

        task = asyncio.create_task(release())
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)


def went_back(path: str, size: int | None) -> LogGap:
    """The error of a writer whose DFS lost a segment, or, where it has a `size`, the end of it."""
    return LogGap(
        f"the DFS of the other site went back to an earlier state: {path} "
        + ("is gone" if size is None else f"ends at {size} or before")
        + ", and acknowledged records with it; this site has them all, begins a new epoch, and copies them there"
    )


def stored(frames: Iterable[Frame], segment: RemoteSegment) -> bytes:
    """The bytes of `frames` behind what was sent to `segment`. HOT."""
    return encode_frames(frames, ALIGNMENT, segment.bytes, segment.cipher)
