"""Where the differences lie, as charts of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from spark_jobs.compare.ranges import Counts, Pair
from spark_jobs.compare.rows import KINDS
from spark_jobs.job import Chart, Series

BARS_MAX = 100
TABLES_MAX = 6


def charts(pairs: Sequence[Pair], counts: Counts, names: Mapping[int, str]) -> tuple[Chart, ...]:
    """One for each of the tables with the most differences: how many there are along the order of the keys."""
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
