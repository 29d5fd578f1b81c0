"""The comparison of digests and rows against a dumb one of two dictionaries, on tables that Hypothesis makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.compare.job import charts
from spark_jobs.compare.ranges import Digested, RangePair, check_explained, counters, paired, tallies
from spark_jobs.compare.rows import DAMAGED, EXTRA, KINDS, MISSING, STALE, differing_rows, key_text, row_json
from spark_jobs.snapshots.digests import cut_digests, digest_of
from spark_jobs.snapshots.snapshot import KeyRange
from spark_jobs.snapshots.source import ROWS
from storage.rows.codec import RowCodec
from tests.spark_jobs.snapshots.snapshot_rig import table
from twinlog.errors import EngineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Side = Mapping[bytes, tuple[int, bytes]]  # key -> version, value

keys = st.one_of(st.binary(max_size=2), st.lists(st.sampled_from([0, 1, 255]), max_size=4).map(bytes))
one_row = st.tuples(st.integers(1, 3), st.sampled_from([b"", b"\0", b"a", b"b"]))
side = st.dictionaries(keys, one_row, max_size=12)


@st.composite
def pair_of_sides(draw: st.DrawFn) -> tuple[Side, Side]:
    """Two sides that are mostly alike."""
    source = draw(side)
    peer = {key: row for key, row in source.items() if draw(st.integers(0, 9))}
    return source, {**peer, **draw(st.one_of(st.just({}), st.just({}), side))}


@given(st.lists(pair_of_sides(), min_size=20, max_size=20), st.integers(1, 4))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_as_a_dumb_comparison(spark: SparkSession, sides: list[tuple[Side, Side]], rows_max: int) -> None:
    """Every pair of sides is a table; ranges are cut by the source's rows."""
    tables = dict(enumerate(sides, start=1))
    pairs = [pair for number, (source, peer) in tables.items() for pair in digests_of(number, source, peer, rows_max)]
    again = [pair.range for pair in pairs if not pair.equal]
    frames = [
        spark.createDataFrame(
            [
                (one.table, one.number, bytearray(key), version, bytearray(value))
                for one in again for key, (version, value) in tables[one.table][at].items() if inside(one, key)
            ], ROWS)
        for at in (0, 1)
    ]
    found = differing_rows(*frames).collect()
    assert [(row["table"], bytes(row["key"]), row["kind"]) for row in found] == dumb(tables)
    for row in found:
        source, peer = (tables[row["table"]][at].get(bytes(row["key"]), (None, None)) for at in (0, 1))
        assert (row["source_version"], row["source_value"]) == source
        assert (row["peer_version"], row["peer_value"]) == peer
    counts = dict.fromkeys(((row["table"], row["range"], row["kind"]) for row in found), 0)
    for row in found:
        counts[row["table"], row["range"], row["kind"]] += 1
    check_explained(pairs, counts, dict.fromkeys(tables, "t"))
    check_tallies(pairs, counts)
    said = counters(pairs, counts)
    assert said["BADROWS"] == len(found) == said["ONLY_IN_SOURCE"] + said["ONLY_IN_PEER"] + said["CONTENT_DIFFERENT"]
    assert said["GOODROWS"] == sum(peer.get(key) == row for source, peer in sides for key, row in source.items())


def check_tallies(pairs: list[RangePair], counts: Mapping[tuple[int, int, str], int]) -> None:
    """The counts of each table, which the sites get, add up to the counters."""
    tables = tallies(pairs, counts, {pair.range.table: "t" for pair in pairs})
    said = counters(pairs, counts)
    assert sum(one.equal for one in tables) == said["GOODROWS"]
    assert sum(one.compared for one in tables) == said["GOODROWS"] + said["BADROWS"]
    for kind, name in ((MISSING, "ONLY_IN_SOURCE"), (EXTRA, "ONLY_IN_PEER"), (STALE, "STALE"), (DAMAGED, "DAMAGED")):
        assert sum(one.kinds[kind] for one in tables) == said[name]
        assert sum(sum(one.places.get(kind, ())) for one in tables) == said[name]


