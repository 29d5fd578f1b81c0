"""The commit rule: which frames are durable where, which are committed, which have failed.

Two logs advance their own durable sequence; a frame is committed once the logs that the mode asks for hold it, in order.
Every method is an event; it changes the state and returns the effects, which the driver (commit.py) performs in order.

What always holds:
- `committed <= min(local, remote)` for every frame committed while the remote log was needed (P1);
- frames are committed in sequence order, each at most once, and a frame that failed is never committed;
- a sequence is never used twice in an epoch: a failure moves `standing` back, never `next_seq`;
- a new frame's `previous` is the last sequence that still stands, which excludes what failed before it (P5).
Every event ends with `check`, which raises InvariantBroken when one of these does not hold.
Source: protocol.md section 4 (the table of four cases, the chain) and 6 (modes).
This module is pure.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Annotated

from storage import invariants
from storage.invariants import InvariantBroken
from storage.log.frame import Flags, Frame, make_frame
from storage.log.record import Record
from storage.settings import KIB, MIB, RUN_TIME, NotInFile, Within
from switchover.register.port import Mode

_ASYNC = int(Flags.ASYNC)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSettings:
    """The bounds of the write path: `queue_bytes_max` and `requests_max` of what is admitted, the others of frames."""

    queue_bytes_max: Annotated[int, Within(64 * KIB, 4096 * MIB), RUN_TIME] = 64 * MIB
    requests_max: Annotated[int, Within(1, 1_000_000), RUN_TIME] = 20_000
    frames_in_flight_max: Annotated[int, Within(1, 4096), RUN_TIME] = 4
    frame_bytes_max: Annotated[int, Within(4 * KIB, 64 * MIB), RUN_TIME] = 4 * MIB
    sweep_interval_s: Annotated[float, NotInFile()] = 0.05
    roll_retry_s: Annotated[float, NotInFile()] = 0.5


class CommitMode(Enum):
    """The rule by which a commit is reached.

    CATCHING writes the remote log but does not wait for it. TIGHTENING waits for it, but does not say "sync" yet: the
    coordinator has not recorded it.
    """

    SYNC = "sync"
    TIGHTENING = "tightening"
    CATCHING = "catching"
    ASYNC = "async"

    @property
    def label(self) -> Mode:
        """The word in an acknowledgement (P8)."""
        return "sync" if self is CommitMode.SYNC else "async"


@dataclass(frozen=True, slots=True)
class Committed:
    """Apply these frames in order, then acknowledge them as `label`."""

    frames: list[Frame]
    label: Mode


@dataclass(frozen=True, slots=True)
class Failed:
    """These frames are not acknowledged, outcome unknown; nothing above `standing` stands; seal the local segment."""

    frames: list[Frame]
    standing: int


class CommitCore:
    """State of one log's active writer in one epoch."""

    def __init__(self, *, epoch: int, standing: int, next_seq: int, mode: CommitMode) -> None:
        self.epoch = epoch
        self.standing = standing  # the last sequence that still stands
        self.next_seq = next_seq  # grows only
        self.mode = mode
        self.local = standing  # last sequence durable in the WAL
        self.remote = standing  # last sequence durable in the remote log
        self.committed = standing
        self._in_flight: deque[Frame] = deque()  # made, not yet committed, in order

    @property
    def frames_in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def writes_remote(self) -> bool:
        return self.mode is not CommitMode.ASYNC

    @property
    def needs_remote(self) -> bool:
        return self.mode in (CommitMode.SYNC, CommitMode.TIGHTENING)

    def make(self, records: list[Record], timestamp: int, flags: int = 0) -> Frame:
        """A new frame of `records`; the driver appends it to the WAL, and to the remote log if `writes_remote`."""
        frame = make_frame(
            epoch=self.epoch, first_seq=self.next_seq, previous=self.standing, timestamp=timestamp,
            committed=self.committed, records=records, flags=flags if self.mode is CommitMode.SYNC else flags | _ASYNC,
        )
        self.next_seq += frame.count
        self.standing = frame.last_seq
        self._in_flight.append(frame)
        self.check()
        return frame

    def local_synced(self, seq: int) -> Committed | None:
        """The WAL holds everything up to `seq`."""
        self.local = max(self.local, seq)
        return self._advance()

    def remote_synced(self, seq: int) -> Committed | None:
        """The remote log holds everything that stands up to `seq`."""
        self.remote = max(self.remote, seq)
        return self._advance()

    def local_failed(self) -> Failed:
        """The WAL's descriptor failed: every frame that it does not hold has failed, and all that chain to them."""
        kept = [f for f in self._in_flight if f.last_seq <= self.local]
        failed = [f for f in self._in_flight if f.last_seq > self.local]
        if failed:
            self.standing = failed[0].previous
        self._in_flight = deque(kept)
        self.check()
        return Failed(failed, self.standing)

    def switch_remote_on(self) -> int:
        """Frames made from here on go to the remote log. The last sequence that it will not hold: the catch-up target."""
        self.mode = CommitMode.CATCHING
        self.remote = self.standing
        self.check()
        return self.standing

    def set_mode(self, mode: CommitMode) -> Committed | None:
        """Changes the rule. Tightening comes before the coordinator records it, loosening only after (P8)."""
        self.mode = mode
        committed = self._advance()
        if mode is CommitMode.SYNC and self.committed > self.remote:
            raise self._broken("the rule is synchronous once both logs hold all that is committed (P8)")
        return committed

    def _advance(self) -> Committed | None:
        limit = min(self.local, self.remote) if self.needs_remote else self.local
        frames: list[Frame] = []
        while self._in_flight and self._in_flight[0].last_seq <= limit:
            frames.append(self._in_flight.popleft())
        if not frames:
            self.check()
            return None
        before, self.committed = self.committed, frames[-1].last_seq
        self.check(before, frames)
        return Committed(frames, self.mode.label)

    def check(self, committed_before: int | None = None, committed_now: list[Frame] | None = None) -> None:
        """Raises InvariantBroken. `committed_now`: the frames that this step commits, behind `committed_before`.

        The walk over the frames in flight is costly, and so left to tests and the simulator.
        """
        if not self.committed <= self.standing < self.next_seq:
            raise self._broken("committed <= standing < next")
        if not (self.committed <= self.local < self.next_seq and self.remote < self.next_seq):
            raise self._broken("committed <= local < next, and remote < next")
        if committed_before is not None and committed_now:
            if committed_now[0].first_seq <= committed_before:
                raise self._broken(f"{committed_now[0]!r} is committed behind {committed_before}, and never twice")
            if self.needs_remote and self.committed > self.remote:
                raise self._broken("what is committed synchronously is in both logs (P1)")
        if invariants.costly:
            self._check_frames(committed_before, committed_now or [])

    def _check_frames(self, committed_before: int | None, committed_now: list[Frame]) -> None:
        """Committed and in flight, the frames are one chain that ends at what stands: what failed is in neither (P5)."""
        at = self.committed if committed_before is None else committed_before
        for frame in [*committed_now, *self._in_flight]:
            if frame.epoch != self.epoch or frame.previous != at or frame.first_seq <= at:
                raise self._broken(f"{frame!r} continues {at} in epoch {self.epoch}")
            at = frame.last_seq
        if at != self.standing:
            raise self._broken(f"the frames in flight end at {at}, which is what stands")

    def _broken(self, rule: str) -> InvariantBroken:
        return InvariantBroken(
            f"commit rule of epoch {self.epoch} ({self.mode.value}): {rule}; committed {self.committed}, local {self.local}, "
            f"remote {self.remote}, standing {self.standing}, next {self.next_seq}"
        )
