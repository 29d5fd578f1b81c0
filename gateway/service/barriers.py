"""Barriers as operators and audits ask for them: take one at the active, look at what a site holds, let go.

What always holds: one barrier is taken at a time; a name is answered with what is held under it, so the same request twice
takes one barrier; what is answered as taken is held here. The other site keeps its own snapshot when the frame gets there.
Source: protocol.md section 9.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import cast

from gateway.service.documents import BarrierDocument, BarrierList, EngineName
from gateway.service.serving import Serving
from storage.clock import Clock
from storage.engine import KeptSnapshot, StorageEngine
from storage.engines.applying import FrameApplier
from twinlog.errors import Conflict, EngineFailed, NotFound, Unavailable


class BarrierService:
    def __init__(
        self, serving: Serving, applier: FrameApplier, *, site: str, engine: StorageEngine, clock: Clock, deadline_s: float
    ) -> None:
        self._serving, self._applier, self._site = serving, applier, site
        self._engine, self._clock, self._deadline_s = engine, clock, deadline_s
        self._lock = asyncio.Lock()

    async def take(self, name: str | None) -> tuple[BarrierDocument, bool]:
        """The barrier, and whether this request took it. Raises Conflict when as many are held as may be, NotActive."""
        self._serving.for_writes()
        until_s = self._clock.monotonic_s() + self._deadline_s
        async with self._turn():
            name = name or self._new_name()
            held = self._applier.find(name)
            if held is not None:
                return self._document(held), False
            self._check_room()
            await self._engine.flush()  # now, and not while writes wait for the snapshot
            commit = self._serving.for_writes().commit
            ack = await commit.submit_barrier(name, until_s - self._clock.monotonic_s())
            held = self._applier.find(name)
        if held is None or (held.epoch, held.seq) != (ack.epoch, ack.seq):
            raise EngineFailed(f"barrier {name} is in the log at {ack.seq}, but no snapshot of it could be kept: take another")
        return self._document(held), True

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._deadline_s):
                await self._lock.acquire()
        except TimeoutError as error:
            raise Unavailable("another barrier is being taken: none was taken for this request, try again") from error
        try:
            yield
        finally:
            self._lock.release()

    def _check_room(self) -> None:
        held, most = [kept.name for kept in self._engine.kept_snapshots()], self._applier.limits.kept_max
        if len(held) >= most:
            raise Conflict(
                f"site {self._site} holds {len(held)} barriers, and at most {most} (barriers.kept_max): release one, "
                f"or wait until the oldest expires", barriers=held,
            )

    def _new_name(self) -> str:
        return f"barrier-{_moment(self._clock.wall_ms()):%Y%m%dT%H%M%S.%f}"

    def all(self) -> BarrierList:
        """Lists what this site holds, whatever its role."""
        return BarrierList(self._site, [self._document(kept) for kept in self._engine.kept_snapshots()])

    def get(self, name: str) -> BarrierDocument:
        """Raises NotFound."""
        held = self._applier.find(name)
        if held is None:
            raise NotFound(
                f"site {self._site} holds no barrier {name!r}: it was not met here yet, or is over, or could not be kept, "
                "which the site's log would say", barrier=name,
            )
        return self._document(held)

    async def release(self, name: str) -> None:
        """Lets go of this site's snapshot only. Raises NotFound."""
        self.get(name)
        await self._engine.release_snapshot(name)

    def _document(self, kept: KeptSnapshot) -> BarrierDocument:
        return BarrierDocument(
            name=kept.name, epoch=kept.epoch, seq=kept.seq, taken_at=_text(kept.taken_ms),
            expires_at=_text(self._applier.ends_ms(kept.taken_ms)), engine=cast(EngineName, kept.place.partition(":")[0]),
            place=kept.place,
        )


def _moment(wall_ms: int) -> datetime:
    return datetime.fromtimestamp(wall_ms / 1000, UTC)


def _text(wall_ms: int) -> str:
    return _moment(wall_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