def digests_of(number: int, source: Side, peer: Side, rows_max: int) -> list[RangePair]:
    ours = [
        Digested(KeyRange(number, at, one.start, one.end, 1), one.rows, one.digest)
        for at, one in enumerate(cut_digests(packed(source), b"", None, rows_max))
    ]
    theirs = []
    for one in ours:
        digest = digest_of([row for row in packed(peer) if inside(one.range, row[0])], one.range.start, one.range.end)
        theirs.append(Digested(one.range, digest.rows, digest.digest))
    return paired(ours, reversed(theirs))


def packed(side: Side) -> list[tuple[bytes, bytes]]:
    return [(key, version.to_bytes(8, "big") + value) for key, (version, value) in sorted(side.items())]


def inside(one: KeyRange, key: bytes) -> bool:
    return one.start <= key and (one.end is None or key < one.end)


def dumb(tables: Mapping[int, tuple[Side, Side]]) -> list[tuple[int, bytes, str]]:
    found = []
    for number, (source, peer) in sorted(tables.items()):
        for key in sorted(source.keys() | peer.keys()):
            if key not in peer:
                found.append((number, key, MISSING))
            elif key not in source:
                found.append((number, key, EXTRA))
            elif source[key][0] != peer[key][0]:
                found.append((number, key, STALE))
            elif source[key][1] != peer[key][1]:
                found.append((number, key, DAMAGED))
    return found


RANGE = KeyRange(1, 4, b"a", b"c", 1)


@pytest.mark.parametrize(("pair", "counts"), [
    (RangePair(RANGE, 5, 5, False), {}),
    (RangePair(RANGE, 5, 5, True), {(1, 4, STALE): 1}),
    (RangePair(RANGE, 5, 4, False), {(1, 4, STALE): 1}),
    (RangePair(RANGE, 5, 5, False), {(1, 4, MISSING): 2, (1, 4, EXTRA): 1}),
])
def test_a_range_that_its_rows_do_not_explain_is_no_answer(pair: RangePair, counts: dict[tuple[int, int, str], int]) -> None:
    with pytest.raises(EngineFailed, match="range 4 of table 'flights' was not the same"):
        check_explained([pair], counts, {1: "flights"})


def test_counters_add_up() -> None:
    pairs = [RangePair(RANGE, 10, 9, False), RangePair(KeyRange(1, 5, b"c", None, 1), 7, 7, True)]
    counts = {(1, 4, MISSING): 2, (1, 4, EXTRA): 1, (1, 4, STALE): 3, (1, 4, DAMAGED): 1}
    check_explained(pairs, counts, {1: "t"})
    assert counters(pairs, counts) == {
        "GOODROWS": 11, "BADROWS": 7, "ONLY_IN_SOURCE": 2, "ONLY_IN_PEER": 1, "CONTENT_DIFFERENT": 4, "STALE": 3, "DAMAGED": 1,
        "RANGES": 2, "RANGES_DIFFERENT": 1,
    }


def test_charts_show_where_differences_lie() -> None:
    pairs = [RangePair(KeyRange(1, at, b"", None, 1), 1, 1, True) for at in range(250)]
    (chart,) = charts(pairs, {(1, 0, MISSING): 2, (1, 249, STALE): 5, (1, 248, STALE): 1}, {1: "flights"})
    heights = {series.name: series.y for series in chart.series}
    assert list(heights) == list(KINDS)
    assert (heights[MISSING][0], heights[STALE][99], len(heights[EXTRA])) == (2.0, 6.0, 100)
    assert sum(map(sum, heights.values())) == 8
    assert charts(pairs, {}, {1: "flights"}) == ()


def test_rows_and_keys_that_do_not_decode_are_shown_as_bytes() -> None:
    codec = RowCodec(table(1))
    key, value = codec.encode_json_row({"id": 7, "text": "x"})
    assert (key_text(codec, key), row_json(codec, key, value)) == ("7", '{"id":7,"text":"x"}')
    assert row_json(codec, key, None) is None
    assert row_json(codec, key, value[:-1]) == f'{{"damaged_bytes":"{value[:-1].hex()}"}}'
    assert key_text(codec, b"\1") == "0x01"
    for at in range(len(value) * 8):
        flipped = bytearray(value)
        flipped[at // 8] ^= 1 << at % 8
        assert row_json(codec, key, bytes(flipped))
