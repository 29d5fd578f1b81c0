"""An active and a standby that fills itself from it: the real shipper, sink and WAL, on the memory engine; a call of the other
site that a test can break on its way there or back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any, TypeVar

import msgspec

from remote_log.replication.base_sender import BaseSettings
from remote_log.replication.messages import (
    BASE,
    BASE_DONE,
    FOLLOW,
    REPLICATE,
    BaseDoneRequest,
    BaseRequest,
    FollowRequest,
    Position,
    ReplicateRequest,
    decode_reply,
    decode_request,
    to_message,
)
from remote_log.replication.shipper import Shipper, ShipperPorts, ShipperSettings
from remote_log.replication.sink import Sink
from remote_log.replication.understanding import Understanding
from remote_log.replication.verification import Verifier
from storage.engine import StorageEngine, StoredRow
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.log.record import Record
from storage.log.wal import Wal, WalSettings
from tests.remote_log.replication.tables import put_table, upsert
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.engines.engine_rig import Log, T, request, start_epoch, value
from twinlog.errors import PeerError

ROWS = 40
PER_PART = 4
_T = TypeVar("_T")
SETTINGS = ShipperSettings(
    batch_interval_s=0, idle_poll_s=0, retry_s=0, base=BaseSettings(part_entries=PER_PART, hold_s=1_000)
)


class Clock:
    """Time that passes only when a test says so; sleeping is one turn of the loop."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return 0

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(0)


async def confirmed(epoch: int) -> None:
    """Every epoch was given away."""


class Standby:
    def __init__(self, clock: Clock, engine: StorageEngine | None = None) -> None:
        self.engine, self._clock = engine or MemoryEngine(), clock
        self._nonces = map(str, count())
        self.restart()

    def restart(self) -> None:
        applier = FrameApplier(self.engine, self._clock, BarrierLimits(), on_refused=lambda name, why: None)
        self.sink = Sink(
            self.engine, self._clock, applier, Verifier("ab"), refusal=lambda: None, on_applied=lambda: None,
            confirm=confirmed, new_nonce=partial(next, self._nonces),
        )
        calls: dict[str, tuple[type[Any], Callable[[Any], Awaitable[msgspec.Struct]]]] = {
            FOLLOW: (FollowRequest, self.sink.follow), REPLICATE: (ReplicateRequest, self.sink.replicate),
            BASE: (BaseRequest, self.sink.base), BASE_DONE: (BaseDoneRequest, self.sink.base_done),
        }
        self.calls = calls

    async def answer(self, method: str, body: bytes) -> bytes:
        kind, call = self.calls[method]
        reply = await call(decode_request(kind, method, body))
        if isinstance(reply, Position) and reply.state == "diverged":
            await self.sink.want_base()  # as its rejoin would, once it has asked the active
        return msgspec.msgpack.encode(to_message(reply))


