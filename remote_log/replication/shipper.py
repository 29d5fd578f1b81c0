"""The shipper: the sending end of the asynchronous replicator, at the active.

It reads the WAL behind what the engine has applied and posts frames to the other site's sink; a follower that is empty, or
behind the oldest kept frame, gets base data first: a snapshot in key order, then the log from there. Nothing is sent to one
whose release does not fit this one (understanding.py).

What always holds: only committed, applied frames are shipped, in order; the follower's own position decides where to continue,
never a memory of ours, once this log was found to hold it: a position above its end, or at another frame, is that of a follower
that has diverged, and nothing is trimmed by it; a follower that holds less than it had stored is noticed (setback.py), and
continues from where it stands, or with base data; nothing here ever waits on the write path, nor it on this.
Batches adapt: what gathered while the last one travelled goes next. Source: protocol.md section 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Protocol

import msgspec

from remote_log.replication.base_sender import BaseSender, BaseSettings
from remote_log.replication.formats import CALLS
from remote_log.replication.messages import (
    FOLLOW,
    REPLICATE,
    TRACES_MAX,
    BaseDoneRequest,
    BaseRequest,
    FollowRequest,
    LogPoint,
    Position,
    ReplicateRequest,
    Transport,
    Vouched,
    addressed,
    not_understood,
    pack_history,
)
from remote_log.replication.setback import Setbacks
from remote_log.replication.understanding import Understanding
from storage.clock import Clock
from storage.engine import StorageEngine
from storage.log.wal import Wal
from storage.settings import KIB, MIB, RUN_TIME, NotInFile, Within
from storage.tracing import Span
from twinlog.errors import Fenced, LogGap, MalformedBody, PeerError, Refused, TwinlogError


@dataclass(frozen=True, slots=True)
class ShipperSettings:
    batch_bytes_max: Annotated[int, Within(4 * KIB, 64 * MIB), RUN_TIME] = 4 * MIB
    batch_interval_s: Annotated[float, NotInFile()] = 0.02  # gather at least this long: a busy pair pays no request a frame
    idle_poll_s: Annotated[float, NotInFile()] = 0.5  # asks for the durable position when there is nothing to send
    retry_s: Annotated[float, NotInFile()] = 0.2
    call_timeout_s: Annotated[float, NotInFile()] = 10.0
    base: Annotated[BaseSettings, NotInFile()] = field(default_factory=BaseSettings)


async def holds(wal: Wal, end: int, at: LogPoint) -> bool:
    """False: the log, which ends at `end`, does not hold the frame that ends at `at`. Of what was trimmed nobody knows."""
    if at.seq > end:
        return False
    first = wal.first_previous
    if first is None or at.seq <= first:
        return True
    frame = await wal.frame_at(at.seq)
    return frame is not None and frame.epoch == at.epoch and at.crc in (None, frame.crc)


class PeerView(msgspec.Struct, frozen=True, gc=False):
    """The active's knowledge of its follower, which was true at `at_s` (monotonic: when it was asked) or later. `durable_seq`:
    of this log, as of when it last followed; None once it has said that it does not: that may be of another log."""

    state: str = "unknown"  # unknown | following | diverged | loading | busy | refused (by an answer) | unreachable
    applied_seq: int | None = None
    durable_seq: int | None = None
    at_s: float | None = None
    why: str = ""


class AppliedLog(Protocol):
    """The part of gateway/epoch/commit_log.py that is shipped: how far it is applied, and a sign of more."""

    @property
    def applied_seq(self) -> int: ...
    @property
    def committed_changed(self) -> asyncio.Event: ...


class ShippedTraces(Protocol):
    """The part of gateway/epoch/write_traces.py that is shipped."""

    def shipped(self, after: int, upto: int, most: int) -> list[tuple[int, Span]]: ...
    def arrived(self, seq: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ShipperPorts:
    transport: Transport
    wal: Wal
    engine: StorageEngine
    clock: Clock
    understanding: Understanding


class Shipper:
    """Ships `log` as `site` of `pair`, in `epoch`. `on_position` is called with each view of the peer."""

    def __init__(
        self, ports: ShipperPorts, log: AppliedLog, *, site: str, pair: str, epoch: int,
        on_position: Callable[[PeerView], None], settings: ShipperSettings, traces: ShippedTraces | None = None,
    ) -> None:
        """`traces`: None where they are off."""
        self._ports, self._log, self._site, self._pair, self._epoch = ports, log, site, pair, epoch
        self._on_position, self._settings, self._traces = on_position, settings, traces
        self.view = PeerView()
        self.setbacks = Setbacks()
        self._flush_wanted = False
        self._shipped: LogPoint | None = None  # the end of the last frame that was sent
        self._answered_s = 0.0  # when the last answer came
        self._not_held: LogPoint | None = None  # a position of the follower's that is not in this log
        self._base = BaseSender(
            epoch=epoch, engine=ports.engine, wal=ports.wal, clock=ports.clock, call=self._call, settings=settings.base
        )
        self.frames_shipped = 0
        self.bytes_shipped = 0

    @property
    def base_rows_sent(self) -> int:
        return self._base.rows_sent

    def apply(self, settings: ShipperSettings) -> None:
        """Other batches from the next one on."""
        self._settings = settings

    async def run(self) -> None:
        """Ships until it is cancelled. Raises Fenced when the peer follows a later epoch."""
        try:
            while True:
                try:
                    await self._session()
                except Fenced:
                    raise
                except TwinlogError as error:
                    view = self.view
                    if self._not_held is None:  # else it has diverged, and is seen as such
                        state = "unreachable" if isinstance(error, PeerError) else "refused"
                        self._see(PeerView(state, view.applied_seq, view.durable_seq, view.at_s, error.message))
                self._base.release_unused()
                await self._ports.clock.sleep(self._settings.retry_s)
        finally:
            self._base.release()

    def ask_flush(self) -> None:
        """Have the peer make what it has applied durable with the next call."""
        self._flush_wanted = True
        self._log.committed_changed.set()

    def _see(self, view: PeerView) -> None:
        self.view = view
        self._on_position(view)

    async def _call(self, method: str, request: FollowRequest | ReplicateRequest | BaseRequest | BaseDoneRequest) -> Position:
        """The follower's answer, once it can be true. Raises PeerError, Refused, Incompatible: nothing is made of it then."""
        # An answer may lie about for as long as this process was stopped: the follower can have lost since what it says.
        asked_s = self._ports.clock.monotonic_s()
        message = addressed(request, self._pair, self._ports.understanding.writes(CALLS))
        try:
            position = await self._ports.transport.call(method, message, Position, self._settings.call_timeout_s)
        except MalformedBody as error:
            raise Refused(not_understood(method, error)) from error
        if method == FOLLOW:
            await self._ports.understanding.hear(position.says)
        why = await self._disbelief(position) if position.state == "following" else None
        now_s = self._answered_s = self._ports.clock.monotonic_s()
        if why is not None:
            self._not_held = position.at
            self._see(PeerView("diverged", None, None, asked_s, why))
            raise PeerError(why)
        self.setbacks.weigh(position.state, position.durable_seq, now_s)
        durable_seq = position.durable_seq if position.state == "following" else None
        self._see(PeerView(position.state, position.applied_seq, durable_seq, asked_s, position.why))
        return position

    async def _disbelief(self, position: Position) -> str | None:
        """Returns why the follower cannot have followed this log; None: it can."""
        end = self._log.applied_seq
        if position.applied_seq > end or position.applied_epoch > self._epoch:
            return f"it says that it has applied sequence {position.applied_seq}, and the log here ends at {end}"
        if position.durable_seq > position.applied_seq:
            return f"it says that {position.durable_seq} is durable, above {position.applied_seq}, which it has applied"
        if position.at != self._shipped and not await holds(self._ports.wal, end, position.at):
            return f"what it has applied as sequence {position.applied_seq} is not in the log here"
        return None

    async def _session(self) -> None:
        """Agree on a position, then ship until something goes wrong."""
        not_held, self._not_held = self._not_held, None
        position = await self._call(FOLLOW, self._invitation(not_held))
        if position.state == "loading":
            position = await self._base.send(position.base, position.nonce)
        if position.state != "following":
            return
        self._base.release()
        while True:
            upto, as_of_s = self._log.applied_seq, self._ports.clock.monotonic_s()
            if position.applied_seq >= upto:
                await self._wait_for_more()
                frames_data = b""
                if self._log.applied_seq == upto:
                    as_of_s = self._ports.clock.monotonic_s()
            else:
                try:
                    frames = await self._ports.wal.read(position.applied_seq, upto, self._settings.batch_bytes_max)
                except LogGap:
                    return  # the next invitation says where the log begins
                frames_data = b"".join(frame.data for frame in frames)
                self.frames_shipped += len(frames)
                self.bytes_shipped += len(frames_data)
                self._shipped = LogPoint(frames[-1].last_seq, frames[-1].epoch, frames[-1].crc)
            flush, self._flush_wanted = self._flush_wanted, False
            vouched = Vouched(position.stamp, as_of_s - self._answered_s, upto) if position.stamp is not None else None
            request = ReplicateRequest(self._epoch, position.at, frames_data, flush, vouched)
            if self._traces is None or not frames_data:
                position = await self._call(REPLICATE, request)
            else:
                position = await self._ship_traced(self._traces, request, frames[-1].last_seq)
            if len(frames_data) < self._settings.batch_bytes_max // 2:
                await self._ports.clock.sleep(self._settings.batch_interval_s)

    async def _ship_traced(self, traces: ShippedTraces, request: ReplicateRequest, upto: int) -> Position:
        """Ships frames up to `upto`, with the spans of the sampled writes among them."""
        spans = traces.shipped(request.after.seq, upto, TRACES_MAX)
        request.traces = [(seq, span.traceparent) for seq, span in spans]
        states = [span.tracestate for _, span in spans]
        request.trace_states = states if any(states) else []
        error = "cancelled"
        try:
            position = await self._call(REPLICATE, request)
            traces.arrived(position.applied_seq)
            error = ""
        except TwinlogError as failure:
            error = failure.code
            raise
        finally:
            for _, span in spans:
                span.end(error)
        return position

    def _invitation(self, not_held: LogPoint | None) -> FollowRequest:
        history, says = pack_history(self._ports.engine.applied.epochs), self._ports.understanding.own
        return FollowRequest(self._epoch, self._site, history, self._ports.wal.first_previous or 0, not_held, says)

    async def _wait_for_more(self) -> None:
        self._log.committed_changed.clear()
        try:
            async with asyncio.timeout(self._settings.idle_poll_s):
                await self._log.committed_changed.wait()
        except TimeoutError:
            return  # nothing new: ask for the durable position
