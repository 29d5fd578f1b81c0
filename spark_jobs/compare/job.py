"""The job `compare`: are both sites' tables the same at a barrier, row by row and byte by byte; and which rows are not.

What always holds: both sides are read at the same cuts, which come from the source's digests; rows are read only of ranges
whose digests differ; a range that differs must show the rows that explain it, or the job fails (a snapshot that changed
while it was read is no basis for an answer). Findings: compare_frames.DIFFERENCES. It changes neither site.

Digests are put side by side on the driver: there is one for some thousand rows, and a join of them by Spark costs more than
reading a million rows does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.compare.checks import Chosen, check_moments, choose
from spark_jobs.compare.ranges import RANGES, Counts, RangePair, check_explained, counters, digested, lines, paired, tallies
from spark_jobs.compare.rows import DIFFERENCES, EXTRA_TABLE, KINDS, MISSING_TABLE, differing_rows, shown_rows
from spark_jobs.job import FORMAT, Chart, JobProgress, JobRequest, Outcome, Series, SiteSource
from spark_jobs.snapshots.dividing import pieces_of
from spark_jobs.snapshots.snapshot import KeyRange, encode_ranges, open_snapshot
from storage.rows.schema import encode_schema

TASKS_PER_CORE = 4
_UNSIGNED = (1 << 64) - 1

BARS_MAX = 100
TABLES_MAX = 6


def run(spark: SparkSession, request: JobRequest, progress: JobProgress) -> Outcome:
    """Raises NotFound, Refused, EngineFailed, ConfigError, InvalidInput: then nothing is known."""
    source, peer = request.source, request.peer
    progress.step("comparing the schemas")
    chosen, pieces = _prepared(request)
    names = {number: schema.name for number, schema in chosen.tables.items()}

    progress.step(f"digests of {source.name}")
    ours = digested(_view(spark, "digests", source, pieces, cut="true").toArrow())
    total = sum(one.count for one in ours)
    progress.rows(total, 2 * total)
    progress.step(f"digests of {peer.name}")
    pairs = paired(ours, digested(_view(spark, "digests", peer, [one.range for one in ours]).toArrow()))
    progress.rows(2 * total, 2 * total)
    again = [pair.range for pair in pairs if not pair.equal]
    counts: Counts = {}
    findings = spark.createDataFrame(_whole_tables(chosen), DIFFERENCES)
    if again:
        progress.step(f"rows of {len(again):,} of {len(pairs):,} ranges")
        rows = differing_rows(_view(spark, "rows", source, again), _view(spark, "rows", peer, again))
        shown = shown_rows(rows, {number: encode_schema(schema) for number, schema in chosen.tables.items()}).persist()
        counts = {
            (one["id"] & _UNSIGNED, one["range"], one["kind"]): one["count"]
            for one in shown.groupBy("id", "range", "kind").count().collect()
        }
        findings = findings.unionByName(shown.drop("id"))
    check_explained(pairs, counts, names)
    return Outcome(
        good=not counts and not chosen.source_only and not chosen.peer_only,
        counters=counters(pairs, counts),
        findings=findings,
        tables=tuple(names.values()),
        frames={"ranges": spark.createDataFrame(lines(pairs, counts, names), RANGES)},
        charts=charts(pairs, counts, names),
        tallies=tallies(pairs, counts, names),
        remarks=tuple(f"table {name} is not replicated (local), and was not compared" for name in chosen.local),
    )


def _prepared(request: JobRequest) -> tuple[Chosen, list[KeyRange]]:
    """Returns the tables to compare, and the pieces in which the source is read."""
    names = request.source.name, request.peer.name
    with open_snapshot(request.peer.place, request.peer.engine_url) as snapshot:
        peer = snapshot.catalog()
    with open_snapshot(request.source.place, request.source.engine_url) as snapshot:
        source = snapshot.catalog()
        check_moments(source, peer, request.barrier, names)
        chosen = choose(source, peer, request.tables, names)
        return chosen, pieces_of(snapshot, chosen.tables)


def _view(spark: SparkSession, view: str, site: SiteSource, ranges: Sequence[KeyRange], **options: str) -> DataFrame:
    tasks = spark.sparkContext.defaultParallelism * TASKS_PER_CORE
    given = {
        "view": view, "place": site.place, "url": site.engine_url, "partitions": str(tasks), "ranges": encode_ranges(ranges),
        **options,
    }
    return spark.read.format(FORMAT).options(**given).load()


def _whole_tables(chosen: Chosen) -> list[tuple[str | None, ...]]:
    """The findings of tables that are on one site only."""
    rest = (None,) * (len(DIFFERENCES.split(",")) - 4)
    return [
        (chosen.tables[number].name, None, None, kind, *rest)
        for kind, numbers in ((MISSING_TABLE, chosen.source_only), (EXTRA_TABLE, chosen.peer_only))
        for number in sorted(numbers)
    ]


def charts(pairs: Sequence[RangePair], counts: Counts, names: Mapping[int, str]) -> tuple[Chart, ...]:
    """Charts of how many differences lie along the order of the keys, for each of the tables with the most."""
    worst: Counter[int] = Counter()
    for (table, _, _), count in counts.items():
        worst[table] += count
    return tuple(
        _chart(names[table], sum(pair.range.table == table for pair in pairs),
               {(number, kind): count for (of, number, kind), count in counts.items() if of == table})
        for table, _ in worst.most_common(TABLES_MAX)
    )


def _chart(name: str, ranges: int, counts: Mapping[tuple[int, str], int]) -> Chart:
    bars = min(ranges, BARS_MAX)
    heights = {kind: [0.0] * bars for kind in KINDS}
    for (number, kind), count in counts.items():
        heights[kind][number * bars // ranges] += count
    places = tuple(f"{100 * bar // bars} %" for bar in range(bars))
    return Chart(
        f"Where the differences of {name} lie", "bars", "place in the order of the keys", "rows",
        tuple(Series(kind, places, tuple(heights[kind])) for kind in KINDS),
        note="Each bar is an equal share of the table's ranges of keys, from the lowest to the highest.",
    )
