"""Judges which links of a log are missing: for a start of the gateway, `log verify` and the log audit alike.

A stretch is what stands of frames that follow one another. What always holds: what an epoch does not link to because another
site wrote it, or because it was trimmed, is no missing link. In both cases no segment of the same epoch stands before it that
may have held what is missing; so a link is missing between what one epoch wrote into its segments, and nowhere else.
Source: protocol.md sections 3 and 4.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from storage.log.segment import HEADER_BYTES


@dataclass(frozen=True, slots=True)
class SegmentPlace:
    """A place in a segment: number `ordinal` of the log, of epoch `epoch`."""

    epoch: int
    ordinal: int
    offset: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """`first_seq` .. `last_seq`, as far as they stand. `begin`: of the first frame, which names `previous`. `end`: behind the
    last one that stands."""

    first_seq: int
    last_seq: int
    previous: int
    begin: SegmentPlace
    end: SegmentPlace


@dataclass(frozen=True, slots=True)
class EpochBegin:
    """The first segment of an epoch that the log has; nothing in it is below `first_seq`, and its frames begin at `offset`."""

    ordinal: int
    first_seq: int
    offset: int = HEADER_BYTES


@dataclass(frozen=True, slots=True)
class MissingLink:
    """`after` continues sequence `after.previous`; `last_seq` is the last one before it, and what is missing stood at `place`.
    `before` None: nothing stands before."""

    before: Stretch | None
    after: Stretch
    place: SegmentPlace
    last_seq: int


def missing_links(stretches: Sequence[Stretch], begins: Mapping[int, EpochBegin]) -> Iterator[MissingLink]:
    """`stretches` in the order of the log; `begins` by epoch of the segments."""
    if stretches and (front := _missing_before(None, stretches[0], begins)) is not None:
        yield front
    for before, after in pairwise(stretches):
        found = _missing_before(before, after, begins)
        if found is not None:
            yield found


def _missing_before(before: Stretch | None, after: Stretch, begins: Mapping[int, EpochBegin]) -> MissingLink | None:
    epoch = after.begin.epoch
    if before is not None and before.end.epoch == epoch:
        linked = after.previous == before.last_seq
        return None if linked else MissingLink(before, after, before.end, before.last_seq)
    begin = begins.get(epoch)
    if begin is None or begin.ordinal == after.begin.ordinal or after.previous < begin.first_seq:
        return None
    return MissingLink(before, after, SegmentPlace(epoch, begin.ordinal, begin.offset), begin.first_seq - 1)
