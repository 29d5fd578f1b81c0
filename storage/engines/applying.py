"""The one way by which frames of the log enter storage: in order, in bounded transactions, a snapshot behind each barrier.

The active, the sink and a replay all apply through a `FrameApplier`. Both sites apply the same frame, so they keep the same
rows under the same name, however the frames come grouped.

What always holds:
- a kept snapshot holds what the log says up to the end of its frame, and nothing else; where that cannot be had (the storage
  is no prefix, the disk is full, a crash came between) nothing is kept under the name, and frames are applied all the same;
- at most `kept_max` snapshots are held, each until `kept_s` after the barrier's own time, by this site's clock;
- `replay` applies every frame, whole and in order; a transaction takes at most `RECORDS_MAX` records and `BYTES_MAX` bytes of
  frames, unless a single frame is larger: a group commit is never cut in two.
Source: storage/engine.py (`apply`), protocol.md sections 5 and 8 (replay) and 9 (barriers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from storage.clock import Clock
from storage.engine import KeptSnapshot, StorageEngine
from storage.log.frame import COUNTER_BITS, Flags, Frame
from storage.log.record import RecordKind
from storage.prefix import is_prefix
from storage.settings import RESTART, Within
from twinlog.decoding import decoded
from twinlog.errors import LogError, TwinlogError

_BARRIER = int(Flags.BARRIER)
RECORDS_MAX = 1_000
BYTES_MAX = 4 << 20


@dataclass(frozen=True, slots=True)
class BarrierLimits:
    """Snapshots that are kept behind barriers, for audits; each takes room until it is released."""

    kept_max: Annotated[int, Within(1, 64), RESTART] = 4
    kept_s: Annotated[float, Within(1, 604_800), RESTART] = 3600.0


class FrameApplier:
    """Applies frames to one engine. `on_refused` takes the name of a barrier that was met and is not kept, and the reason."""

    def __init__(
        self, engine: StorageEngine, clock: Clock, limits: BarrierLimits, *, on_refused: Callable[[str, str], None]
    ) -> None:
        self._engine, self._clock, self._on_refused = engine, clock, on_refused
        self.limits = limits
        self.log_bytes = 0  # of all frames that came to be applied

    async def apply(self, frames: Sequence[Frame]) -> None:
        """Apply the frames, in order. Raises what the engine's `apply` raises; LogError for a flag without a barrier. HOT."""
        begin = 0
        for index, frame in enumerate(frames):
            self.log_bytes += len(frame.data)
            if frame.flags & _BARRIER:
                await self._engine.apply(frames[begin : index + 1])
                begin = index + 1
                await self._keep(frame)
        if begin < len(frames):
            await self._engine.apply(frames[begin:] if begin else frames)

    async def replay(self, frames: Iterable[Frame], progress: Callable[[int], None] | None = None) -> None:
        """Apply many frames, which follow what the engine holds, in bounded transactions. Raises what `apply` raises.

        `progress` gets how many are applied, behind each transaction.
        """
        applied = 0
        for group in transactions(frames):
            await self.apply(group)
            applied += len(group)
            if progress is not None:
                progress(applied)

    async def _keep(self, frame: Frame) -> None:
        engine, taken_ms = self._engine, frame.timestamp >> COUNTER_BITS
        name = _name(frame)
        if (engine.applied.seq, engine.applied.epoch) != (frame.last_seq, frame.epoch):
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
        """Returns the time at which a snapshot taken at `taken_ms` is released. Both are milliseconds since 1970."""
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
    """Returns the name of the barrier that the flag stands for: the last record is the barrier."""
    record = frame.records[-1]
    if record.kind != RecordKind.BARRIER:
        raise LogError(f"{frame!r} is flagged as a barrier and ends with a record of kind {record.kind}")
    return decoded(bytes.decode, record.key, lambda what: LogError(f"{frame!r} has a barrier whose name is no text: {what}"))


def transactions(
    frames: Iterable[Frame], records_max: int = RECORDS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[Frame]]:
    """The frames, in order, in groups for one `apply` each."""
    group: list[Frame] = []
    records = size = 0
    for frame in frames:
        if group and (records + frame.count > records_max or size + len(frame.data) > bytes_max):
            yield group
            group, records, size = [], 0, 0
        group.append(frame)
        records += frame.count
        size += len(frame.data)
    if group:
        yield group
