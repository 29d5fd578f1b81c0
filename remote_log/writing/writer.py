"""The remote log's writer: takes frames in order, keeps several appends on their way, and never gives up.

What always holds:
- `on_synced` is called in the order of sequence, only for frames whose append has succeeded, with the time at which
  that append was STARTED: its success proves "not fenced" as of then, and of nothing later.
- frames are sent in the order of submission; all that were submitted before the writer got to run go in one append.
- after a failed append every frame that is not synced is appended again, to a new segment, after the old one is proven
  closed; for ever, with back-off. A frame that lands twice is the same frame.
- a higher claim, or a DFS that went back to an earlier state, ends the writer: `on_ended`, once; nothing is reported any more.
Source: protocol.md sections 4 and 5.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from typing import Annotated, Any

import msgspec

from remote_log.dfs.port import Dfs
from remote_log.dfs.retrying import retrying
from remote_log.layout import RemoteLayout
from remote_log.writing.segments import AppendMark, RemoteSegment, RemoteSegments, mark_of, stored
from storage.cancellation import unless_asked
from storage.clock import Clock
from storage.log.encryption import NO_KEYS, Keyring, LogKey
from storage.log.frame import Frame
from storage.settings import KIB, MIB, RESTART, KeyReferences, Within
from twinlog.errors import DfsError, Fenced, LogGap, TwinlogError, Unavailable, named

ENDS = Fenced, LogGap  # what a writer does not try again


@dataclass(frozen=True, slots=True)
class RemoteWriterSettings:
    segment_bytes: Annotated[int, Within(64 * KIB, 4096 * MIB), RESTART] = 16 * MIB  # of a segment, and the most in one append
    in_flight_max: Annotated[int, Within(1, 1024), RESTART] = 8  # appends outstanding
    retry_first_s: Annotated[float, Within(0.001, 60), RESTART] = 0.05
    retry_max_s: Annotated[float, Within(0.001, 600), RESTART] = 2.0
    lease_recovery_deadline_s: Annotated[float, Within(0.1, 3600), RESTART] = 60.0  # of one attempt to close a segment
    encryption_keys: Annotated[tuple[LogKey, ...], KeyReferences(), RESTART] = ()  # the first writes, all read; none: plain


class SegmentInfo(msgspec.Struct, frozen=True, gc=False):
    """`last_seq` is below `first_seq` when no frame was sent to it. `bytes`: as sent, header and padding included."""

    path: str
    first_seq: int
    last_seq: int
    bytes: int
    begun: bool  # its header is durable
    closed: bool


@dataclass(frozen=True, slots=True)
class Unsynced:
    """The frames that were submitted and are not known to be durable; `bytes` with padding; `age_s` of its oldest part, 0 when
    there is none."""

    frames: int
    bytes: int
    age_s: float


@dataclass(slots=True)
class _Append:
    """One append on its way. Without frames it is a segment's header; then `retires` is the segment before it."""

    frames: list[Frame]
    bytes: int
    last_seq: int
    started_s: float
    since_s: float
    done: asyncio.Future[None]
    segment: RemoteSegment
    mark: AppendMark
    retires: RemoteSegment | None = None