class World:
    """An active with a table of ROWS rows and as many outcomes, and a standby that has nothing. Both on the memory engine, or
    on those that are given."""

    def __init__(self, active: StorageEngine | None = None, standby: StorageEngine | None = None) -> None:
        self.clock = Clock()
        self.standby = Standby(self.clock, standby)
        self.engine, self.log, self.files = active or MemoryEngine(), Log(), MemoryFiles()
        self.parts_left = 1_000_000  # of base data; then the link breaks
        self.lose_answer = False  # it breaks behind the part that it still takes
        self.broken = asyncio.Event()
        self.called = asyncio.Event()
        self.before_part: Callable[[], Awaitable[None]] | None = None
        self.rows_taken = 0  # by the standby, the same ones twice if they were sent twice
        self.schemas_told: list[list[int] | None] = []  # by each part that the standby took
        self.writing: asyncio.Future[None] | None = None
        self.committed_changed = asyncio.Event()

    @property
    def applied_seq(self) -> int:
        return self.engine.applied.seq

    async def open(self) -> None:
        self.wal = await Wal.open(self.files, settings=WalSettings(segment_bytes=2000, tail_bytes_max=1))
        await self.wal.start(self.log.epoch, self.log.seq + 1)
        self.shipper = Shipper(
            ShipperPorts(self, self.wal, self.engine, self.clock, Understanding(self.files)), self, site="a", pair="a1" * 8,
            epoch=self.log.epoch, on_position=lambda view: None, settings=SETTINGS,
        )
        await self.write(start_epoch(self.log.epoch))
        self.running = asyncio.create_task(self.shipper.run())

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        if self.writing is not None:
            await self.writing
        await self.wal.close()

    async def fill(self) -> None:
        await self.write(put_table(T, history_s=100_000))
        for n in range(ROWS):
            await self.write(upsert(b"%03d" % n, value(c1=n), request=request(f"{n:03}")))

    async def write(self, *records: Record) -> None:
        """One after the other, and never half, also for a caller that is cancelled."""
        self.writing = asyncio.ensure_future(self._write(self.writing, records))
        await asyncio.shield(self.writing)

    async def _write(self, before: asyncio.Future[None] | None, records: tuple[Record, ...]) -> None:
        if before is not None:
            await before
        frame = self.log.frame(*records)
        await self.wal.append(frame)
        await self.engine.apply([frame])
        self.committed_changed.set()

    async def call(self, method: str, message: dict[str, Any], kind: type[_T], timeout_s: float) -> _T:
        body = msgspec.msgpack.encode(message)
        breaks = False
        if method == BASE:
            if self.before_part is not None:
                await self.before_part()
            breaks = self.parts_left <= 0
            if breaks and not self.lose_answer:
                self._break()
            self.parts_left -= 1
        answer = decode_reply(kind, method, await self.standby.answer(method, body))
        self.called.set()
        if method == BASE:
            self.rows_taken += len(message["rows"])
            self.schemas_told.append(message["schemas"] and sorted(message["schemas"]))
        if breaks:
            self._break()
        return answer

    def _break(self) -> None:
        self.broken.set()
        raise PeerError("injected: the link broke")

    async def cut_after(self, parts: int, *, lose_answer: bool = False) -> None:
        """Let `parts` more parts through (one more if its answer is lost), and wait until the link has broken."""
        self.parts_left, self.lose_answer = parts, lose_answer
        self.broken.clear()
        waiting = asyncio.create_task(self.broken.wait())
        done = asyncio.create_task(self.equal())
        await asyncio.wait([waiting, done], return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, done):
            task.cancel()
        await asyncio.gather(waiting, done, return_exceptions=True)

    async def equal(self) -> None:
        """Wait until the standby has everything."""
        sink, engine = self.standby.sink, self.standby.engine
        while sink is not self.standby.sink or not sink.is_prefix or engine.applied.seq != self.engine.applied.seq:
            sink = self.standby.sink
            self.called.clear()
            await self.called.wait()

    async def finish(self) -> None:
        """Mend everything, and compare all that a site keeps."""
        self.parts_left, self.before_part = 1_000_000, None
        await self.equal()
        assert await content(self.standby.engine) == await content(self.engine)
        since = self.standby.engine.applied.history_from(T, 0)
        for moment in range(since, self.engine.applied.timestamp + 1):
            assert await rows(self.standby.engine, moment) == await rows(self.engine, moment)

    async def restart_active(self) -> None:
        """A new process on the same log and storage, in a new epoch."""
        await self.close()
        self.log.epoch += 1
        await self.open()


async def rows(engine: StorageEngine, as_of: int | None = None) -> list[StoredRow]:
    return list(await engine.scan(T, None, None, reverse=False, limit=1_000, as_of=as_of))


async def content(engine: StorageEngine) -> dict[str, Any]:
    snapshot = await engine.snapshot()
    return {
        "rows": await rows(engine), "schemas": engine.applied.schemas(), "epochs": engine.applied.epochs,
        "outcomes": await snapshot.request_outcomes(None, limit=1_000),
        "applied": (engine.applied.seq, engine.applied.epoch, engine.applied.timestamp),
    }


async def a_world() -> World:
    world = World()
    await world.open()
    world.running.cancel()  # fill first
    await asyncio.gather(world.running, return_exceptions=True)
    await world.fill()
    await world.wal.trim(world.log.seq + 1)
    await world.standby.engine.load_base([], [], b"", True, {})  # what holds nothing that the log could continue
    world.running = asyncio.create_task(world.shipper.run())
    return world
