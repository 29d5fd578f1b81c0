"""Judges what is missing from one log, by the product's own rule (storage/log/links.py), asked with the few rows of its chains.

What always holds: a start of the gateway and this agree about which link is missing; this only knows more. Below `trimmed_to`,
which the other site holds durably, and around a segment that was deleted while the log was read, nothing is missing. A torn
tail is one, unless the log continues and what it held is missing: then it is damage. What a damaged place accounts for is no
second finding. It needs no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from spark_jobs.logs.columns import SEGMENT
from spark_jobs.logs.walk import DAMAGED, GONE, TORN, UNREADABLE
from storage.log.links import EpochBegin, MissingLink, SegmentPlace, Stretch, missing_links

GAP, BROKEN_LINK = "gap", "broken-link"
Row = dict[str, Any]


class Missing(NamedTuple):
    """A finding, with the columns of one_log.FOUND."""

    kind: str
    ordinal: int
    offset: int
    seq: int
    last_seq: int
    detail: str


def missing(marks: Sequence[Row], linked: Sequence[Row], trimmed_to: int, *, is_wal: bool) -> list[Missing]:
    """`marks`: the rows of the view `runs` that are no runs; `linked`: those of one_log.linked. GAP, BROKEN_LINK; DAMAGED where
    a torn tail turns out to have held what is missing, and for a WAL's segment without a header that is not the last one."""
    headed = {mark["ordinal"] for mark in marks if mark["entry"] == SEGMENT}
    void = [mark for mark in marks if mark["entry"] == TORN and mark["ordinal"] not in headed and mark["offset"] == 0]
    lost = [mark for mark in void if is_wal and any(ordinal > mark["ordinal"] for ordinal in headed)]
    found = [
        Missing(DAMAGED, mark["ordinal"], 0, 0, -1, "no segment header can be read, and later segments follow") for mark in lost
    ]
    chains = sorted(linked, key=lambda row: (row["epoch"], row["seq"]))
    lasts = {(row["epoch"], row["seq"]): row["last_seq"] for row in chains}
    stretches = [_stretch(row) for row in chains]
    epochs = {id(stretch): row["epoch"] for stretch, row in zip(stretches, chains, strict=True)}
    voids = {mark["ordinal"] for mark in lost}
    for link in missing_links(stretches, _begins(marks)):
        if link.after.previous <= trimmed_to or (link.before is None and not is_wal):
            continue
        place = link.place if link.before is None else link.before.end
        around = range(place.ordinal, link.after.begin.ordinal + 1)
        explained = any(mark["entry"] == GONE and mark["ordinal"] in around for mark in marks) or voids & set(around)
        if explained or any(_accounts(mark, link) for mark in marks):
            continue
        before_last = 0 if link.before is None else lasts[epochs[id(link.before)], link.before.first_seq]
        found.append(_finding(link, place, marks, before_last))
    return found


def _stretch(row: Row) -> Stretch:
    first = row["first"]
    return Stretch(
        row["seq"], row["upto"], row["previous"], SegmentPlace(first["segment_epoch"], first["ordinal"], first["offset"]),
        SegmentPlace(row["at_epoch"], row["at"], row["at_end"]),
    )


def _begins(marks: Sequence[Row]) -> dict[int, EpochBegin]:
    begins: dict[int, EpochBegin] = {}
    for mark in sorted((mark for mark in marks if mark["entry"] == SEGMENT), key=lambda mark: int(mark["ordinal"])):
        begins.setdefault(mark["segment_epoch"], EpochBegin(mark["ordinal"], mark["seq"]))
    return begins


def _accounts(mark: Row, link: MissingLink) -> bool:
    """Returns True for a damaged place that held some of what is missing."""
    after = link.last_seq if link.before is None else link.before.last_seq
    return mark["entry"] in (DAMAGED, UNREADABLE) and mark["seq"] <= link.after.previous and mark["last_seq"] > after


def _finding(link: MissingLink, place: SegmentPlace, marks: Sequence[Row], before_last: int) -> Missing:
    torn = any(_torn_at(mark, place) for mark in marks)
    kind = DAMAGED if torn else BROKEN_LINK if before_last > link.after.previous else GAP
    after = link.last_seq if link.before is None else link.before.last_seq
    said = (
        f"the log resumes at sequence {link.after.first_seq}, which continues {link.after.previous}, and {after} is the last"
        " one before it"
    )
    return Missing(kind, place.ordinal, place.offset, after + 1, link.after.previous, said)


def _torn_at(mark: Row, place: SegmentPlace) -> bool:
    return bool(mark["entry"] == TORN and (mark["ordinal"], mark["offset"]) == (place.ordinal, place.offset))
