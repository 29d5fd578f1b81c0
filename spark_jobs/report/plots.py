"""Charts as SVG that stands in a page: no file, no script, no colour of its own for text, so that it is readable on light and
on dark.

What always holds: text of a chart is text, escaped, never mathematics; the ids of two charts of a page do not meet.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from spark_jobs.job import Chart, Series, TimelineBar

COLOURS = ("#4c8bf5", "#e07b39", "#3aa675", "#b05cc8", "#c9a227", "#7a8794")
BAD, GOOD = "#d64545", "#7fa8d9"
_INK = "#010203"  # stands for the page's own text colour
SIZE_IN, LANE_IN = (7.6, 2.7), 0.34
TICKS_MAX = 12
LABEL_SHARE = 0.06  # of the width: a narrower span has no room for its label


def svg(chart: Chart, number: int) -> str:
    """`chart` as an <svg> element. `number`: of this chart in its page."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    style: Any = {
        "svg.fonttype": "none", "svg.hashsalt": f"chart{number}", "text.parse_math": False, "font.size": 9.5,
        "font.family": "sans-serif", "text.color": _INK, "axes.labelcolor": _INK, "axes.edgecolor": _INK,
        "xtick.color": _INK, "ytick.color": _INK, "axes.facecolor": "none", "figure.facecolor": "none",
        "axes.unicode_minus": False, "axes.formatter.useoffset": False,
    }
    with mpl.rc_context(style):
        figure = Figure(figsize=_size(chart), layout="constrained")
        axes = figure.subplots()
        if chart.kind == "timeline":
            _timeline(axes, chart.spans)
        else:
            _plot(axes, chart)
        axes.set_xlabel(chart.x_label)
        axes.set_ylabel(chart.y_label)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_axisbelow(True)
        if chart.x_is_time:
            _time_axis(axes)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return _inlined(file.getvalue(), number)


def _size(chart: Chart) -> tuple[float, float]:
    if chart.kind != "timeline":
        return SIZE_IN
    return SIZE_IN[0], 0.9 + LANE_IN * max(1, len({span.lane for span in chart.spans}))


def _plot(axes: Any, chart: Chart) -> None:
    axes.grid(axis="y", alpha=0.25)
    named = any(isinstance(x, str) for series in chart.series for x in series.x)
    highest = max((max(series.y, default=0.0) for series in chart.series), default=0.0)
    if chart.kind == "bars" and named:
        _named_bars(axes, chart.series)
    elif chart.kind == "bars":
        highest = _stacked_bars(axes, chart.series)
    for index, series in enumerate(chart.series if chart.kind in ("lines", "points") else ()):
        look = {"linewidth": 1.6} if chart.kind == "lines" else {"linestyle": "", "marker": "o", "markersize": 4}
        axes.plot(series.x, series.y, color=COLOURS[index % len(COLOURS)], label=series.name, **look)
    if not chart.x_is_time and not named:
        axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0, top=highest * 1.08 if highest > 0 else 1)
    axes.yaxis.set_major_formatter("{x:,.0f}" if highest >= 5 else "{x:,.3g}")
    if len(chart.series) > 1:
        axes.legend(frameon=False, ncols=min(5, len(chart.series)), loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0)


def _named_bars(axes: Any, all_series: Sequence[Series]) -> None:
    """Side by side at each name."""
    width = 0.8 / len(all_series)
    for index, series in enumerate(all_series):
        places = [place + (index - (len(all_series) - 1) / 2) * width for place in range(len(series.x))]
        drawn = axes.bar(places, series.y, width, color=COLOURS[index % len(COLOURS)], label=series.name)
        if len(all_series) == 1 and len(series.x) <= TICKS_MAX:
            axes.bar_label(drawn, [f"{y:,.0f}" for y in series.y], padding=2, color=_INK)
    _name_ticks(axes, [str(x) for x in all_series[0].x])


def _stacked_bars(axes: Any, all_series: Sequence[Series]) -> float:
    """At their numbers, one above the other. How high the highest is."""
    heights: dict[float, float] = {}
    numbers = sorted({float(x) for series in all_series for x in series.x})
    width = max(min((right - left for left, right in pairwise(numbers)), default=1.0), 1e-9) * 0.95
    for index, series in enumerate(all_series):
        places = [float(x) for x in series.x]
        bottoms = [heights.get(place, 0.0) for place in places]
        axes.bar(places, series.y, width, bottom=bottoms, color=COLOURS[index % len(COLOURS)], label=series.name)
        for place, bottom, y in zip(places, bottoms, series.y, strict=True):
            heights[place] = bottom + y
    return max(heights.values(), default=0.0)


def _name_ticks(axes: Any, names: list[str]) -> None:
    step = -(-len(names) // TICKS_MAX)
    shown = list(range(0, len(names), step))
    short = [name if len(name) <= 22 else name[:20] + "…" for name in names]
    rotated = sum(len(short[place]) for place in shown) > 90
    axes.set_xticks(
        shown, [short[place] for place in shown], rotation=20 if rotated else 0, ha="right" if rotated else "center"
    )


def _timeline(axes: Any, spans: Sequence[TimelineBar]) -> None:
    lanes = list(dict.fromkeys(span.lane for span in spans))
    first, last = min((span.start for span in spans), default=0.0), max((span.end for span in spans), default=1.0)
    least = max((last - first) / 300, 1e-9)  # what is shorter is drawn so wide, to be seen
    for span in spans:
        width = max(span.end - span.start, least)
        lane = len(lanes) - 1 - lanes.index(span.lane)
        axes.barh(
            lane, width, 0.62, left=span.start, color=BAD if span.bad else GOOD, edgecolor="white", linewidth=0.4,
            alpha=0.95, zorder=3 if span.bad else 2,
        )
        if span.label and width >= (last - first) * LABEL_SHARE:
            axes.text(
                span.start + width / 2, lane, span.label, ha="center", va="center", fontsize=8, color="black", clip_on=True,
                zorder=4,
            )
    axes.set_yticks(range(len(lanes)), list(reversed(lanes)))
    axes.set_xlim(first - least, last + 3 * least)
    axes.grid(axis="x", alpha=0.25)
    axes.xaxis.set_major_formatter("{x:,.0f}")


def _time_axis(axes: Any) -> None:
    """Milliseconds since 1970 as UTC, as fine as the axis is long."""
    low, high = axes.get_xlim()
    ticks = [low + (high - low) * part / 5 for part in range(6)]
    style = "%Y-%m-%d" if high - low > 5 * 86_400_000 else "%d %b %H:%M" if high - low > 86_400_000 else "%H:%M:%S"
    axes.set_xticks(ticks, [datetime.fromtimestamp(max(tick, 0) / 1000, UTC).strftime(style) for tick in ticks])


def _inlined(document: str, number: int) -> str:
    """Returns the drawing without prolog and style; its ids are unique on the page, its ink is the page's colour."""
    body = document[document.index("<svg"):]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<style[^>]*>.*?</style>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]+)"', rf'id="c{number}-\1"', body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#c{number}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#c{number}-\1)", body)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    body = re.sub(r"font-family: [^;\"]*", "font-family: inherit", body)
    return body.replace(_INK, "currentColor").strip()
