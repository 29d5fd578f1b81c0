"""The sink: the receiving end of the replicator, at a standby.

What always holds:
- frames of an epoch lower than the one followed are rejected with Fenced; the epoch followed is durable before its first
  frame is accepted;
- frames are applied in order, without gaps, exactly once (the watermark is in the engine's transaction), so the storage is
  always a prefix of the active's committed log (P4);
- a part of base data is taken only behind the part that it names, and the progress is in the engine's transaction with its
  rows: so a base has no holes, two never mix, and one that was cut off goes on where it stands, also after a crash;
- a site that has diverged, or that is busy becoming something else, accepts nothing and says so.
Source: protocol.md section 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from remote_log.replication.epoch_history import common_end
from remote_log.replication.messages import (
    BaseDoneRequest,
    BaseProgress,
    BaseRequest,
    FollowRequest,
    Position,
    ReplicateRequest,
    unpack_history,
    unpack_outcomes,
)
from storage.clock import Clock
from storage.engine import StorageEngine, StoredRow
from storage.engines.applying import FrameApplier
from storage.log.frame import Frame, parse_frame
from storage.prefix import BASE_WANTED, FLOOR, is_prefix, needs_base
from twinlog.errors import Fenced, Refused, Unavailable

FOLLOWED_EPOCH = "followed_epoch"
BASE_FLUSH_BYTES = 16 << 20  # of rows: what a crash takes from an unfinished base, and has to be sent again, at most

_progress_decoder = msgspec.msgpack.Decoder(BaseProgress)


class Sink:
    """`refusal` says why this site's role accepts nothing now; None: it does. `heard_s`: when the active was last heard."""

    def __init__(
        self, engine: StorageEngine, clock: Clock, applier: FrameApplier, *, refusal: Callable[[], str | None],
        on_applied: Callable[[], None],
    ) -> None:
        self._engine, self._clock, self._applier = engine, clock, applier
        self._on_applied = on_applied
        self.heard_s: float | None = None
        self._refusal = refusal
        self._lock = asyncio.Lock()
        self._unflushed_bytes = 0  # of base data
        self.followed_epoch = int(engine.meta(FOLLOWED_EPOCH) or b"0")
        self.frames_received = 0
        self.bytes_received = 0

    @property
    def needs_base(self) -> bool:
        """True when the storage holds no prefix of the log: half of a base, or rows that a rejoin could not repair."""
        return needs_base(self._engine)

    @property
    def is_prefix(self) -> bool:
        """True when what the storage holds is a prefix of the active's log, and no mixture of two moments."""
        return is_prefix(self._engine)

    @property
    def _base_progress(self) -> BaseProgress | None:
        """The progress of the unfinished base; None: there is none, or none that this release can continue."""
        noted = self._engine.applied.base
        if noted is None or self._engine.meta(BASE_WANTED) is not None:
            return None
        try:
            return _progress_decoder.decode(noted)
        except msgspec.MsgspecError:
            return None

    async def want_base(self) -> None:
        """From here on, also after a restart, this site takes nothing before base data. Durable when it returns."""
        await self._engine.set_meta(BASE_WANTED, b"1")

    def _position(self, state: str, why: str = "") -> Position:
        engine = self._engine
        return Position(state, engine.applied.seq, engine.applied.epoch, engine.durable_seq, why, self._base_progress)

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self.followed_epoch:
            raise Fenced(
                f"epoch {epoch} is over: this site follows epoch {self.followed_epoch}", epoch=epoch,
                by_epoch=self.followed_epoch,
            )

    async def set_followed_epoch(self, epoch: int) -> None:
        """Durable before it counts: from then on lower epochs are rejected, after a crash too."""
        if epoch > self.followed_epoch:
            await self._engine.set_meta(FOLLOWED_EPOCH, str(epoch).encode())
            self.followed_epoch = epoch

    async def settle(self) -> None:
        """Wait for what is being applied: called once the role accepts nothing more, so that the storage stands still."""
        async with self._lock:
            return

    async def reopen_storage(self) -> None:
        """Open the storage anew, between two calls of the active and before any plan that settles this sink.

        It may then hold less: the active ships again from where it stands. Raises EngineFailed.
        """
        async with self._lock:
            await self._engine.reopen()
            self._on_applied()

    async def follow(self, request: FollowRequest) -> Position:
        """The active of `epoch` wants to ship. Says whether, and from where."""
        async with self._lock:
            self._check_epoch(request.epoch)
            why = self._refusal()
            if why is not None:
                return self._position("busy", why)
            engine = self._engine
            if self.needs_base:
                return self._position("loading", "this site needs base data")
            try:
                end = common_end(unpack_history(request.history), engine.applied.epoch, engine.applied.seq)
            except Refused as error:
                return self._position("diverged", error.message)
            if end < engine.applied.seq:
                return self._position("diverged", f"holds {engine.applied.seq}, the log ends at {end} in that epoch")
            await self.set_followed_epoch(request.epoch)
            return self._position("following")

    def _check_following(self, epoch: int) -> None:
        self._check_epoch(epoch)
        why = self._refusal()
        if why is not None:
            raise Unavailable(f"this site accepts no shipped frames now: {why}", retry_after_s=1)
        if self.needs_base:
            raise Unavailable("this site needs base data before any frame: follow first", retry_after_s=0)
        if epoch != self.followed_epoch:
            raise Unavailable(f"epoch {epoch} has not been agreed on: follow first", retry_after_s=0)

    async def replicate(self, request: ReplicateRequest) -> Position:
        """Apply shipped frames. Raises Fenced, LogGap, Unavailable."""
        async with self._lock:
            self._check_following(request.epoch)
            frames: list[Frame] = []
            offset = 0
            while offset < len(request.frames):
                frame = parse_frame(request.frames, offset)
                frames.append(frame)
                offset += len(frame.data)
            if frames:
                await self._applier.apply(frames)
                self._on_applied()
                self.frames_received += len(frames)
                self.bytes_received += len(request.frames)
            self.heard_s = self._clock.monotonic_s()
            if request.flush:
                await self._engine.flush()
            return self._position("following")

    async def base(self, request: BaseRequest) -> Position:
        """A part of base data. Raises Fenced, Unavailable."""
        async with self._lock:
            self._check_base(request.epoch)
            first = request.after is None
            if request.after is None:
                self._check_beginning(request.upto)
            else:
                self._check_progress(request.after)
            await self.set_followed_epoch(request.epoch)
            rows = [(table, StoredRow(key, value, version)) for table, key, value, version in request.rows]
            progress = msgspec.msgpack.encode(request.upto)
            await self._engine.load_base(rows, unpack_outcomes(request.outcomes), progress, first, request.schemas)
            if first:
                await self._engine.set_meta(BASE_WANTED, None)  # the engine itself knows from here on
            if request.schemas is not None:
                self._on_applied()
            self._unflushed_bytes += sum(len(key) + len(value) for _, key, value, _ in request.rows)
            if self._unflushed_bytes >= BASE_FLUSH_BYTES:
                await self._engine.flush()
                self._unflushed_bytes = 0
            return self._position("loading")

    def _check_base(self, epoch: int) -> None:
        self._check_epoch(epoch)
        why = self._refusal()
        if why is not None:
            raise Unavailable(f"this site accepts no base data now: {why}", retry_after_s=1)

    def _check_beginning(self, upto: BaseProgress) -> None:
        """A base empties the storage first: a late one must not take back what this site has reported as durable."""
        if not self.needs_base and self._engine.applied.seq >= upto.seq:
            raise Unavailable(
                f"base {upto.load} of epoch {upto.epoch} is of sequence {upto.seq}, and this site follows at "
                f"{self._engine.applied.seq}: follow first", retry_after_s=0,
            )

    def _check_progress(self, after: BaseProgress) -> None:
        """A base has no holes: this site may have restarted, or another base may have begun since the part before."""
        if after != self._base_progress:
            raise Unavailable(
                f"base {after.load} of epoch {after.epoch} cannot continue after part {after.part} here: follow first",
                retry_after_s=0,
            )

    async def base_done(self, request: BaseDoneRequest) -> Position:
        """The base is complete: from here on this site follows. Raises Fenced, Unavailable."""
        async with self._lock:
            self._check_base(request.epoch)
            base = request.after
            self._check_progress(base)
            # noted first: until the base is finished nothing asks for it, and afterwards it must be there
            await self._engine.set_meta(FLOOR, str(base.floor).encode() if base.floor > base.seq else None)
            history = unpack_history(request.history)
            await self._engine.finish_base(base.seq, base.seq_epoch, request.last_timestamp, history)
            self._on_applied()
            return self._position("following")
