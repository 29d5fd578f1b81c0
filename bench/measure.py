"""The measurements, their order, and the figures that come out of the samples.

What always holds: synchronous and asynchronous rounds alternate on the same pair (the order turns round after each pair of
rounds, so that growth and drift of the machine fall on both), and only figures of one run are compared. A figure is the
median over rounds, with the smallest and the largest beside it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from math import inf
from typing import Any

import msgspec

from bench.load_generator import LoadPlan, Result
from bench.pair import PAUSES, BenchError, Pair
from bench.requests import ARROW, BATCH_ROWS, BENCH_TABLE, JSON, MSGPACK, Workload

CONNECTIONS = (1, 8, 64, 256)
OPEN_CONNECTIONS = 64
PAUSE_S = 0.05  # a bound of the histograms
KEYS = 100_000
GROWTH_ROWS = (10_000, 100_000, 1_000_000)
BATCH_CONNECTIONS = 4
MODES = ("sync", "async")


class Case(msgspec.Struct, frozen=True):
    """One thing to measure. `name` is its key in the report: what, and over how many connections or in which format.

    With `load` it is an open loop, at this share of what a closed one reached on the same connections right before.
    """

    name: str
    connections: int
    workload: Workload
    load: float | None = None


class Sample(msgspec.Struct, frozen=True):
    case: str
    mode: str
    round: int
    result: Result
    append_p50_ms: float | None = None  # of the remote log; None: nothing was appended there
    append_p99_ms: float | None = None
    pauses: dict[str, int] = {}  # by cause: those longer than PAUSE_S


def cases() -> list[Case]:
    """Every case, for both modes."""
    puts = [Case(f"put x{count}", count, Workload("put", "single", keys=KEYS)) for count in CONNECTIONS]
    gets = [Case("get x64", 64, Workload("get", "reads", keys=KEYS))]
    batches = [
        Case(f"batch {name}", BATCH_CONNECTIONS, Workload("batch", "batches", content_type))
        for name, content_type in (("JSON", JSON), ("msgpack", MSGPACK), ("Arrow", ARROW))
    ]
    opened = [Case("open put, half load", OPEN_CONNECTIONS, Workload("put", "single", keys=KEYS), load=0.5)]
    return puts + opened + gets + batches


def prepare(pair: Pair, warm_up_puts: int) -> None:
    """The tables, rows to read, and so many single writes one after the other: a Java client is slow until it is compiled."""
    for table in ("single", "reads", "batches", "growth"):
        pair.create_table(table, BENCH_TABLE)
    fill = Workload("batch", "reads", ARROW, first_key=0)
    _sound(load(_plan(pair, 1, fill, requests_max=KEYS // BATCH_ROWS)), "filling the table that is read")
    if warm_up_puts:
        _sound(load(_plan(pair, 1, Workload("put", "single", keys=KEYS), requests_max=warm_up_puts)), "warming up")


def rounds(pair: Pair, wanted: list[Case], count: int, seconds: float, note: Callable[[str], None]) -> Iterator[Sample]:
    """`count` rounds of every case in each mode."""
    for number in range(count):
        for mode in MODES if number % 2 == 0 else MODES[::-1]:
            pair.set_mode(mode)
            for case in wanted:
                note(f"round {number + 1} of {count}, {mode}: {case.name}")
                rate = case.load and case.load * _saturation(pair, case, seconds)
                before = pair.durations()
                result = load(_plan(pair, case.connections, case.workload, seconds=seconds, per_second=rate))
                after = pair.durations()
                appends = [durations.get("remote_append", {}) if mode == "sync" else {} for durations in (before, after)]
                p50, p99 = (quantile_ms(appends[0], appends[1], share) for share in (0.5, 0.99))
                yield Sample(
                    case.name, mode, number, _sound(result, f"{case.name}, {mode}"), p50, p99, pauses(before, after)
                )


def pauses(before: Mapping[str, Mapping[float, float]], after: Mapping[str, Mapping[float, float]]) -> dict[str, int]:
    """Returns by cause how many were longer than PAUSE_S between two looks at the histograms."""
    def above(looked: Mapping[str, Mapping[float, float]], cause: str) -> float:
        counts = looked.get(cause, {})
        return counts.get(inf, 0.0) - counts.get(PAUSE_S, 0.0)

    return {cause: int(above(after, cause) - above(before, cause)) for cause in PAUSES}


def growth(pair: Pair, rows_max: int, note: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measures the cost of a row while one table grows, in Arrow batches over one connection, and of a read after each step."""
    pair.set_mode("sync")
    steps: list[dict[str, Any]] = []
    have = 0
    for rows in (rows for rows in GROWTH_ROWS if rows <= rows_max):
        note(f"growth to {rows:,} rows")
        fill = Workload("batch", "growth", ARROW, first_key=have)
        wrote = _sound(load(_plan(pair, 1, fill, requests_max=(rows - have) // BATCH_ROWS)), f"growth to {rows:,} rows")
        read = _sound(load(_plan(pair, 1, Workload("get", "growth", keys=rows), requests_max=2_000)), "reading the grown table")
        steps.append({
            "rows": rows, "us_per_row": 1e6 * wrote.seconds / wrote.rows, "get_p50_ms": read.p50_ms,
            "memory_mb": pair.memory_mb(),
        })
        have = rows
    return steps


def load(plan: LoadPlan) -> Result:
    """Run one load generator in a process of its own. Raises BenchError with what it printed."""
    patience_s = 600.0 if plan.requests_max is not None else plan.warm_up_s + plan.seconds + 60.0
    done = subprocess.run(
        [sys.executable, "-m", "bench.load_generator"], input=msgspec.json.encode(plan), capture_output=True,
        timeout=patience_s, check=False,
    )
    if done.returncode != 0:
        raise BenchError(f"the load generator ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return msgspec.json.decode(done.stdout, type=Result)


def summary(samples: list[Sample]) -> list[dict[str, Any]]:
    """One line for each case, both modes beside each other, in the order of the samples."""
    lines = []
    for name in dict.fromkeys(sample.case for sample in samples):
        line: dict[str, Any] = {"case": name}
        for mode in MODES:
            own = [sample for sample in samples if (sample.case, sample.mode) == (name, mode)]
            results = [sample.result for sample in own]
            line[mode] = {
                "per_second": spread([result.per_second for result in results]),
                "rows_per_second": spread([result.rows_per_second for result in results]),
                "p50_ms": spread([result.p50_ms for result in results if result.p50_ms is not None]),
                "p99_ms": spread([result.p99_ms for result in results if result.p99_ms is not None]),
                "late_p99_ms": spread([result.late_p99_ms for result in results if result.late_p99_ms is not None]),
                "append_p50_ms": spread([one.append_p50_ms for one in own if one.append_p50_ms is not None]),
                "append_p99_ms": spread([one.append_p99_ms for one in own if one.append_p99_ms is not None]),
                "failures": sum(sum(result.failures.values()) for result in results),
                "pauses": {cause: sum(sample.pauses.get(cause, 0) for sample in own) for cause in PAUSES},
            }
        ratios = [
            synchronous.result.per_second / other.result.per_second
            for synchronous in samples for other in samples
            if synchronous.case == other.case == name and synchronous.round == other.round
            and (synchronous.mode, other.mode) == MODES and other.result.per_second
        ]
        lines.append({**line, "sync_to_async": spread(ratios)})
    return lines


def quantile_ms(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float | None:
    """Returns a quantile of a histogram's counts (upper bound in s -> count) between the two; linear within a bucket. In the
    last, open bucket it is that bucket's lower bound."""
    counts = sorted((bound, count - before.get(bound, 0.0)) for bound, count in after.items())
    total = counts[-1][1] if counts else 0.0
    if total <= 0:
        return None
    lower, below = 0.0, 0.0
    for bound, upto in counts:
        if upto >= share * total:
            within = (share * total - below) / (upto - below) if upto > below and bound != inf else 0.0
            return 1000 * (lower + within * ((bound if bound != inf else lower) - lower))
        lower, below = bound, upto
    return None


def spread(values: list[float]) -> dict[str, float] | None:
    """Median, smallest, largest; None of nothing."""
    if not values:
        return None
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def _saturation(pair: Pair, case: Case, seconds: float) -> float:
    """Returns the requests a second that a closed loop reaches."""
    closed = load(_plan(pair, case.connections, case.workload, seconds=seconds))
    return _sound(closed, f"the saturation for {case.name}").per_second


def _plan(
    pair: Pair, connections: int, workload: Workload, *, seconds: float = 0.0, requests_max: int | None = None,
    per_second: float | None = None,
) -> LoadPlan:
    return LoadPlan(
        pair.host, pair.port, connections, workload, seconds=seconds, requests_max=requests_max, arrivals_per_second=per_second,
        token=pair.token,
    )


def _sound(result: Result, what: str) -> Result:
    """A run in which nothing succeeded is no measurement."""
    if result.count == 0:
        raise BenchError(f"{what}: no request succeeded, but {result.failures or 'none was answered'}")
    return result
