"""The sink: the receiving end of the replicator, at a standby.

What always holds:
- frames of an epoch lower than the one followed are rejected with Fenced; the epoch followed is durable before its first
  frame is accepted;
- frames are applied in order, without gaps, exactly once (the watermark is in the engine's transaction), so the storage is
  always a prefix of the active's committed log (P4);
- a part of base data is taken only behind the part that it names, and the progress is in the engine's transaction with its
  rows: so a base has no holes, two never mix, and one that was cut off continues where it stands, also after a crash;
- nothing has an effect before it was checked (verification.py); a higher epoch counts once this site has seen for itself that
  it was given away (`confirm`); base data is taken under the nonce that this very process asked for it with;
- a site that has diverged, or that is busy becoming something else, accepts nothing and says so.
Source: protocol.md section 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Literal

import msgspec

from remote_log.replication.epoch_history import common_end
from remote_log.replication.messages import (
    BaseDoneRequest,
    BaseProgress,
    BaseRequest,
    FollowRequest,
    LogPoint,
    Position,
    ReplicateRequest,
    RowsReply,
    RowsRequest,
    Stamp,
    Vouched,
    unpack_history,
    unpack_outcomes,
)
from remote_log.replication.verification import Verifier
from storage.clock import Clock
from storage.engine import StorageEngine, StoredRow
from storage.engines.applying import FrameApplier
from storage.prefix import BASE_WANTED, FLOOR, is_prefix, needs_base
from storage.tracing import NO_TRACES, Tracer
from twinlog.decoding import or_none
from twinlog.errors import Fenced, Refused, Unavailable

FOLLOWED_EPOCH = "followed_epoch"
APPLY = "apply at the standby"  # the span of a write
BASE_FLUSH_BYTES = 16 << 20  # of rows: what a crash takes from an unfinished base, and has to be sent again, at most

State = Literal["following", "diverged", "loading", "busy"]

_decode_progress = msgspec.msgpack.Decoder(BaseProgress).decode


class Sink:
    """`refusal` says why this site's role accepts nothing now; None: it does. `heard_s`: when the active was last heard.

    `as_of_s`: no acknowledgement before this moment of the own monotonic clock is missing here; None: that is not known. It is
    no later than the active's word for it: the moment of the answer that the word repeats, and what the active's clock has
    counted since, less `drift_margin`. So no two clocks are compared.

    `confirm` raises Unavailable unless this site sees for itself that an epoch was given away; `new_nonce` makes a word that
    nobody can guess.
    """

    def __init__(
        self, engine: StorageEngine, clock: Clock, applier: FrameApplier, verifier: Verifier, *,
        refusal: Callable[[], str | None], on_applied: Callable[[], None], confirm: Callable[[int], Awaitable[None]],
        new_nonce: Callable[[], str], drift_margin: float = 0.0, tracer: Tracer = NO_TRACES,
    ) -> None:
        self._engine, self._clock, self._applier, self.verifier = engine, clock, applier, verifier
        self._on_applied, self._confirm, self._new_nonce = on_applied, confirm, new_nonce
        self._nonce: str | None = None  # of the base data that this process asks for
        self._last: LogPoint | None = None  # the end of the last frame that this process applied here
        self.heard_s: float | None = None
        self.as_of_s: float | None = None
        self._life, self._drift_margin = new_nonce(), drift_margin
        self._refusal, self._tracer = refusal, tracer
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
        return or_none(_decode_progress, noted)

    async def want_base(self) -> None:
        """From here on, also after a restart, this site takes nothing before base data. Durable when it returns."""
        await self._engine.set_meta(BASE_WANTED, b"1")

    @property
    def point(self) -> LogPoint:
        """The end of what is applied; with the CRC of its last frame as long as this process has applied it itself."""
        applied, last = self._engine.applied, self._last
        if last is not None and (last.seq, last.epoch) == (applied.seq, applied.epoch):
            return last
        return LogPoint(applied.seq, applied.epoch)

    def _position(self, state: State, why: str = "") -> Position:
        at = self.point
        nonce = (self._nonce or "") if state == "loading" else ""
        stamp = Stamp(self._life, self._clock.monotonic_s())
        return Position(state, at.seq, at.epoch, self._engine.durable_seq, why, self._base_progress, nonce, at.crc, stamp)

    def _check_epoch(self, epoch: int) -> None:
        if epoch < self.followed_epoch:
            raise Fenced(
                f"epoch {epoch} is over: this site follows epoch {self.followed_epoch}", epoch=epoch,
                by_epoch=self.followed_epoch,
            )

    async def confirm(self, epoch: int) -> None:
        """Raises Unavailable for an epoch that is higher than any followed here, and that nothing in sight was given."""
        if epoch > self.followed_epoch:
            await self._confirm(epoch)

    async def set_followed_epoch(self, epoch: int) -> None:
        """Durable before it counts: from then on lower epochs are rejected, after a crash too."""
        if epoch > self.followed_epoch:
            await self._engine.set_meta(FOLLOWED_EPOCH, str(epoch).encode())
            self.followed_epoch = epoch

    async def settle(self) -> None:
        """Wait for what is being applied: called once the role accepts nothing more, so that the storage stands still."""
        async with self._lock:
            self.as_of_s = None

    async def reopen_storage(self) -> None:
        """Open the storage anew, between two calls of the active and before any plan that settles this sink.

        It may then hold less: the active ships again from where it stands. Raises EngineFailed.
        """
        async with self._lock:
            self._last = self.as_of_s = None  # it may hold less than before
            await self._engine.reopen()
            self._on_applied()

    async def follow(self, request: FollowRequest) -> Position:
        """The active of `epoch` wants to ship. Says whether, and from where. Raises InvalidInput, Fenced, Unavailable."""
        self._check_epoch(request.epoch)
        self.verifier.history(request.history, request.epoch, "the call to follow")
        await self.confirm(request.epoch)
        async with self._lock:
            self._check_epoch(request.epoch)
            why = self._refusal()
            if why is not None:
                return self._position("busy", why)
            if self.needs_base:
                await self.set_followed_epoch(request.epoch)
                self._nonce = self._nonce or self._new_nonce()
                return self._position("loading", "this site needs base data")
            why = self._divergence(request)
            if why is not None:
                return self._position("diverged", why)
            await self.set_followed_epoch(request.epoch)
            return self._position("following")

    def _divergence(self, request: FollowRequest) -> str | None:
        """Returns why the log of the caller is no continuation of what is here, by its own word: a rejoin asks the active."""
        at = self.point
        if request.not_held == at:
            return f"the active's log does not hold sequence {at.seq} of epoch {at.epoch} as it is here"
        if at.seq < request.begins_after:
            return f"holds {at.seq}, and the active's log begins after {request.begins_after}"
        try:
            end = common_end(unpack_history(request.history), at.epoch, at.seq)
        except Refused as error:
            return error.message
        return f"holds {at.seq}, the log ends at {end} in that epoch" if end < at.seq else None

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
        """Apply shipped frames, if they continue what is here. Raises InvalidInput, Fenced, LogGap, Unavailable."""
        came_s = self._clock.monotonic_s()
        async with self._lock:
            self._check_following(request.epoch)
            if request.after != self.point:
                return self._position("following")  # nothing of it was looked at: the caller decides anew
            frames = self.verifier.frames(request, self._engine.applied, self._clock.wall_ms())
            if frames:
                with self._traced(request):
                    await self._applier.apply(frames)
                self._on_applied()
                self._last = LogPoint(frames[-1].last_seq, frames[-1].epoch, frames[-1].crc)
                self.frames_received += len(frames)
                self.bytes_received += len(request.frames)
            self.heard_s = self._clock.monotonic_s()
            self._note_vouched(request.vouched, came_s)
            if request.flush:
                await self._engine.flush()
            return self._position("following")

    @contextmanager
    def _traced(self, request: ReplicateRequest) -> Iterator[None]:
        """Has the spans of the sampled writes that are applied here, each below the one that the active names for it."""
        named = zip(request.traces, chain(request.trace_states, repeat("")), strict=False)
        begun = [
            self._tracer.received(APPLY, parent, state, epoch=self.followed_epoch, seq=seq) for (seq, parent), state in named
        ]
        error = "not_applied"
        try:
            yield
            error = ""
        finally:
            for span in begun:
                if span is not None:
                    span.end(error)

    def _note_vouched(self, word: Vouched | None, came_s: float) -> None:
        """Words about another process of this site, or about more than is here, say nothing."""
        if word is None or word.stamp.life != self._life or self._engine.applied.seq < word.upto:
            return
        as_of_s = min(word.stamp.at_s + word.held_s * (1 - self._drift_margin), came_s)
        self.as_of_s = as_of_s if self.as_of_s is None else max(self.as_of_s, as_of_s)

    async def base(self, request: BaseRequest) -> Position:
        """A part of base data. Raises InvalidInput, Fenced, Unavailable."""
        async with self._lock:
            self._check_base(request.epoch, request.nonce)
            if request.after is not None:
                self._check_progress(request.after)
            schemas = self._engine.applied.schemas()
            self.verifier.base(request, schemas, self._clock.wall_ms())
            first = request.after is None
            if not first and request.schemas is not None and request.schemas != dict(schemas):
                await self._begin_anew()
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

    def _check_base(self, epoch: int, nonce: str) -> None:
        """Base data empties the storage: only what this process asked for, of the active that it follows."""
        self._check_epoch(epoch)
        why = self._refusal()
        if why is not None:
            raise Unavailable(f"this site accepts no base data now: {why}", retry_after_s=1)
        if not self.needs_base or nonce != self._nonce or epoch != self.followed_epoch:
            raise Unavailable("this site has not asked for this base data: follow first", retry_after_s=0)

    async def _begin_anew(self) -> None:
        """A table has changed between two snapshots of one base. The log from the first one on has that change once more, and
        the rows of the second one are as the change made them: the two do not fit together. Raises Unavailable."""
        await self.want_base()
        raise Unavailable("a table has changed since this base began, so it begins anew: follow first", retry_after_s=0)

    def _check_progress(self, after: BaseProgress) -> None:
        """A base has no holes: this site may have restarted, or another base may have begun since the part before."""
        if after != self._base_progress:
            raise Unavailable(
                f"base {after.load} of epoch {after.epoch} cannot continue after part {after.part} here: follow first",
                retry_after_s=0,
            )

    def check_rows(self, asked: RowsRequest, reply: RowsReply) -> None:
        """Rows that a rejoin has fetched. Raises InvalidInput."""
        self.verifier.rows(asked, reply, self._engine.applied.schemas(), self._clock.wall_ms())

    async def base_done(self, request: BaseDoneRequest) -> Position:
        """The base is complete: from here on this site follows. Raises Fenced, Unavailable."""
        async with self._lock:
            self._check_base(request.epoch, request.nonce)
            base = request.after
            self._check_progress(base)
            self.verifier.base_done(request, self._clock.wall_ms())
            # noted first: until the base is finished nothing asks for it, and afterwards it must be there
            await self._engine.set_meta(FLOOR, str(base.floor).encode() if base.floor > base.seq else None)
            history = unpack_history(request.history)
            await self._engine.finish_base(base.seq, base.seq_epoch, request.last_timestamp, history)
            self._nonce = self._last = None
            self._on_applied()
            return self._position("following")
