"""Ranges of keys and their digests on both sites, and what the counts of differing rows come to.

What always holds: the counters are HBase's (VerifyReplication), and they add up: each row of the source is a good row, or only
in the source, or of different content. A range whose digests differ must hold rows that say why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa  # type: ignore[import-untyped]

from spark_jobs.compare.rows import DAMAGED, EXTRA, KINDS, MISSING, STALE
from spark_jobs.job import TableTally
from spark_jobs.snapshots.snapshot import KeyRange
from twinlog.errors import EngineFailed

RANGES = "table string, range int, start binary, end binary, source_rows bigint, peer_rows bigint, equal boolean, " + ", ".join(
    f"{kind} bigint" for kind in KINDS
)
_SEEK_BYTES = 1000  # what an empty range costs, in bytes read
_UNSIGNED = (1 << 64) - 1

Counts = Mapping[tuple[int, int, str], int]  # (table, range, kind): differing rows


@dataclass(frozen=True, slots=True)
class Digested:
    """One range on one site. `digest` of `count` rows."""

    range: KeyRange
    count: int
    digest: bytes


def digested(found: pa.Table) -> list[Digested]:
    """The view `digests` (snapshot_source.py), numbered in key order within each table."""
    lines = sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=lambda line: (line[0], line[1]))
    numbers: dict[int, int] = {}
    answer = []
    for table, start, end, count, size, digest in lines:
        number = numbers[table] = numbers.get(table, -1) + 1
        answer.append(Digested(KeyRange(table & _UNSIGNED, number, start, end, size + _SEEK_BYTES), count, digest))
    return answer


@dataclass(frozen=True, slots=True)
class RangePair:
    """The same range on both sites."""

    range: KeyRange
    source_rows: int
    peer_rows: int
    equal: bool


def paired(source: Iterable[Digested], peer: Iterable[Digested]) -> list[RangePair]:
    """Digests of the same ranges, side by side."""
    theirs = {(one.range.table, one.range.start): one for one in peer}
    pairs = []
    for ours in source:
        other = theirs[ours.range.table, ours.range.start]
        equal = (ours.count, ours.digest) == (other.count, other.digest)
        pairs.append(RangePair(ours.range, ours.count, other.count, equal))
    return pairs


def check_explained(pairs: Iterable[RangePair], counts: Counts, names: Mapping[int, str]) -> None:
    """Raises EngineFailed when the rows of a range do not say why its digests differ."""
    for pair in pairs:
        missing, extra, stale, damaged = _of(pair, counts)
        differs = missing + extra + stale + damaged > 0
        if pair.equal == differs or pair.source_rows - missing != pair.peer_rows - extra:
            raise EngineFailed(
                f"range {pair.range.number} of table {names[pair.range.table]!r} was not the same when its rows were read as "
                "when its digest was made: look at the disks, and audit again at a new barrier"
            )


def counters(pairs: Sequence[RangePair], counts: Counts) -> dict[str, int]:
    """HBase's, the two parts of CONTENT_DIFFERENT, and how many ranges there were."""
    sums = {kind: sum(count for (_, _, of), count in counts.items() if of == kind) for kind in KINDS}
    different = sums[STALE] + sums[DAMAGED]
    return {
        "GOODROWS": sum(pair.source_rows for pair in pairs) - sums[MISSING] - different,
        "BADROWS": sums[MISSING] + sums[EXTRA] + different,
        "ONLY_IN_SOURCE": sums[MISSING], "ONLY_IN_PEER": sums[EXTRA], "CONTENT_DIFFERENT": different,
        "STALE": sums[STALE], "DAMAGED": sums[DAMAGED],
        "RANGES": len(pairs), "RANGES_DIFFERENT": sum(not pair.equal for pair in pairs),
    }


def tallies(pairs: Sequence[RangePair], counts: Counts, names: Mapping[int, str]) -> tuple[TableTally, ...]:
    """Each table's rows that were compared, which are those of either site, and where those lie that differ."""
    ranges: dict[int, int] = dict.fromkeys(names, 0)
    equal, compared = dict(ranges), dict(ranges)
    for pair in pairs:
        table, (missing, extra, stale, damaged) = pair.range.table, _of(pair, counts)
        ranges[table] += 1
        equal[table] += pair.source_rows - missing - stale - damaged
        compared[table] += pair.source_rows + extra
    sums = {table: dict.fromkeys(KINDS, 0) for table in names}
    places = {table: {kind: [0] * ranges[table] for kind in KINDS} for table, number, kind in counts}
    for (table, number, kind), count in counts.items():
        sums[table][kind] += count
        places[table][kind][number] += count
    return tuple(
        TableTally(name, compared[table], equal[table], sums[table], places.get(table, {})) for table, name in names.items()
    )


def lines(pairs: Iterable[RangePair], counts: Counts, names: Mapping[int, str]) -> list[tuple[object, ...]]:
    """Every range as a line of RANGES."""
    return [
        (names[one.range.table], one.range.number, one.range.start, one.range.end, one.source_rows, one.peer_rows, one.equal,
         *_of(one, counts))
        for one in pairs
    ]


def _of(pair: RangePair, counts: Counts) -> list[int]:
    return [counts.get((pair.range.table, pair.range.number, kind), 0) for kind in KINDS]
