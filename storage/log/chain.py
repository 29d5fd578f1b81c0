"""Reading along `previous`: which frames of any collection are the log, and which were left behind.

The rule: frames are taken in the order of (epoch, sequence), and a frame whose `previous` lies below what was read cuts
off what came after that. So a frame stands exactly when no later one names a `previous` below its last sequence.
What always holds: the union of both logs, in any order and with repetitions, gives the same answer; a frame that was
cut off is harmless, also when its own link is missing; between frames that stand no link is missing. A link is a
sequence without an epoch: if the frame it means is lost while a dead site's frame of the same last sequence is at hand,
that one is taken for it; so a divergent log is put aside (rejoin) before anyone reads it together with a newer epoch.
Source: protocol.md section 4.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from storage import invariants
from storage.invariants import InvariantBroken
from storage.log.frame import Frame
from twinlog.errors import DamagedLog, LogGap


def standing(frames: Iterable[Frame]) -> list[Frame]:
    """The frames that stand, in order. What the first of them links to is for the caller to judge.

    Raises LogGap where a frame between them is missing, DamagedLog when two frames claim one position.
    """
    kept = remaining(frames)
    for before, frame in _unlinked(kept):
        raise LogGap(
            f"frames are missing: {frame!r} continues sequence {frame.previous}, but the last one before it is {before!r}",
            held_seq=before.last_seq, offered_previous=frame.previous,
        )
    return kept


def gaps(frames: Iterable[Frame]) -> list[tuple[Frame, Frame]]:
    """The frames before and behind each gap between frames that stand. Raises DamagedLog as `standing`."""
    return list(_unlinked(remaining(frames)))


def misplaced(positions: Iterable[tuple[int, int]]) -> list[int]:
    """The places of the frames of one file that stand behind one of the same or a higher (epoch, sequence).

    A writer appends in this order and never the same frame again to the same file.
    """
    found: list[int] = []
    highest = (-1, -1)
    for place, position in enumerate(positions):
        if position <= highest:
            found.append(place)
        highest = max(highest, position)
    return found


def unbroken(frames: Iterable[Frame]) -> list[Frame]:
    """The last frames that stand, in order, as far back as no link is missing between them. Raises DamagedLog as `standing`."""
    kept = remaining(frames)
    first = len(kept) - 1
    while first > 0 and kept[first].previous == kept[first - 1].last_seq:
        first -= 1
    return kept[max(first, 0) :]


def reachable(frames: Iterable[Frame], applied_seq: int, applied_epoch: int = 0) -> list[Frame]:
    """The frames that stand and lead on from `applied_seq` without a gap, whatever lies behind a gap. See `tail_after`."""
    reached: list[Frame] = []
    at = applied_seq
    for frame in remaining(frame for frame in frames if frame.last_seq > applied_seq and frame.epoch >= applied_epoch):
        if frame.previous != at:
            break
        reached.append(frame)
        at = frame.last_seq
    return reached


def _unlinked(kept: Sequence[Frame]) -> Iterator[tuple[Frame, Frame]]:
    return ((before, frame) for before, frame in pairwise(kept) if frame.previous != before.last_seq)


def remaining(frames: Iterable[Frame]) -> list[Frame]:
    """The frames that no later one cuts off, in order, with gaps where frames are missing: what is missing there may have cut
    off what stands right before it. Raises DamagedLog as `standing`."""
    ordered = _distinct(frames)
    kept: list[Frame] = []
    lowest_previous: int | None = None
    for frame in reversed(ordered):
        if lowest_previous is None or frame.last_seq <= lowest_previous:
            kept.append(frame)
        if lowest_previous is None or frame.previous < lowest_previous:
            lowest_previous = frame.previous
    kept.reverse()
    check(ordered, kept)
    return kept


def check(ordered: Sequence[Frame], kept: Sequence[Frame]) -> None:
    """Raises InvariantBroken unless `kept` are the frames of `ordered` that stand.

    The walk over all frames is costly, and so left to tests and the simulator. It comes from the other end than `remaining`:
    each frame, in order, takes away what stood above its `previous`.
    """
    if bool(ordered) != bool(kept) or (kept and kept[-1] is not ordered[-1]):
        raise InvariantBroken(f"chain: the newest of {len(ordered)} frames stands, whatever came before; kept: {kept[-1:]!r}")
    if invariants.costly:
        stands: list[Frame] = []
        for frame in ordered:
            while stands and stands[-1].last_seq > frame.previous:
                stands.pop()
            stands.append(frame)
        if stands != list(kept):
            raise InvariantBroken(f"chain: a frame stands when no later one cuts it off: {stands!r}, not {kept!r}")


def tail_after(frames: Iterable[Frame], applied_seq: int, applied_epoch: int = 0) -> list[Frame]:
    """The frames that stand and continue from `applied_seq`, the last sequence of a frame that stands.

    `applied_epoch` is that frame's epoch: what an older epoch left above `applied_seq` was cut off by that very frame,
    which need not be among `frames`. Raises LogGap when the first one does not continue from `applied_seq`: something
    is missing, or what was applied has been cut off by the log.
    """
    tail = standing(frame for frame in frames if frame.last_seq > applied_seq and frame.epoch >= applied_epoch)
    if tail and tail[0].previous != applied_seq:
        first = tail[0]
        why = "frames between are missing" if first.previous > applied_seq else "the log has cut off what was applied here"
        raise LogGap(
            f"{first!r} continues sequence {first.previous}, but applied is {applied_seq}: {why}",
            held_seq=applied_seq, offered_previous=first.previous,
        )
    return tail


def _distinct(frames: Iterable[Frame]) -> list[Frame]:
    """In order, each position once."""
    ordered: list[Frame] = []
    for frame in sorted(frames, key=lambda frame: frame.position):
        if not ordered or ordered[-1].position != frame.position:
            ordered.append(frame)
        elif ordered[-1].data != frame.data:
            raise DamagedLog(
                f"two different frames claim epoch {frame.epoch}, sequence {frame.first_seq}: {ordered[-1]!r} of"
                f" {len(ordered[-1].data)} bytes and {frame!r} of {len(frame.data)} bytes; one of the logs is not this pair's",
                epoch=frame.epoch, seq=frame.first_seq,
            )
    return ordered
