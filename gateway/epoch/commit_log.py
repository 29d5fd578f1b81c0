"""The commit driver: requests in, frames to both logs, committed frames to the engine, acknowledgements out.

`commit_core.CommitCore` decides; this performs. Requests that arrive while the event loop is busy share a frame; there is no
artificial delay. Both logs are written at the same time and sync at their own pace; the engine applies committed frames in
order, several per transaction; then, and only within the read lease, the requests are answered.

What always holds:
- a request's future is answered once; its `settled` hook runs exactly once, when its fate in the log is known;
- nothing is answered as written before it is committed, applied and the lease is valid (P1, P2, P3);
- a request that leaves by its deadline is `not applied` while it waits for a frame, `unknown` afterwards (P5);
- an exception that nobody foresaw strands no request: where no frame was made nothing is logged, else the epoch ends, and its
  requests are answered with what is known.
Source: protocol.md section 4.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

import structlog

from gateway.epoch.commit_rule import CommitCore, CommitMode, CommitSettings, Committed
from gateway.epoch.lag_marks import LagMarks
from gateway.epoch.pending import Acknowledged, Pending
from gateway.epoch.write_traces import REMOTE, WAL, WriteTraces
from gateway.service.histogram import Histogram
from remote_log.fencing.read_lease import ReadLease
from storage.cancellation import ended, unless_asked
from storage.clock import Clock, HybridClock
from storage.engines.applying import FrameApplier
from storage.failpoints import Failpoints
from storage.log.frame import Flags, Frame
from storage.log.record import Record, RecordKind
from storage.log.wal import Wal
from twinlog.errors import LogError, OutcomeUnknown, TooLarge, TwinlogError, Unavailable, named, words

log = structlog.get_logger("twinlog.commit")
_BARRIER = int(Flags.BARRIER)
_T = TypeVar("_T")


class RemoteLog(Protocol):
    """The driver's view of remote_log/writing/writer.py."""

    def submit(self, frame: Frame) -> None: ...
    def drop_after(self, seq: int) -> None: ...