class RemoteWriter:
    """Writes one log in one epoch. `trouble` is the last failure while it tries again, None when all is well."""

    def __init__(
        self, dfs: Dfs, layout: RemoteLayout, epoch: int, clock: Clock, settings: RemoteWriterSettings, *,
        on_synced: Callable[[int, float], None], on_ended: Callable[[TwinlogError], None], wal_name: Callable[[], str],
        numbers: Iterator[int] | None = None, pair: str = "", keys: Keyring = NO_KEYS,
    ) -> None:
        """`numbers`: of its segments, shared by all writers of one epoch; None: it is the only one. `pair`, `keys`: for the
        headers."""
        self.trouble: TwinlogError | None = None
        self._clock, self._settings = clock, settings
        self._on_synced, self._on_ended = on_synced, on_ended
        deadline_s = settings.lease_recovery_deadline_s
        self._segments = RemoteSegments(dfs, layout, epoch, clock, wal_name, deadline_s, numbers or count(), pair, keys)
        self._stored_bytes = self._segments.stored_bytes
        self._segment: RemoteSegment | None = None
        self._next: RemoteSegment | None = None
        self._opening_next: asyncio.Task[None] | None = None
        self._writable = False  # the current segment has its header and takes frames
        self._pending: deque[Frame] = deque()
        self._pending_bytes = 0
        self._pending_since_s = 0.0
        self._in_flight: deque[_Append] = deque()
        self._pump_due = False
        self._next_seq = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._end: TwinlogError | None = None

    async def open(self, next_seq: int, first_frames: Sequence[Frame] = ()) -> None:
        """Create a segment, list the claims, and make `first_frames` durable in it.

        `next_seq`: the first sequence of this epoch. Raises Fenced, or DfsError: then make another writer, or call again; a
        second call closes first what the one before left open, for the trimmer takes only what is known to be closed.
        """
        self._take_back(list(first_frames), self._clock.monotonic_s())
        self._next_seq = next_seq
        try:
            segment = await self._segments.reopen()
            await self._write_header(segment)
            while self._pending:
                await self._write_first(segment)
        except BaseException:
            self._pending.clear()
            self._pending_bytes = 0
            self._segments.release_all()
            raise
        self._segment, self._writable = segment, True

    def submit(self, frame: Frame) -> None:
        """Take the next frame. Never waits. Raises Fenced, or Unavailable after `close`."""
        if self._end is not None:
            raise self._end
        if not self._pending:
            self._pending_since_s = self._clock.monotonic_s()
        self._pending.append(frame)
        self._pending_bytes += self._stored_bytes(frame)
        self._next_seq = frame.last_seq + 1
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def drop_after(self, seq: int) -> None:
        """Drops what was submitted above `seq`: it has failed locally, and need not be sent, or sent again."""
        self._take_back([frame for frame in self._pending if frame.last_seq <= seq], self._pending_since_s)
        for append in self._in_flight:
            append.frames = [frame for frame in append.frames if frame.last_seq <= seq]

    def unsynced(self) -> Unsynced:
        frames = len(self._pending) + sum(len(append.frames) for append in self._in_flight)
        if not frames:
            return Unsynced(0, 0, 0.0)
        size = self._pending_bytes + sum(append.bytes for append in self._in_flight)
        since_s = next((append.since_s for append in self._in_flight if append.frames), self._pending_since_s)
        return Unsynced(frames, size, self._clock.monotonic_s() - since_s)

    @property
    def segments(self) -> list[SegmentInfo]:
        """The segments that this writer has surely made, in the order of creation, until the trimmer deletes them."""
        return [SegmentInfo(s.path, s.first_seq, s.last_seq, s.bytes, s.begun, s.closed) for s in self._segments.known]

    def let_go(self, path: str) -> None:
        """The trimmer is about to delete this segment."""
        self._segments.let_go(path)

    def lets_go(self, path: str) -> bool:
        """True when the trimmer has begun to delete this segment, or it is forgotten."""
        return self._segments.is_needless(path)

    def forget(self, path: str) -> None:
        """The trimmer has deleted this segment."""
        self._segments.forget(path)

    async def close(self) -> None:
        """Wait for what is on its way, not for what would have to be sent again; close what the DFS lets us close, also when
        nobody waits for it any more: an epoch may end in the middle of a degrade."""
        if self._end is None:
            self._end = Unavailable("the remote log's writer was closed")
        self._writable = False
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks)
            if self._in_flight:
                await asyncio.wait([append.done for append in self._in_flight])
        finally:
            self._segments.release_all()
        await self._segments.close()

    # ---- the hot path: pending frames become appends, appends become reports
    def _pump(self) -> None:
        self._pump_due = False
        settings = self._settings
        while self._pending and self._writable and len(self._in_flight) < settings.in_flight_max:
            segment = self._segment
            assert segment is not None
            if segment.bytes >= settings.segment_bytes and self._next is not None:
                self._switch(segment, self._next)
                return
            frames, size = self._take_group()
            try:
                self._send(segment, frames, stored(frames, segment), size)
            except Exception as error:  # none of it is on its way, and what came behind it would prove it all the same
                self._take_back([*frames, *self._pending], self._pending_since_s)
                self._failed(error)
                return
            if 2 * segment.bytes >= settings.segment_bytes and self._next is None and self._opening_next is None:
                self._opening_next = self._spawn(self._retrying(self._open_next))

    def _take_group(self) -> tuple[list[Frame], int]:
        """All that is pending, or as much of it as fits a segment."""
        if self._pending_bytes <= self._settings.segment_bytes:
            frames, size = list(self._pending), self._pending_bytes
            self._pending.clear()
            self._pending_bytes = 0
            return frames, size
        frames = self._first_group()
        for _ in frames:
            self._pending.popleft()
        size = sum(map(self._stored_bytes, frames))
        self._pending_bytes -= size
        return frames, size

    def _send(
        self, segment: RemoteSegment, frames: list[Frame], data: bytes, size: int, retires: RemoteSegment | None = None
    ) -> None:
        assert segment.writer is not None
        started_s = self._clock.monotonic_s()
        done = asyncio.ensure_future(segment.writer.append(data))
        last_seq = frames[-1].last_seq if frames else 0
        if frames:
            segment.last_seq = max(segment.last_seq, last_seq)
            segment.bytes += size
        since_s = self._pending_since_s
        self._in_flight.append(
            _Append(frames, size, last_seq, started_s, since_s, done, segment, mark_of(data, segment.bytes), retires)
        )
        done.add_done_callback(self._settled)

    def _settled(self, done: asyncio.Future[None]) -> None:
        """An append has ended. Reports go out in order; the first failure takes everything behind it along."""
        if not done.cancelled():
            done.exception()  # seen, even when what it belonged to was given up meanwhile
        while self._in_flight and self._in_flight[0].done.done():
            append = self._in_flight[0]
            error = DfsError("the append was cancelled") if append.done.cancelled() else append.done.exception()
            if error is not None:
                self._failed(error)
                return
            self._in_flight.popleft()
            append.segment.mark = append.mark
            if append.retires is None:
                self._report(append.last_seq, append.started_s)
            elif self._end is None:
                assert self._segment is not None
                self._segment.begun = self._writable = True
                self._spawn(self._retrying(partial(self._segments.finish, append.retires)))
        if self._pending and self._writable:
            self._pump()

    def _report(self, last_seq: int, started_s: float) -> None:
        self.trouble = None
        if not isinstance(self._end, ENDS):
            self._on_synced(last_seq, started_s)

    # ---- rolling: the next segment is made ahead, the old one is closed behind
    async def _open_next(self) -> None:
        self._next = await self._segments.open_next()

    def _switch(self, old: RemoteSegment, new: RemoteSegment) -> None:
        """Frames wait until the new header is durable, once per segment: it names the first of them exactly."""
        self._segment, self._next, self._opening_next = new, None, None
        self._writable = False
        header = self._segments.header(new, self._pending[0].first_seq)
        self._send(new, [], header, 0, retires=old)

    # ---- failure: a new segment takes everything that is not synced
    def _failed(self, error: BaseException) -> None:
        self.trouble = _as_trouble(error)
        since_s = self._in_flight[0].since_s if self._in_flight else self._pending_since_s
        unsynced = [frame for append in self._in_flight for frame in append.frames]
        self._in_flight.clear()
        self._take_back([*unsynced, *self._pending], since_s)
        self._writable = False
        self._segment = self._next = None
        if self._opening_next is not None:
            self._opening_next.cancel()
            self._opening_next = None
        if self._end is None:
            self._spawn(self._retrying(self._resume))

    async def _resume(self) -> None:
        """One attempt: it has succeeded only when the first of the waiting frames is durable in the new segment."""
        segment = await self._segments.reopen()
        await self._write_header(segment)
        await self._write_first(segment)
        self._segment, self._writable = segment, True
        self.trouble = None
        self._pump()

    async def _write_header(self, segment: RemoteSegment) -> None:
        assert segment.writer is not None
        first_seq = min(self._pending[0].first_seq, self._next_seq) if self._pending else self._next_seq
        header = self._segments.header(segment, first_seq)
        await segment.writer.append(header)
        segment.begun = True
        segment.mark = mark_of(header, segment.bytes)

    async def _write_first(self, segment: RemoteSegment) -> None:
        """Send the first group and wait for it; it stays pending, and may be dropped, until it is durable."""
        group = self._first_group()
        if not group:
            return
        assert segment.writer is not None
        last = group[-1]
        segment.last_seq = max(segment.last_seq, last.last_seq)
        data = stored(group, segment)
        segment.bytes += len(data)
        started_s = self._clock.monotonic_s()
        await segment.writer.append(data)
        segment.mark = mark_of(data, segment.bytes)
        sent = set(group)
        self._take_back([frame for frame in self._pending if frame not in sent], self._pending_since_s)
        self._report(last.last_seq, started_s)

    def _first_group(self) -> list[Frame]:
        """The first pending frames: of one epoch, for copies of an older one must be durable before a frame says so, and
        no more bytes than a segment takes, but at least one."""
        group: list[Frame] = []
        size = 0
        for frame in self._pending:
            size += self._stored_bytes(frame)
            if group and (size > self._settings.segment_bytes or frame.epoch != group[0].epoch):
                break
            group.append(frame)
        return group

    # ---- small parts
    def _take_back(self, frames: list[Frame], since_s: float) -> None:
        self._pending = deque(frames)
        self._pending_bytes = sum(map(self._stored_bytes, frames))
        self._pending_since_s = since_s

    async def _retrying(self, attempt: Callable[[], Awaitable[None]]) -> None:
        """Tries until it succeeds; only one of ENDS ends it."""
        waits_s = self._settings.retry_first_s, self._settings.retry_max_s
        await retrying(
            self._clock, lambda: unless_asked(attempt(), "the writer of the remote log"), until_s=inf, waits_s=waits_s,
            transient=_is_transient, on_failure=self._note,
        )

    def _note(self, error: BaseException) -> None:
        self.trouble = _as_trouble(error)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, ENDS):
            self._stop(error)
        elif error is not None:
            raise error

    def _stop(self, error: TwinlogError) -> None:
        """A later epoch exists, or the DFS went back: end for good."""
        if isinstance(self._end, ENDS):
            return
        self._end, self._writable, self.trouble = error, False, error
        for task in self._tasks:
            task.cancel()
        self._on_ended(error)


def _is_transient(error: BaseException) -> bool:
    """Whatever a DFS client raises is tried again, also what nobody foresaw: giving up in silence would hold up every write."""
    return isinstance(error, Exception) and not isinstance(error, ENDS)


def _as_trouble(error: BaseException) -> TwinlogError:
    return error if isinstance(error, TwinlogError) else DfsError(f"the DFS client failed unexpectedly: {named(error)}")
