"""The look at the messages of the replication, at both ends: what a standby answers, and what both sides make of it.

What always holds: it sees each message as it arrives and as it is answered, and judges by protocol.md section 7 alone; a site
that was lied to is judged by what it has heard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from chaos.simulate.twins.transport import Wire
from chaos.simulate.world import OTHER, World
from gateway.epoch.active_epoch import ActiveEpoch
from gateway.site.site import Site
from remote_log.replication.messages import (
    BASE,
    BASE_DONE,
    FOLLOW,
    REPLICATE,
    Position,
    ReplicateRequest,
    Vouched,
)
from remote_log.replication.sink import FOLLOWED_EPOCH

STREAM = (FOLLOW, REPLICATE, BASE, BASE_DONE)
ROUNDING_S = 1e-6
_request = msgspec.msgpack.Decoder(ReplicateRequest)


class _OfEpoch(msgspec.Struct):
    epoch: int


_of_epoch = msgspec.msgpack.Decoder(_OfEpoch)


@dataclass(frozen=True, slots=True)
class _Arrived:
    """A call of the stream, when it was sent, and how the site stood as it came."""

    epoch: int
    followed: int
    applied_seq: int
    as_of_s: float | None
    sent_s: float


@dataclass(slots=True)
class _Answers:
    """The positions that the active of one epoch has heard."""

    epoch: ActiveEpoch
    following: set[int] = field(default_factory=set)
    weighed: set[int] = field(default_factory=set)
    newest: Position | None = None


class Messages(Wire):
    """`broken` takes a sentence for each answer, and each belief, that must not be."""

    def __init__(self, world: World, broken: Callable[[str], None]) -> None:
        self._world, self._broken = world, broken
        self._vouched_s = {site: float("-inf") for site in OTHER}
        self._answers: dict[str, _Answers] = {}
        world.wire = self

    def _site(self, name: str) -> Site | None:
        life = self._world.alive(name)
        return None if life is None else life.site

    # ---- at the standby
    def arrives(self, dst: str, method: str, body: bytes, sent_s: float) -> _Arrived | None:
        site = self._site(dst)
        if method not in STREAM or site is None:
            return None
        engine = site.parts.engine
        followed = int(engine.meta(FOLLOWED_EPOCH) or b"0")
        return _Arrived(_of_epoch.decode(body).epoch, followed, engine.applied.seq, site.sink.as_of_s, sent_s)

    def answered(self, arrived: object, dst: str, method: str, body: bytes, answer: bytes | None) -> None:
        site = self._site(dst)
        if not isinstance(arrived, _Arrived) or answer is None or site is None:
            return
        if arrived.epoch < arrived.followed:
            self._broken(f"Site {dst} follows epoch {arrived.followed}, and answers a call of epoch {arrived.epoch}: {method}.")
        if method == REPLICATE:
            self._replicated(arrived, dst, site, _request.decode(body), answer)

    def _replicated(self, arrived: _Arrived, dst: str, site: Site, request: ReplicateRequest, answer: bytes) -> None:
        engine, clock = site.parts.engine, self._world.machines[dst].clock
        if request.flush and request.after.seq == arrived.applied_seq and engine.durable_seq < arrived.applied_seq:
            how_far = f"{engine.durable_seq} of {arrived.applied_seq}"
            self._broken(f"Site {dst} was asked to make all durable, and is so up to {how_far}.")
        active = self._site(OTHER[dst])
        epoch = active.active_epoch if active is not None else None
        is_of_it = epoch is not None and epoch.epoch == request.epoch == engine.applied.epoch
        if epoch is not None and is_of_it and (committed := epoch.core.committed) < engine.applied.seq:
            self._broken(f"Site {dst} has applied {engine.applied.seq}, and site {OTHER[dst]} committed {committed}.")
        word, as_of_s = request.vouched, site.sink.as_of_s
        if word is None:
            return
        sent_s = clock.monotonic_s() - (self._world.loop.now_s - arrived.sent_s) * clock.rate
        self._vouched_s[dst] = max(self._vouched_s[dst], sent_s)
        if as_of_s is not None and as_of_s != arrived.as_of_s:
            self._dated(dst, word, as_of_s, engine.applied.seq)

    def _dated(self, dst: str, word: Vouched, as_of_s: float, applied_seq: int) -> None:
        if as_of_s > self._vouched_s[dst] + ROUNDING_S:
            self._broken(f"Site {dst} takes its rows for newer than any word of the active is.")
        if applied_seq < word.upto:
            self._broken(f"Site {dst} takes a word about {word.upto} for its own rows, which end at {applied_seq}.")

    # ---- at the active
    def heard(self, src: str, method: str, answer: object) -> None:
        site = self._site(src)
        epoch = site.active_epoch if site is not None else None
        if method not in STREAM or epoch is None or not isinstance(answer, Position):
            return
        told = self._answers.get(src)
        if told is None or told.epoch is not epoch:
            told = self._answers[src] = _Answers(epoch)
        told.newest = answer
        if answer.state == "following":
            told.following.add(answer.durable_seq)
        if answer.state in ("following", "loading"):
            told.weighed.add(answer.durable_seq)

    def look(self, name: str, site: Site) -> list[str]:
        """Returns what an active believes of its standby, and has not heard."""
        epoch, told = site.active_epoch, self._answers.get(name)
        if epoch is None or told is None or told.epoch is not epoch or told.newest is None:
            return []
        found, view = [], epoch.shipper.view
        newest = epoch.shipper.setbacks.newest
        is_back = newest is not None and not newest.is_over
        if newest is not None and newest.had_seq not in told.following:
            found.append(f"Site {name} says that its standby had {newest.had_seq}, which that never said while it followed.")
        if newest is not None and newest.held_seq not in told.weighed:
            found.append(f"Site {name} says that its standby is back at {newest.held_seq}, which that never said of its rows.")
        if newest is not None and is_back and view.state == "following" and (view.durable_seq or 0) >= newest.had_seq:
            found.append(f"Site {name} says that its standby lacks what it had, and has heard that it has it again.")
        had = max(told.following, default=0)
        if view.state == told.newest.state == "loading" and told.newest.durable_seq < had and not is_back:
            found.append(f"Site {name} has heard that its standby, which had {had}, is filled anew, and does not say so.")
        return found