class CommitLog:
    """The write path of one active epoch. `stop` ends it for good; the next epoch makes a new one."""

    def __init__(
        self, core: CommitCore, *, wal: Wal, applier: FrameApplier, clock: Clock, hybrid: HybridClock, lease: ReadLease,
        settings: CommitSettings, on_applied: Callable[[], None], on_broken: Callable[[TwinlogError], None],
        failpoints: Failpoints, traces: WriteTraces | None = None, remote_appends: Histogram | None = None,
    ) -> None:
        """`traces`: None where traces are off. `remote_appends`: the histogram of who makes the remote writers."""
        self.core = core
        self.applied_seq = core.committed
        self.appends = Histogram()  # to the WAL that succeeded, until they were synced
        self.applies = Histogram()  # how long requests waited for the storage to take their frames
        self.snapshots = Histogram()  # the same, where a barrier's snapshot was kept behind them
        self.marks = LagMarks(core.committed, clock.monotonic_s())
        self.remote: RemoteLog | None = None
        self.committed_changed = asyncio.Event()  # the shipper waits for it, and clears it
        self._wal, self._applier, self._clock, self._hybrid, self._lease = wal, applier, clock, hybrid, lease
        self._settings, self._on_applied, self._on_broken = settings, on_applied, on_broken
        self._hit, self._traces = failpoints.hit, traces
        self._remote_appends = remote_appends or Histogram()
        self._queue: deque[Pending] = deque()
        self._framed: dict[int, list[Pending]] = {}  # first_seq -> requests of that frame
        self._to_apply: deque[Committed] = deque()
        self._unproved: deque[tuple[Pending, Acknowledged]] = deque()  # applied, waiting for a valid lease
        self._wake = asyncio.Event()
        self._quiet = asyncio.Event()
        self._flush_scheduled = False
        self._sealing = self._broken = False
        self.acknowledged_s: float | None = None  # when something was last acknowledged, by the monotonic clock
        self.local_trouble: str | None = None  # why the WAL takes nothing at the moment
        self._waiting_since_s: float | None = None  # somebody waits, and since then nothing was acknowledged
        self._stopped: TwinlogError | None = None
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._spawn(self._apply_loop)
        self._spawn(self._sweep_loop)

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._loop.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Whatever ends a part of the write path ends the epoch: requests must not wait on it in silence."""
        try:
            await unless_asked(work(), "a part of the write path")
        except TwinlogError as error:
            self._on_broken(error)
        except Exception as error:
            self._broken_by(error)

    def _broken_by(self, error: BaseException) -> None:
        self._broken = True
        log.error("internal error", traceback="".join(traceback.format_exception(error)))
        self._on_broken(TwinlogError(f"an internal error in the write path: {named(error)}"))

    def _settle(self, members: Iterable[Pending]) -> None:
        """The fate of these requests is known. What one of them does then keeps no other one waiting."""
        for pending in members:
            try:
                pending.settle()
            except Exception as error:
                self._broken_by(error)

    def _refuse(self, members: Iterable[Pending], error: TwinlogError) -> None:
        members = list(members)
        for pending in members:
            pending.fail(error)
        self._settle(members)

    # ---- in
    def submit(self, pending: Pending) -> None:
        """Queue one request. Its answer comes through `pending.answer`."""
        if self._stopped is not None:
            self._refuse([pending], self._stopped)
            return
        self._queue.append(pending)
        self._schedule_flush()

    def submit_mark(self, record: Record, timeout_s: float) -> asyncio.Future[Acknowledged]:
        """Log one record that is no client's (noop, barrier, mode)."""
        pending = Pending([record], 64, self._clock.monotonic_s() + timeout_s)
        self.submit(pending)
        return pending.answer

    def submit_barrier(self, name: str, timeout_s: float) -> asyncio.Future[Acknowledged]:
        """Log a barrier behind which every site keeps a snapshot. Acknowledged when this site has tried to."""
        record = Record(RecordKind.BARRIER, key=name.encode())
        pending = Pending([record], 64, self._clock.monotonic_s() + timeout_s, flags=_BARRIER)
        self.submit(pending)
        return pending.answer

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        queue, core, settings = self._queue, self.core, self._settings
        while queue and core.frames_in_flight < settings.frames_in_flight_max and not (self._sealing or self._broken):
            members: list[Pending] = []
            records: list[Record] = []
            size = flags = 0
            while queue and not flags and (not members or size + queue[0].size_bytes <= settings.frame_bytes_max):
                pending = queue.popleft()
                members.append(pending)
                records += pending.records
                size += pending.size_bytes
                flags = pending.flags
            frame = self._frame(members, records, flags)
            if frame is None:
                continue
            self._framed[frame.first_seq] = members
            if self._traces is not None:
                is_sent = core.writes_remote and self.remote is not None
                self._traces.framed(frame, members, (WAL, REMOTE) if is_sent else (WAL,))
            try:
                self._hit("commit.framed")
                self._append_local(frame)
                if core.writes_remote and self.remote is not None:
                    self._append_remote(self.remote, frame)
            except Exception as error:  # one log may have it: nobody knows, and the next frame would come behind a hole
                self._broken_by(error)

    def _frame(self, members: list[Pending], records: list[Record], flags: int) -> Frame | None:
        """The frame of these requests. None: there is none, and they are answered."""
        next_seq = self.core.next_seq
        try:
            return self.core.make(records, self._hybrid.reserve(len(records)), flags)
        except LogError as error:
            self._refuse(members, TooLarge(f"nothing was logged: {error.message}; send it in parts"))
        except Exception as error:
            if self.core.next_seq == next_seq:  # it was not made, and nothing has changed: the others need not suffer
                log.error("internal error", traceback=traceback.format_exc())
                said = f"an internal error, and nothing was logged: {named(error)}"
                self._refuse(members, Unavailable(said, retry_after_s=1))
            else:
                self._refuse(members, OutcomeUnknown(f"an internal error in the write path: {named(error)}"))
                self._broken_by(error)
        return None

    # ---- the local log
    def _append_local(self, frame: Frame) -> None:
        begun_s = self._clock.monotonic_s()

        def done(outcome: asyncio.Future[None]) -> None:
            if outcome.cancelled():
                error: BaseException | None = LogError("the append was cancelled") if self._stopped is None else None
            else:
                error = outcome.exception()
                if error is None:
                    self.appends.observe(self._clock.monotonic_s() - begun_s)
                    if self._traces is not None:
                        self._traces.synced(WAL, frame.last_seq, self.appends)
                    self._take(self._local_synced, frame.last_seq)
            if error is not None and frame.first_seq in self._framed:  # the first of the failed ones fails them all
                self._local_failed(error)

        asyncio.ensure_future(self._wal.append(frame)).add_done_callback(done)

    def _local_synced(self, seq: int) -> Committed | None:
        self._hit("commit.local_synced")
        return self.core.local_synced(seq)

    def _local_failed(self, error: BaseException) -> None:
        self._sealing, self.local_trouble = True, words(error)
        try:
            failed = self.core.local_failed()
            if self.remote is not None:
                self.remote.drop_after(failed.standing)
            self._wal.forget_after(failed.standing)
        except Exception as broken:
            self._broken_by(broken)
            return
        if self._traces is not None:
            self._traces.ended("log_failed", failed.standing)
        members = [pending for frame in failed.frames for pending in self._framed.pop(frame.first_seq)]
        self._refuse(members, OutcomeUnknown(f"the local log failed ({words(error)}): the write may or may not appear later"))
        if self._stopped is None:  # else the WAL is the next epoch's to roll
            self._spawn(self._roll)

    async def _roll(self) -> None:
        """A new segment, tried for ever: until there is one, requests wait and leave by their deadlines."""
        while True:
            try:
                await self._wal.roll(self.core.next_seq)
                break
            except LogError as error:
                self.local_trouble = error.message
                await self._clock.sleep(self._settings.roll_retry_s)
        self._sealing, self.local_trouble = False, None
        self._schedule_flush()

    # ---- the remote log
    def _append_remote(self, remote: RemoteLog, frame: Frame) -> None:
        try:
            remote.submit(frame)
        except TwinlogError as error:  # fenced since: the frame stays without its remote copy, and is never acknowledged
            self._on_broken(error)

    def remote_synced(self, seq: int, started_s: float) -> None:
        """The remote log holds everything up to `seq`; the append that proved it began at `started_s`."""
        self._lease.proof(started_s)
        if self._traces is not None:
            self._traces.synced(REMOTE, seq, self._remote_appends)
        self._take(self._remote_synced, seq)
        self._answer_proved()

    def _remote_synced(self, seq: int) -> Committed | None:
        self._hit("commit.remote_synced")
        return self.core.remote_synced(seq)

    def lease_confirmed(self, started_s: float) -> None:
        """The register said that nobody had taken over: the lease in an asynchronous mode, and after it had run out."""
        self._lease.confirm(started_s)
        self._answer_proved()

    # ---- modes
    def set_mode(self, mode: CommitMode) -> None:
        self._take(self.core.set_mode, mode)

    # ---- out
    def _take(self, event: Callable[[_T], Committed | None], told: _T) -> None:
        """Gives the commit rule an event and begins what it decides. Nobody waits for most of the callers: whatever breaks
        ends the epoch here."""
        try:
            committed = event(told)
        except Exception as error:
            self._broken_by(error)
            return
        if committed is None:
            return
        frames = committed.frames
        self.marks.committed(frames[-1].last_seq, sum(len(frame.data) for frame in frames), self._clock.monotonic_s())
        self._to_apply.append(committed)
        self._wake.set()
        if self._queue:
            self._schedule_flush()

    async def _apply_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._to_apply:
                groups = list(self._to_apply)
                self._to_apply.clear()
                frames = [frame for group in groups for frame in group.frames]
                self._hit("commit.committed")
                begun_s = self._clock.monotonic_s()
                if self._traces is not None:
                    self._traces.applying(frames)
                await self._applier.apply(frames)
                waited = self.snapshots if any(frame.flags & _BARRIER for frame in frames) else self.applies
                waited.observe(self._clock.monotonic_s() - begun_s)
                if self._traces is not None:
                    self._traces.applied(frames[-1].last_seq, waited)
                self._hit("commit.applied")
                self.applied_seq = frames[-1].last_seq
                self._on_applied()
                for group in groups:
                    self._acknowledge(group)
                self._answer_proved()
                for frame in frames:
                    frame.release_records()
                self._hit("commit.acknowledged")
                self.committed_changed.set()
            self._note_quiet()

    def _acknowledge(self, group: Committed) -> None:
        for frame in group.frames:
            seq, version = frame.first_seq - 1, frame.timestamp - 1
            members = self._framed.pop(frame.first_seq, ())
            for pending in members:
                seq += len(pending.records)
                version += len(pending.records)
                self._unproved.append((pending, Acknowledged(frame.epoch, seq, version, group.label)))
            self._settle(members)

    def _answer_proved(self) -> None:
        if self._unproved and self._lease.valid_at(now_s := self._clock.monotonic_s()):
            self.acknowledged_s = now_s
            while self._unproved:
                pending, ack = self._unproved.popleft()
                if not pending.answer.done():
                    pending.answer.set_result(ack)

    # ---- deadlines, draining, the end
    async def _sweep_loop(self) -> None:
        while True:
            await self._clock.sleep(self._settings.sweep_interval_s)
            now = self._clock.monotonic_s()
            self._note_waiting(now)
            waited = [p for p in self._queue if p.deadline_s <= now]
            for pending in waited:
                self._queue.remove(pending)
            if waited:
                text = "the write waited to its deadline and was not logged: try again"
                self._refuse(waited, Unavailable(text, retry_after_s=1))
            self._note_quiet()
            late = [p for members in self._framed.values() for p in members if p.deadline_s <= now]
            late += [p for p, _ in self._unproved if p.deadline_s <= now]
            for pending in late:
                pending.fail(OutcomeUnknown("not acknowledged by its deadline: the write may or may not appear later"))
            if late:
                self._unproved = deque(entry for entry in self._unproved if not entry[0].answer.done())

    def _note_waiting(self, now_s: float) -> None:
        """Notes since when requests wait in vain: looked at from time to time, so that no request pays for it."""
        since_s = self._waiting_since_s
        if not (self._queue or self._framed or self._unproved):
            self._waiting_since_s = None
        elif since_s is None or (self.acknowledged_s is not None and self.acknowledged_s >= since_s):
            self._waiting_since_s = now_s

    def waiting_age_s(self, now_s: float) -> float:
        """Returns for how long requests have waited without one acknowledgement; 0 when nobody waits."""
        return 0.0 if self._waiting_since_s is None else now_s - self._waiting_since_s

    def _note_quiet(self) -> None:
        if not (self._queue or self._framed or self._to_apply):
            self._quiet.set()

    async def drain(self) -> None:
        """Wait until everything submitted is settled. The caller stops admitting first and bounds the wait."""
        while self._queue or self._framed or self._to_apply:
            self._quiet.clear()
            await self._quiet.wait()
            if self._stopped is not None:
                raise self._stopped

    def apply(self, settings: CommitSettings) -> None:
        """Other bounds from the next frame on."""
        self._settings = settings

    async def stop(self, reason: TwinlogError) -> None:
        """End the write path: what was not framed is refused with `reason`, what was framed is unknown."""
        self._stopped = reason
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        unknown = OutcomeUnknown(f"the site stopped before the acknowledgement ({reason.message})")
        self._fail_all(reason, unknown)  # at once: nobody waits for a part that is slow to end
        await ended(tasks)
        self._fail_all(reason, unknown)
        waiting = [*self._queue, *(pending for members in self._framed.values() for pending in members)]
        self._queue.clear()
        self._framed.clear()
        self._unproved.clear()
        self._settle(waiting)
        if self._traces is not None:
            self._traces.ended(reason.code)
        self._quiet.set()

    def _fail_all(self, reason: TwinlogError, unknown: TwinlogError) -> None:
        for pending in self._queue:
            pending.fail(reason)
        for pending in (pending for members in self._framed.values() for pending in members):
            pending.fail(unknown)
        for pending, _ in self._unproved:
            pending.fail(unknown)
