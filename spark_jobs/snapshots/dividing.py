"""Divides a snapshot among Spark's tasks.

What always holds: the parts of a plan hold every key of every range once, in order; no part is empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spark_jobs.snapshots.snapshot import KeyRange, SnapshotReader

PIECE_ROWS = 50_000  # where nothing is known of the keys yet, a table is cut into pieces of about so many rows


def pieces_of(snapshot: SnapshotReader, tables: Iterable[int]) -> list[KeyRange]:
    """The tables, in the order of their ids, each cut into pieces that are taken to be of the same weight."""
    found = []
    for table in sorted(tables):
        keys = snapshot.cuts(table, PIECE_ROWS)
        ends = zip([b"", *keys], [*keys, None], strict=True)
        found += [KeyRange(table, number, start, end, 1) for number, (start, end) in enumerate(ends)]
    return found


def packed(ranges: Sequence[KeyRange], parts: int) -> list[list[KeyRange]]:
    """`ranges`, in their order, in at most `parts` parts of about the same weight."""
    share = sum(max(one.weight, 1) for one in ranges) / max(parts, 1)
    found: list[list[KeyRange]] = []
    before = 0
    for one in ranges:
        if not found or before >= share * len(found):
            found.append([])
        found[-1].append(one)
        before += max(one.weight, 1)
    return found
