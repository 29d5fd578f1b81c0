"""The charts of an audit of logs: what each log holds of each epoch, and how far the remote log was behind over time.

A synchronous frame of a WAL names what was committed, that is in both logs, when it was made. So it says how long the oldest
record that was not had waited by then: what writes wait for the other site's DFS, and more when that stalls. This is all that
a log knows of lag: asynchronous frames name what is in the local log alone, so they are left out, and how far the other site's
storage had come was never logged; of that only the present is known, by what is left of the remote log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.job import Chart, Series, TimelineBar
from spark_jobs.log_audit.one_log import is_sync
from spark_jobs.logs.columns import COUNTER_BITS, RUN

POINTS_MAX = 200
CHART_SPANS = 200
UNKNOWN = 1 << 62  # a last sequence above it: nobody knows how many are lost
Point = tuple[int, int]


class Lane(NamedTuple):
    """One log on the timeline. `stretches`: the lowest and the highest sequence of each epoch."""

    site: str
    log: str
    name: str
    stretches: Mapping[int, tuple[int, int]]


def timeline(lanes: Sequence[Lane], findings: Sequence[Mapping[str, Any]]) -> tuple[Chart, ...]:
    """Draws what stands of each epoch in each log, and where something is wrong; nothing when there is no frame."""
    spans = []
    for lane in lanes:
        newest = sorted(lane.stretches.items())[-CHART_SPANS:]
        spans += [TimelineBar(lane.name, first, last + 1, f"epoch {epoch}") for epoch, (first, last) in newest]
    names = {(lane.site, lane.log): lane.name for lane in lanes}
    shown = [row for row in findings if row["seq"] is not None and row["seq"] <= row["last_seq"] < UNKNOWN]
    for row in shown[:CHART_SPANS]:
        name = names.get((row["site"], row["log"]), f"{row['log']} of {row['site']}")
        spans.append(TimelineBar(name, row["seq"], row["last_seq"] + 1, row["kind"], bad=True))
    if not spans:
        return ()
    note = "What each log holds of each epoch, by sequence; what is behind the peer's storage was trimmed."
    return (Chart("The logs", "timeline", "sequence", spans=tuple(spans), note=note),)


def lag(view: DataFrame) -> DataFrame:
    """Over the view `runs` of a WAL: `at_ms` (since 1970), `waited_ms`, the longest wait of each of POINTS_MAX equal times."""
    own = view.where((f.col("entry") == RUN) & (f.col("epoch") == f.col("segment_epoch")) & is_sync())
    waits = own.select(f.shiftright("last_timestamp", COUNTER_BITS).alias("at_ms"), "waited_ms")
    whole = waits.agg(f.min("at_ms").alias("from_ms"), f.max("at_ms").alias("to_ms"))
    each = f.greatest(f.lit(1), f.ceil((f.col("to_ms") - f.col("from_ms") + 1) / POINTS_MAX))
    begins = f.col("from_ms") + f.floor((f.col("at_ms") - f.col("from_ms")) / f.col("each_ms")) * f.col("each_ms")
    placed = waits.crossJoin(f.broadcast(whole.withColumn("each_ms", each))).withColumn("at_ms", begins)
    return placed.groupBy("at_ms").agg(f.max("waited_ms").alias("waited_ms")).orderBy("at_ms")


def lag_chart(points: Mapping[str, Sequence[Point]]) -> Chart:
    """Draws how far the remote log was behind; `points` of each log, by its name."""
    series = (
        Series(name, tuple(float(at) for at, _ in found), tuple(float(waited) for _, waited in found))
        for name, found in points.items() if found
    )
    return Chart(
        "How far the remote log was behind", "points", "time", "ms", tuple(series), x_is_time=True,
        note="How long the oldest record that was not in both logs yet had waited when another one was logged: the longest of"
             " each moment. Times without writes, and of asynchronous mode, have no points: there the log does not say.",
    )
