"""The shipper: the sending end of the asynchronous replicator, at the active.

It reads the WAL behind what the engine has applied and posts frames to the other site's sink; a follower that is empty, or
behind the oldest kept frame, gets base data first: a snapshot in key order, then the log from there.

What always holds: only committed, applied frames are shipped, in order; the follower's own position decides where to go on,
never a memory of ours; nothing here ever waits on the write path, nor it on this. Batches adapt: what gathered while the
last one travelled goes next. Source: protocol.md section 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from remote_log.base_data import base_parts
from remote_log.messages import (
    BASE,
    BASE_DONE,
    FOLLOW,
    REPLICATE,
    BaseDoneRequest,
    BaseRequest,
    FollowRequest,
    Position,
    ReplicateRequest,
    from_message,
    pack_history,
    pack_outcomes,
    to_message,
)
from remote_log.transport import Transport
from storage.clock import Clock
from storage.engine import Snapshot, StorageEngine
from storage.errors import Fenced, LogGap, TwinlogError
from storage.wal import Wal


@dataclass(frozen=True, slots=True)
class ShipperSettings:
    batch_bytes_max: int = 4 << 20
    batch_interval_s: float = 0.02  # gather at least this long, so that a busy pair does not pay a request per frame
    idle_poll_s: float = 0.5  # asks for the durable position when there is nothing to send
    retry_s: float = 0.5
    call_timeout_s: float = 10.0
    base_part_entries: int = 2_000  # rows and request outcomes
    base_part_bytes: int = 2 << 20  # of rows


@dataclass(frozen=True, slots=True)
class PeerView:
    """What the active knows of its follower, and when it learned it (`at_s`, monotonic)."""

    state: str = "unknown"  # unknown | following | diverged | loading | busy | unreachable
    applied_seq: int | None = None
    durable_seq: int | None = None
    at_s: float | None = None
    why: str = ""


class Shipper:
    """`run` goes on until it is cancelled, or until the peer follows a later epoch (`on_fenced`)."""

    def __init__(
        self, *, site: str, epoch: int, transport: Transport, wal: Wal, engine: StorageEngine, clock: Clock,
        applied: Callable[[], int], changed: asyncio.Event, on_position: Callable[[PeerView], None],
        on_fenced: Callable[[Fenced], None], settings: ShipperSettings,
    ) -> None:
        self._site, self._epoch, self._transport = site, epoch, transport
        self._wal, self._engine, self._clock = wal, engine, clock
        self._applied, self._changed = applied, changed
        self._on_position, self._on_fenced = on_position, on_fenced
        self._settings = settings
        self.view = PeerView()
        self._flush_wanted = False
        self._loads = 0  # of base data begun in this epoch: the follower tells their parts apart by it
        self.frames_shipped = 0
        self.bytes_shipped = 0
        self.base_rows_sent = 0

    async def run(self) -> None:
        while True:
            try:
                await self._session()
            except Fenced as error:
                self._on_fenced(error)
                return
            except TwinlogError as error:
                self._see(PeerView("unreachable", self.view.applied_seq, self.view.durable_seq, self.view.at_s, error.message))
            await self._clock.sleep(self._settings.retry_s)

    def ask_flush(self) -> None:
        """Have the peer make what it has applied durable with the next call."""
        self._flush_wanted = True
        self._changed.set()

    def _see(self, view: PeerView) -> None:
        self.view = view
        self._on_position(view)

    def _note(self, position: Position) -> Position:
        self._see(
            PeerView(position.state, position.applied_seq, position.durable_seq, self._clock.monotonic_s(), position.why)
        )
        return position

    async def _call(self, method: str, request: FollowRequest | ReplicateRequest | BaseRequest | BaseDoneRequest) -> Position:
        reply = await self._transport.call(method, to_message(request), self._settings.call_timeout_s)
        return self._note(from_message(Position, reply))

    async def _session(self) -> None:
        """Agree on a position, then ship until something goes wrong."""
        history = pack_history(self._engine.epochs())
        position = await self._call(FOLLOW, FollowRequest(self._epoch, self._site, history))
        if position.state == "loading":
            position = await self._send_base()
        if position.state != "following":
            return
        while True:
            upto = self._applied()
            if position.applied_seq >= upto:
                await self._wait_for_more()
                frames_data = b""
            else:
                try:
                    frames = await self._wal.read(position.applied_seq, upto, self._settings.batch_bytes_max)
                except LogGap:
                    position = await self._send_base()
                    continue
                frames_data = b"".join(frame.data for frame in frames)
                self.frames_shipped += len(frames)
                self.bytes_shipped += len(frames_data)
            flush, self._flush_wanted = self._flush_wanted, False
            position = await self._call(REPLICATE, ReplicateRequest(self._epoch, frames_data, flush))
            if len(frames_data) < self._settings.batch_bytes_max // 2:
                await self._clock.sleep(self._settings.batch_interval_s)

    async def _wait_for_more(self) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(self._settings.idle_poll_s):
                await self._changed.wait()
        except TimeoutError:
            return  # nothing new: ask for the durable position

    async def _send_base(self) -> Position:
        """Everything the engine holds at one point, in key order, part by part."""
        self._loads += 1
        snapshot = await self._engine.snapshot()
        try:
            schemas = self._engine.schemas()
            history = [entry for entry in self._engine.epochs() if entry.first_seq <= snapshot.seq]
            timestamp = self._engine.last_timestamp
            parts = await self._send_base_parts(snapshot, sorted(schemas))
            done = BaseDoneRequest(
                self._epoch, self._loads, parts, snapshot.seq, history[-1].epoch, timestamp, schemas, pack_history(history)
            )
            return await self._call(BASE_DONE, done)
        finally:
            snapshot.close()

    async def _send_base_parts(self, snapshot: Snapshot, tables: list[int]) -> int:
        """How many parts were sent."""
        settings, sent = self._settings, 0
        parts = base_parts(snapshot, tables, entries_max=settings.base_part_entries, bytes_max=settings.base_part_bytes)
        async with aclosing(parts):
            async for part in parts:
                rows = [(table, row.key, row.value, row.version) for table, row in part.rows]
                await self._call(BASE, BaseRequest(self._epoch, self._loads, sent, rows, pack_outcomes(part.outcomes)))
                self.base_rows_sent += len(rows)
                sent += 1
        return sent
