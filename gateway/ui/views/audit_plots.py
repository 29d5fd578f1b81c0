"""The plots of an audit, as figures for SVG: where differences lie, how long its stages took, and its rows over time.

What always holds: a kind has a pattern as well as a colour, so that it can be seen without colour; every plot has its figures
as a table besides; there are few hundred shapes at most, for the report has bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gateway.ui import words
from twinlog.wire.audit_report import KeyShares, Pace, Stage

BARS_HEIGHT, CURVE_WIDTH, CURVE_HEIGHT, STRIP = 120, 600, 90, 1000
PATTERNS = 4
LEAST_HEIGHT = 3.0  # so that one difference among thousands is seen
LEAST_LENGTH = 4.0


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a bar: `x` and `width` in percent of the plot, `y` and `height` in its own units; `pattern` of its kind."""

    x: float
    width: float
    y: float
    height: float
    pattern: int


@dataclass(frozen=True, slots=True)
class BarsPlot:
    """The differences of one table along the order of its keys. `lines`: of each share that has one, its name and a count of
    each of `kinds`."""

    table: str
    kinds: tuple[str, ...]
    shares: int
    highest: int
    told: str
    bars: tuple[Bar, ...]
    lines: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class StageRow:
    """A stage with its place on the strip of STRIP."""

    name: str
    took: str
    begin: float
    length: float


@dataclass(frozen=True, slots=True)
class PacePlot:
    """The rows that were looked at, over the time. `line`: points of a polyline."""

    line: str
    told: str
    took: str
    points: tuple[tuple[str, str], ...]


def bars_plot(places: KeyShares, order: Mapping[str, int]) -> BarsPlot | None:
    """`order`: the pattern of each kind. None: there is nothing to draw."""
    kinds = tuple(kind for kind in sorted(places.kinds, key=lambda kind: order.get(kind, 0)) if any(places.kinds[kind]))
    shares = max((len(places.kinds[kind]) for kind in kinds), default=0)
    if not shares:
        return None
    counts = [tuple(_at(places.kinds[kind], share) for kind in kinds) for share in range(shares)]
    sums = [sum(one) for one in counts]
    highest = max(sums)
    bars: list[Bar] = []
    for share, by_kind in enumerate(counts):
        bars += _pieces(share, shares, by_kind, highest, [order.get(kind, 0) % PATTERNS for kind in kinds])
    lines = tuple((_share_name(share, shares), by_kind) for share, by_kind in enumerate(counts) if sums[share])
    most = sums.index(highest)
    told = (
        f"{words.number(sum(sums), 'differences')} of {places.table} in {len(lines)} of {shares} shares of its keys; most of "
        f"them, {highest:,}, in {_share_name(most, shares)}"
    )
    return BarsPlot(places.table, kinds, shares, highest, told, tuple(bars), lines)


def _at(counts: Sequence[int], share: int) -> int:
    return counts[share] if share < len(counts) else 0


def _pieces(share: int, shares: int, counts: Sequence[int], highest: int, patterns: Sequence[int]) -> list[Bar]:
    """The pieces of one bar, one upon the other. Each can be seen, so that a bar of many may be a little too high."""
    heights = [max(LEAST_HEIGHT, BARS_HEIGHT * count / highest) if count else 0.0 for count in counts]
    scale = min(1.0, BARS_HEIGHT / max(sum(heights), 1.0))
    bars, y = [], float(BARS_HEIGHT)
    for height, pattern in zip(heights, patterns, strict=True):
        if height:
            y -= height * scale
            bars.append(Bar(
                round(100 * share / shares, 2), round(100 / shares * 0.86, 2), round(y, 1), round(height * scale, 1), pattern
            ))
    return bars


def _share_name(share: int, shares: int) -> str:
    return f"{100 * share // shares} to {100 * (share + 1) // shares} %"


def stage_rows(stages: Sequence[Stage]) -> tuple[StageRow, ...]:
    whole_s = max(sum(stage.took_s for stage in stages), 1e-9)
    rows, at_s = [], 0.0
    for stage in stages:
        length = min(STRIP, max(LEAST_LENGTH, STRIP * stage.took_s / whole_s))
        begin = min(STRIP - length, STRIP * at_s / whole_s)
        rows.append(StageRow(stage.name, words.duration(stage.took_s), round(begin, 1), round(length, 1)))
        at_s += stage.took_s
    return tuple(rows)


def pace_plot(pace: Sequence[Pace]) -> PacePlot | None:
    """None where nobody counted the rows."""
    points = sorted(pace, key=lambda one: one.at_s)
    if not points or points[-1].rows == 0 or points[-1].at_s <= 0:
        return None
    most, end_s = max(one.rows for one in points), points[-1].at_s
    line = [(0.0, float(CURVE_HEIGHT))] + [
        (round(CURVE_WIDTH * one.at_s / end_s, 1), round(CURVE_HEIGHT * (1 - one.rows / most), 1)) for one in points
    ]
    told = f"{words.number(most, 'rows')} were looked at in {words.duration(end_s)}"
    shown = tuple((words.duration(one.at_s), words.number(one.rows)) for one in points)
    return PacePlot(" ".join(f"{x},{y}" for x, y in line), told, words.duration(end_s), shown)
