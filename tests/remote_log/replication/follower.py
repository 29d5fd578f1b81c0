"""A standby that follows, and everything that is stored there: for messages that must have no effect, or an honest one."""

from __future__ import annotations

from itertools import count
from typing import Any

import msgspec

from chaos.simulate.actors.lies import Message, Victim
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
    decode_request,
    pack_history,
)
from remote_log.replication.sink import Sink
from remote_log.replication.verification import Verifier
from storage.engines.applying import BarrierLimits, FrameApplier
from storage.engines.memory.engine import MemoryEngine
from storage.log.frame import COUNTER_BITS
from storage.rows.schema import decode_schema
from tests.remote_log.replication.base_world import content
from tests.remote_log.replication.tables import key, put_table, schema_of, upsert
from tests.storage.engines.engine_rig import Log, T, start_epoch, value
from twinlog.errors import Unavailable

EPOCH = 5
KINDS: dict[str, Any] = {
    FOLLOW: FollowRequest, REPLICATE: ReplicateRequest, BASE: BaseRequest, BASE_DONE: BaseDoneRequest,
}


class FixedClock:
    def __init__(self) -> None:
        self.now_s, self.ms = 100.0, 1_100_000_000

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return self.ms

    async def sleep(self, duration_s: float) -> None:
        raise NotImplementedError


async def only_known(epoch: int) -> None:
    if epoch > EPOCH:
        raise Unavailable(f"nobody was given epoch {epoch}")


class Follower:
    """A sink that follows epoch 5 of site a, with a table of a few rows."""

    def __init__(self) -> None:
        self.engine, self.clock, self.log = MemoryEngine(), FixedClock(), Log()
        self.log.epoch, self.log.timestamp = EPOCH, 1_000_000_000 << COUNTER_BITS
        applier = FrameApplier(self.engine, self.clock, BarrierLimits(), on_refused=lambda name, why: None)
        nonces = count()
        self.sink = Sink(
            self.engine, self.clock, applier, Verifier("ab"), refusal=lambda: None, on_applied=lambda: None,
            confirm=only_known, new_nonce=lambda: f"nonce {next(nonces)}",
        )

    async def begin(self) -> None:
        """The start of the epoch, by the honest way; a few rows."""
        await self.sink.follow(FollowRequest(EPOCH, "a", [(EPOCH, 1, 0, "a", "bootstrap")]))
        await self.ship(start_epoch(EPOCH), put_table(T))
        for n in range(3):
            await self.ship(upsert(b"%d" % n, value(c1=n, c2="x")))

    async def ship(self, *records: Any) -> Position:
        frame = self.log.frame(*records)
        position = await self.sink.replicate(ReplicateRequest(EPOCH, self.sink.point, frame.data))
        assert position.applied_seq == frame.last_seq
        return position

    def victim(self) -> Victim:
        history = pack_history(self.engine.applied.epochs)
        schema = decode_schema(schema_of(T))
        row = (T, key(b"1"), value(c1=1, c2="x"))
        return Victim(EPOCH, "b", "a", self.sink.point, schema, row, history, self.clock.ms)

    async def take(self, message: Message) -> Position:
        """As the peer API takes a call. Raises what it raises."""
        method, body = message
        calls: dict[str, Any] = {
            FOLLOW: self.sink.follow, REPLICATE: self.sink.replicate, BASE: self.sink.base, BASE_DONE: self.sink.base_done,
        }
        position: Position = await calls[method](decode_request(KINDS[method], method, msgspec.msgpack.encode(body)))
        return position

    async def everything(self) -> dict[str, Any]:
        """All that a message could have an effect on."""
        return {
            **await content(self.engine), "followed": self.sink.followed_epoch, "needs_base": self.sink.needs_base,
            "kept": [kept.name for kept in self.engine.kept_snapshots()], "heard": self.sink.heard_s,
        }
