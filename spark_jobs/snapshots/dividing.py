"""Divides a snapshot among Spark's tasks, and leaves out what no filter wants.

What always holds: the parts of a plan hold every wanted key of every range once, in order; no part is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from spark_jobs.asked import ColumnRange
from spark_jobs.snapshots.snapshot import KeyRange, SnapshotReader

PIECE_ROWS = 50_000  # where nothing is known of the keys yet, a table is cut into pieces of about so many rows


def pieces_of(snapshot: SnapshotReader, tables: Iterable[int], keys: ColumnRange | None = None) -> list[KeyRange]:
    """The tables, in the order of their ids, each cut into pieces that are taken to be of the same weight. `keys`: only what
    may hold such keys; single keys are pieces of their own, for which nothing is asked of the snapshot."""
    wanted = keys or ColumnRange()
    start, end = _bounds(wanted)
    found = []
    for table in sorted(tables):
        cuts = [] if wanted.values is not None else snapshot.cuts(table, start, end, PIECE_ROWS)
        edges = zip([b"", *cuts], [*cuts, None], strict=True)
        found += narrowed((KeyRange(table, number, *edge, 1) for number, edge in enumerate(edges)), wanted)
    return found


def narrowed(ranges: Iterable[KeyRange], keys: ColumnRange) -> list[KeyRange]:
    """The parts of `ranges`, in their order, in which wanted keys may lie."""
    start, end = _bounds(keys)
    values = None if keys.values is None else sorted(value for value in keys.values if keys.has(value))
    found: list[KeyRange] = []
    for one in ranges:
        if values is not None:
            found += _single(one, values)
            continue
        low, high = max(one.start, start), min((each for each in (one.end, end) if each is not None), default=None)
        if high is None or low < high:
            found.append(KeyRange(one.table, one.number, low, high, one.weight))
    return found


def _single(one: KeyRange, values: Sequence[bytes]) -> Iterator[KeyRange]:
    """The ranges of those of the ascending `values` that lie in `one`."""
    last = len(values) if one.end is None else bisect_left(values, one.end)
    for value in values[bisect_left(values, one.start) : last]:
        yield KeyRange(one.table, one.number, value, _behind(value), 1)


def _bounds(keys: ColumnRange) -> tuple[bytes, bytes | None]:
    """[start, end) of the wanted keys."""
    return keys.low or b"", None if keys.high is None else _behind(keys.high)


def _behind(key: bytes) -> bytes:
    """The next key in the order of bytes."""
    return key + b"\0"


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
