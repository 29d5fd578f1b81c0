"""Digests of ranges: equal exactly when the rows are, however they were read and cut."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.snapshots.digests import cut_digests, digest_of
from spark_jobs.snapshots.dividing import packed, pieces_of
from spark_jobs.snapshots.snapshot import KeyRange, SnapshotCatalog

Row = tuple[bytes, bytes]
keys = st.binary(max_size=3)
tables = st.dictionaries(keys, st.binary(max_size=4), max_size=12).map(lambda rows: sorted(rows.items()))


@given(tables, tables)
def test_digests_are_equal_exactly_when_the_rows_are(one: list[Row], other: list[Row]) -> None:
    assert (digest_of(one, b"", None).digest == digest_of(other, b"", None).digest) == (one == other)


@pytest.mark.parametrize(("one", "other"), [
    ([(b"ab", b"c")], [(b"a", b"bc")]),
    ([(b"a", b"b"), (b"c", b"d")], [(b"a", b"b\0\0\0\1\0\0\0\1cd")]),
    ([(b"", b"")], []),
])
def test_where_key_and_row_end_counts(one: list[Row], other: list[Row]) -> None:
    assert digest_of(one, b"", None).digest != digest_of(other, b"", None).digest


def test_the_digest_is_what_the_module_says() -> None:
    said = hashlib.blake2b(b"\0\0\0\1\0\0\0\2kv1\0\0\0\2\0\0\0\1l2v", digest_size=16).digest()
    assert digest_of([(b"k", b"v1"), (b"l2", b"v")], b"", None) == (b"", None, 2, 6, said)


@given(tables, st.integers(1, 5), st.integers(1, 20))
def test_ranges_follow_each_other_and_are_small(rows: list[Row], rows_max: int, bytes_max: int) -> None:
    found = list(cut_digests(iter(rows), b"", None, rows_max, bytes_max))
    assert [found[0].start, *(one.end for one in found)] == [*(one.start for one in found), None]
    for one in found:
        inside = [row for row in rows if one.start <= row[0] and (one.end is None or row[0] < one.end)]
        assert one == digest_of(inside, one.start, one.end)
        assert one.rows <= rows_max
        assert sum(len(key) + len(packed_row) for key, packed_row in inside[:-1]) < bytes_max
    assert sum(one.rows for one in found) == len(rows)


def test_an_empty_part_is_one_range() -> None:
    (one,) = cut_digests([], b"a", b"b")
    assert (one.start, one.end, one.rows) == (b"a", b"b", 0)


ranges = st.lists(st.integers(0, 100), max_size=20).map(
    lambda weights: [KeyRange(1, at, bytes([at]), bytes([at + 1]), weight) for at, weight in enumerate(weights)]
)


@given(ranges, st.integers(1, 9))
def test_parts_hold_every_range_once_in_order(listed: list[KeyRange], parts: int) -> None:
    found = packed(listed, parts)
    assert [one for part in found for one in part] == listed
    assert len(found) <= parts
    assert all(found)
    heaviest = max((one.weight for one in listed), default=0)
    share = sum(max(one.weight, 1) for one in listed) / parts
    assert all(sum(one.weight for one in part) <= share + heaviest + 1 for part in found)


class CutAt:
    """A snapshot of which only the cuts are asked."""

    def __init__(self, cuts: dict[int, list[bytes]]) -> None:
        self._cuts = cuts

    def catalog(self) -> SnapshotCatalog:
        raise NotImplementedError

    def walk(self, table: int, start: bytes, end: bytes | None) -> Iterator[Row]:
        raise NotImplementedError

    def cuts(self, table: int, start: bytes, end: bytes | None, rows: int) -> list[bytes]:
        return self._cuts[table]


def test_pieces_hold_whole_tables() -> None:
    found = pieces_of(CutAt({5: [b"b", b"d"], 1: []}), [5, 1])
    assert [(one.table, one.number, one.start, one.end) for one in found] == [
        (1, 0, b"", None), (5, 0, b"", b"b"), (5, 1, b"b", b"d"), (5, 2, b"d", None)
    ]
