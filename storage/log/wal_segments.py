"""The local log's knowledge of its segments, without reading them: runs of linked frames, their places and links.

What always holds: a run holds frames of one epoch that follow one another in one file, each linked to the one before, so
only the first of a run can cut anything off; a segment's marks lead near any sequence without reading from the start.
Source: protocol.md section 4, chain.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from storage.disk.port import LogFile
from storage.log.encryption import SegmentCipher
from storage.log.frame import TAG_BYTES, Frame
from storage.log.links import EpochBegin, SegmentPlace, Stretch, missing_links
from storage.log.segment import HEADER_BYTES
from twinlog.errors import DamagedLog

_MARK_BYTES = 64 << 10


@dataclass(slots=True)
class FrameRun:
    """`first_seq` .. `last_seq`, the first frame naming `previous`; bytes [offset, end) of the file."""

    epoch: int
    first_seq: int
    last_seq: int
    previous: int
    offset: int
    end: int

    @property
    def position(self) -> tuple[int, int]:
        return (self.epoch, self.first_seq)


@dataclass(slots=True, eq=False)
class WalSegment:
    """One file. `first_seq`: nothing in it is below. `begin`: of its first frame. `end`: behind its last frame. `size_bytes`:
    on disk. `cipher`: of an encrypted one. `committed_max`: what its own frames attest."""

    path: str
    epoch: int
    first_seq: int
    size_bytes: int
    file: LogFile | None = None
    runs: list[FrameRun] = field(default_factory=list)
    begin: int = HEADER_BYTES
    cipher: SegmentCipher | None = None
    end: int = 0
    committed_max: int = 0
    _mark_seqs: list[int] = field(default_factory=list)
    _mark_offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.end = self.end or self.begin

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def last_seq(self) -> int:
        """Largest sequence in it, whether it stands or not; 0 when empty."""
        return max((run.last_seq for run in self.runs), default=0)

    def after(self, frame: Frame, offset: int) -> int:
        """Returns where the frame that begins at `offset` ends, and the next one begins."""
        return offset + len(frame.data) + (0 if self.cipher is None else TAG_BYTES)

    def note(self, frame: Frame) -> None:
        """`frame` goes behind what is there."""
        last_seq, offset, runs = frame.last_seq, self.end, self.runs
        self.end = end = self.after(frame, offset)
        if runs and runs[-1].last_seq == frame.previous and runs[-1].epoch == frame.epoch:
            runs[-1].last_seq, runs[-1].end = last_seq, end
        else:
            runs.append(FrameRun(frame.epoch, frame.first_seq, last_seq, frame.previous, offset, end))
        if frame.committed > self.committed_max and frame.epoch == self.epoch:
            self.committed_max = frame.committed
        if not self._mark_offsets or offset - self._mark_offsets[-1] >= _MARK_BYTES:
            self._mark_seqs.append(frame.first_seq)
            self._mark_offsets.append(offset)
        if end > self.size_bytes:
            self.size_bytes = end

    def cut(self, offset: int) -> None:
        """Everything from `offset`, where a run begins, is gone."""
        self.runs = [run for run in self.runs if run.offset < offset]
        self.end = offset

    def ends_before(self, position: tuple[int, int]) -> bool:
        """Returns True when no frame in it is at (epoch, sequence) `position`, or behind it."""
        return all((run.epoch, run.last_seq) < position for run in self.runs)

    def offset_near(self, seq: int) -> int:
        """Returns the offset at which to begin reading so that `seq` is not missed. Sequences ascend in a file."""
        at = bisect_right(self._mark_seqs, seq) - 1
        return self._mark_offsets[at] if at >= 0 else self.begin

    def begins_at(self, offset: int, frame: Frame) -> bool:
        """Returns True when `frame` was written at `offset`, as the first one of a run or at a mark."""
        at = bisect_right(self._mark_offsets, offset) - 1
        marked = at >= 0 and (self._mark_offsets[at], self._mark_seqs[at]) == (offset, frame.first_seq)
        return marked or any((run.offset, run.position) == (offset, frame.position) for run in self.runs)


@dataclass(frozen=True, slots=True)
class Excluder:
    """Finds excluded frames, by what later runs name as `previous`."""

    cuts: list[tuple[tuple[int, int], int]]

    def excludes(self, frame: Frame) -> bool:
        return any(previous < frame.last_seq and frame.position < position for position, previous in self.cuts)


def excluder(segments: Sequence[WalSegment]) -> Excluder:
    """Only runs that do cut something off are looked at; there are few."""
    cuts, highest = [], 0
    for run, _ in _in_order(segments):
        if run.previous < highest:
            cuts.append((run.position, run.previous))
        highest = max(highest, run.last_seq)
    return Excluder(cuts)


@dataclass(frozen=True, slots=True)
class StandingFrames:
    """Says of each frame of a log whether it stands, without the others. `unbroken_from`: the (epoch, sequence) of the first
    frame from which on no link is missing up to the end; None: no frame stands."""

    excluder: Excluder
    unbroken_from: tuple[int, int] | None

    def has(self, frame: Frame) -> bool:
        return not self.excluder.excludes(frame)

    def leads_to_end(self, frame: Frame) -> bool:
        """Returns True for a frame that stands, with no hole behind it."""
        return self.unbroken_from is not None and frame.position >= self.unbroken_from and self.has(frame)


def standing_frames(segments: Sequence[WalSegment]) -> StandingFrames:
    unbroken = _unbroken(segments)
    return StandingFrames(excluder(segments), unbroken[0].run.position if unbroken else None)


def runs_in_order(segments: Sequence[WalSegment]) -> list[tuple[FrameRun, WalSegment]]:
    """Every run with its file, in the order of (epoch, sequence)."""
    return [(run, segments[place]) for run, place in _in_order(segments)]


@dataclass(frozen=True, slots=True)
class _Standing:
    run: FrameRun
    place: int  # index of its segment
    last_seq: int  # of the run, as far as it stands


def _in_order(segments: Sequence[WalSegment]) -> list[tuple[FrameRun, int]]:
    runs = [(run, place) for place, segment in enumerate(segments) for run in segment.runs]
    return sorted(runs, key=lambda pair: pair[0].position)


def _standing(segments: Sequence[WalSegment]) -> list[_Standing]:
    """chain.standing for runs; a run may stand in part, up to the end of a frame: what cuts it off names one that is held, for
    a site clears its log before it follows another one (switchover/rejoin.py)."""
    kept: list[_Standing] = []
    lowest_previous: int | None = None
    for run, place in reversed(_in_order(segments)):
        last_seq = run.last_seq if lowest_previous is None else min(run.last_seq, lowest_previous)
        if last_seq >= run.first_seq:
            kept.append(_Standing(run, place, last_seq))
        if lowest_previous is None or run.previous < lowest_previous:
            lowest_previous = run.previous
    kept.reverse()
    return kept


def held(segments: Sequence[WalSegment]) -> tuple[int, int] | None:
    """(previous of the first, last sequence) of the unbroken chain at the end; None when no frame is held.

    A site that followed another one in between has a hole before the epoch in which it was active again.
    """
    kept = _unbroken(segments)
    return (kept[0].run.previous, kept[-1].last_seq) if kept else None


def is_unbroken(segments: Sequence[WalSegment]) -> bool:
    """Returns True when no link is missing between the frames that stand."""
    return len(_unbroken(segments)) == len(_standing(segments))


def _unbroken(segments: Sequence[WalSegment]) -> list[_Standing]:
    """The last runs that stand, as far back as no link is missing between them."""
    kept = _standing(segments)
    first = len(kept) - 1
    while first > 0 and kept[first].run.previous == kept[first - 1].last_seq:
        first -= 1
    return kept[max(first, 0) :]


@dataclass(frozen=True, slots=True)
class TornAt:
    """Everything from here on was never durable in order: segment number `place`, from `offset`."""

    place: int
    offset: int


def trimmable(segments: Sequence[WalSegment], below_seq: int) -> list[WalSegment]:
    """Returns the segments in which nothing at or above `below_seq` stands, in the order in which to delete them.

    The log then begins in a segment whose first standing frame is below `below_seq`, hence durable: one that is still
    empty does not show whether it lost what it should begin with. For the same reason those in which nothing stands go
    first, while something still precedes them.
    """
    kept = _standing(segments)
    begin = max((standing.place for standing in kept if standing.run.first_seq < below_seq), default=0)
    useful = {standing.place for standing in kept}
    needed = {standing.place for standing in kept if standing.last_seq >= below_seq}  # out of order, if ever
    return [segments[place] for place in sorted(set(range(begin)) - needed, key=lambda place: (place in useful, place))]


def find_tear(segments: Sequence[WalSegment]) -> TornAt | None:
    """Finds the first place where a link is missing (storage/log/links.py).

    Raises DamagedLog when something behind proves that the missing frames were durable.
    """
    kept = _standing(segments)
    begins: dict[int, EpochBegin] = {}
    for place, segment in enumerate(segments):
        begins.setdefault(segment.epoch, EpochBegin(place, segment.first_seq, segment.begin))
    stretches = [
        Stretch(
            each.run.first_seq, each.last_seq, each.run.previous,
            SegmentPlace(segments[each.place].epoch, each.place, each.run.offset),
            SegmentPlace(segments[each.place].epoch, each.place, each.run.end),
        )
        for each in kept
    ]
    for link in missing_links(stretches, begins):
        source, offset, begin = segments[link.place.ordinal], link.place.offset, link.after.begin
        attested = max(segment.committed_max for segment in segments[begin.ordinal :])
        followed = segments[kept[-1].place].epoch != begin.epoch
        if attested > link.last_seq or followed:
            raise DamagedLog(
                f"{source.path}: frames are missing at offset {offset}, or in segments behind: sequence {link.last_seq + 1}"
                f" should follow there, and {segments[begin.ordinal].path} continues from {link.after.previous};"
                " restore the file from a copy, or rejoin this site from the other one",
                file=source.path, offset=offset, committed=attested,
            )
        return TornAt(begin.ordinal, begin.offset)
    return None
