"""Applies frames, and keeps a snapshot exactly behind each that is flagged as a barrier.

Whoever applies frames of the log does it through here: the active, the sink, a replay. Both sites apply the same frame, so they
keep the same rows under the same name, however the frames come grouped.

What always holds: a kept snapshot holds what the log says up to the end of its frame, and nothing else; where that cannot be
had (the storage is no prefix, the disk is full, a crash came between) nothing is kept under the name, and frames are applied
all the same; at most `kept_max` are held, each until `kept_s` after the barrier's own time, by this site's clock.
Source: protocol.md section 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from storage.clock import Clock
from storage.engine import KeptSnapshot, StorageEngine
from storage.log.frame import Flags, Frame
from storage.log.record import Kind
from storage.log.timestamps import COUNTER_BITS
from storage.prefix import is_prefix
from twinlog.errors import LogError, TwinlogError

_BARRIER = int(Flags.BARRIER)


@dataclass(frozen=True, slots=True)
class BarrierLimits:
    kept_max: int = 4
    kept_s: float = 3600.0


class Barriers:
    """Of one engine. `on_refused` is told the name of a barrier that was met and is not kept, and why."""

    def __init__(
        self, engine: StorageEngine, clock: Clock, limits: BarrierLimits, *, on_refused: Callable[[str, str], None]
    ) -> None:
        self._engine, self._clock, self._on_refused = engine, clock, on_refused
        self.limits = limits

    async def apply(self, frames: Sequence[Frame]) -> None:
        """Apply the frames, in order. Raises what the engine's `apply` raises; LogError for a flag without a barrier. HOT."""
        begin = 0
        for index, frame in enumerate(frames):
            if frame.flags & _BARRIER:
                await self._engine.apply(frames[begin : index + 1])
                begin = index + 1
                await self._keep(frame)
        if begin < len(frames):
            await self._engine.apply(frames[begin:] if begin else frames)

    async def _keep(self, frame: Frame) -> None:
        engine, taken_ms = self._engine, frame.timestamp >> COUNTER_BITS
        name = _name(frame)
        if (engine.applied_seq, engine.applied_epoch) != (frame.last_seq, frame.epoch):
            return  # met again, and the storage is past it
        if self._is_over(taken_ms):
            self._on_refused(name, f"it was met {self.limits.kept_s:g} s or more after it was taken")
        elif not is_prefix(engine):
            self._on_refused(name, "the rows were being filled in, and were of no single moment, when it was met")
        else:
            try:
                await self._make_room(name)
                await engine.keep_snapshot(name, taken_ms)
            except TwinlogError as error:  # the log has everything: an audit asks for another barrier
                self._on_refused(name, error.message)

    async def _make_room(self, name: str) -> None:
        others = [kept.name for kept in self._engine.kept_snapshots() if kept.name != name]
        for oldest in others[: max(0, len(others) + 1 - self.limits.kept_max)]:
            await self._engine.release_snapshot(oldest)

    def ends_ms(self, taken_ms: int) -> int:
        """When a snapshot that was taken at `taken_ms` is released, in milliseconds since 1970."""
        return taken_ms + round(self.limits.kept_s * 1000)

    def _is_over(self, taken_ms: int) -> bool:
        return self.ends_ms(taken_ms) <= self._clock.wall_ms()

    def find(self, name: str) -> KeptSnapshot | None:
        """The snapshot that is held under this name."""
        return next((kept for kept in self._engine.kept_snapshots() if kept.name == name), None)

    async def expire(self) -> None:
        """Release those whose time is over."""
        for kept in self._engine.kept_snapshots():
            if self._is_over(kept.taken_ms):
                await self._engine.release_snapshot(kept.name)

    async def forget_after(self, seq: int) -> None:
        """After a rejoin cut the storage back to `seq`: what was kept behind it is of no log."""
        for kept in self._engine.kept_snapshots():
            if kept.seq > seq:
                await self._engine.release_snapshot(kept.name)


def _name(frame: Frame) -> str:
    """Of the barrier that the flag stands for: the last record."""
    record = frame.records[-1]
    if record.kind != Kind.BARRIER:
        raise LogError(f"{frame!r} is flagged as a barrier and ends with a record of kind {record.kind}")
    return record.key.decode()
