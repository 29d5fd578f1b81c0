"""The log of a site that rejoins, seen one frame at a time: how far it is known to be committed, and what diverges.

What always holds: nothing is kept of a frame but numbers, so a tail may be of any length.
Source: protocol.md section 8 (Rejoin a).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from storage.engine import EpochEntry
from storage.log.frame import Flags, Frame
from storage.log.record import RecordKind

ROW_KINDS = (RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE)


class Attested:
    """`seq`: everything that stands up to here was committed. A later frame says so, or the active's history ends an epoch with
    the very frame that is here, and so with all that it links to."""

    def __init__(self, history: Sequence[EpochEntry]) -> None:
        self.seq = 0
        self._ends = {(before.epoch, after.previous) for before, after in pairwise(history)}
        self._opened = {entry.epoch for entry in history}  # the start of an epoch that never opened attests nothing

    def note(self, frame: Frame, *, leads_to_end: bool) -> None:
        """`leads_to_end`: it stands, and no link is missing behind it."""
        if frame.epoch in self._opened:
            self.seq = max(self.seq, frame.committed)
        if leads_to_end and (frame.epoch, frame.last_seq) in self._ends:
            self.seq = max(self.seq, frame.last_seq)


@dataclass(slots=True)
class Diverging:
    """The frames that stand and that the active's log does not contain, noted in order.

    `applied_seq`: of the storage here; those up to it are `touched`. `held_seq`: the storage, or a later frame, says that so
    much was committed. `async_epoch`: in it this site acknowledged asynchronously what it had written while it was synchronous.
    """

    applied_seq: int
    held_seq: int
    async_epoch: int
    frames: int = 0
    first_seq: int = 0
    last_seq: int = 0
    acknowledged: bool = False  # maybe: a downgrade acknowledges what was waiting, so one asynchronous frame counts for all
    touched_previous: int | None = None  # what the first touched one links to; None: none is touched
    touched_last: int = 0
    touched_whole: bool = True  # no link is missing between them
    touched_tables: bool = False  # one of them changes a table

    def note(self, frame: Frame) -> None:
        if self.frames == 0:
            self.first_seq = frame.first_seq
        self.frames += 1
        self.last_seq = frame.last_seq
        self.acknowledged = self.acknowledged or frame.epoch == self.async_epoch or self._was_acknowledged(frame)
        if frame.last_seq <= self.applied_seq:
            if self.touched_previous is None:
                self.touched_previous = frame.previous
            elif frame.previous != self.touched_last:
                self.touched_whole = False
            self.touched_last = frame.last_seq
            self.touched_tables = self.touched_tables or any(r.kind == RecordKind.DDL for r in frame.records)

    def _was_acknowledged(self, frame: Frame) -> bool:
        """Asynchronously; or in whatever mode, and the active has gone on without it: from a log or a register of earlier. Then
        starts and marks are nobody's loss."""
        if frame.flags & Flags.ASYNC or any(r.kind == RecordKind.MODE and r.value == b"async" for r in frame.records):
            return True
        return frame.last_seq <= self.held_seq and any(r.kind in ROW_KINDS for r in frame.records)

    def leads_from(self, common_seq: int) -> bool:
        """Returns True when the touched ones are the whole of what is applied here behind `common_seq`, or behind less."""
        previous = self.touched_previous
        return previous is not None and self.touched_last == self.applied_seq and self.touched_whole and previous <= common_seq
