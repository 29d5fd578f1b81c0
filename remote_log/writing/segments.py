"""The segments of one remote writer: made, checked against the claims, closed, remembered for the trimmer.

What always holds: no frame goes into a segment before the claims were listed after its creation; a segment's header is
durable before the first frame is sent; every append begins at a multiple of ALIGNMENT, so that it cannot harm, whatever
becomes of it, what was acknowledged before; a segment is marked closed only when the DFS has proven it; only a file that
this writer has surely made itself is in its list, for the trimmer deletes by that list what it does not read first. A
file whose creation may have happened is closed like the others, and left to the trimmer's eyes.
Source: protocol.md sections 3 and 5, storage/log/segment.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from remote_log.dfs.port import Dfs, DfsWriter
from remote_log.fencing.claims import check_not_fenced
from remote_log.fencing.fence import close_by_recovery
from remote_log.layout import RemoteLayout
from storage.clock import Clock
from storage.log.frame import Frame
from storage.log.segment import REMOTE_ALIGNMENT, SegmentHeader, aligned, encode_frames, encode_header
from twinlog.errors import DfsError, DfsExists

ALIGNMENT = REMOTE_ALIGNMENT  # bytes


@dataclass(slots=True)
class RemoteSegment:
    """`last_seq`: of the last frame that was SENT, so that nothing that may be in the file is overlooked; below
    `first_seq` when none was. `writer` None: given back. `bytes`: as sent, header and padding included."""

    path: str
    wal_name: str
    writer: DfsWriter | None = None
    first_seq: int = 0
    last_seq: int = -1
    bytes: int = 0
    begun: bool = False  # its header is durable
    closed: bool = False


class RemoteSegments:
    """All segments that one writer has begun, oldest first, in `known`."""

    def __init__(
        self, dfs: Dfs, layout: RemoteLayout, epoch: int, clock: Clock, wal_name: Callable[[], str], recovery_deadline_s: float
    ) -> None:
        self.known: list[RemoteSegment] = []
        self._dfs, self._layout, self._epoch, self._clock = dfs, layout, epoch, clock
        self._wal_name, self._recovery_deadline_s = wal_name, recovery_deadline_s
        self._number = 0
        self._releasing: set[asyncio.Task[None]] = set()
        self._unchecked: RemoteSegment | None = None
        self._uncertain: set[str] = set()  # paths whose creation failed, or seemed to

    async def open_next(self) -> RemoteSegment:
        """A new segment, after whose creation no higher claim was seen. Raises Fenced, DfsError."""
        if self._unchecked is None:
            self._unchecked = await self._create()
        await check_not_fenced(self._dfs, self._layout, self._epoch)
        segment, self._unchecked = self._unchecked, None
        return segment

    async def reopen(self) -> RemoteSegment:
        """At the start and after a failure: prove every segment of this writer closed, then open the next one. Raises Fenced,
        DfsError."""
        await check_not_fenced(self._dfs, self._layout, self._epoch)
        for segment in [segment for segment in self.known if not segment.closed and segment is not self._unchecked]:
            self._release(segment)
            await self._prove_closed(segment)
        await self._close_uncertain()
        return await self.open_next()

    def header(self, segment: RemoteSegment, first_seq: int) -> bytes:
        """Returns what must be durable in the segment before its first frame, with the sequence `first_seq`, is sent."""
        data = encode_header(SegmentHeader(self._layout.log, self._epoch, first_seq, segment.wal_name, ALIGNMENT))
        segment.first_seq, segment.last_seq, segment.bytes = first_seq, first_seq - 1, len(data)
        return data

    async def finish(self, segment: RemoteSegment) -> None:
        """Close a segment that is full; by lease recovery when its writer cannot. Raises DfsError: call again."""
        if segment.writer is not None:
            writer, segment.writer = segment.writer, None
            with suppress(DfsError):  # the proof that follows shows it
                await writer.close()
        await self._prove_closed(segment)
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

    def forget(self, path: str) -> None:
        """The trimmer has deleted it."""
        self.known = [segment for segment in self.known if segment.path != path]

    async def _create(self) -> RemoteSegment:
        while True:
            wal_name = self._wal_name()
            path = self._layout.segment(self._epoch, wal_name, self._number)
            tried_before = path in self._uncertain
            self._uncertain.add(path)
            try:
                writer = await self._dfs.create(path)
            except DfsExists:  # of an earlier writer of this epoch, or of our own create that seemed to fail
                self._number += 1
                if not tried_before:
                    self._uncertain.discard(path)
                continue
            self._number += 1
            self._uncertain.discard(path)
            segment = RemoteSegment(path, wal_name, writer)
            self.known.append(segment)
            return segment

    async def _close_uncertain(self) -> None:
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


def stored(frames: Iterable[Frame]) -> bytes:
    """The bytes of `frames` in a segment. HOT."""
    return encode_frames(frames, ALIGNMENT)


def stored_bytes(frame: Frame) -> int:
    """The length of a frame in a segment, with its padding. HOT."""
    return aligned(len(frame.data), ALIGNMENT)
