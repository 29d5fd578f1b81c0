"""The timeline of a run as one picture: faults as bands, the roles of both sites, what clients got, lag, risk and remote log.

What always holds: a fault has the same colour in every row, and a command of an operator is a line with its number in the table
of commands, not a band. Text and plain lines take the colour of the page around them, light or dark.
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from chaos.harness.nemesis import Span
from chaos.harness.pair.sites import SITES
from chaos.harness.report.figures import role_spans, seconds
from chaos.harness.run import Run

INK = "#010203"  # stands for the colour of the page's text
ROLE_COLOURS = {
    "ACTIVE": "#2e9e57", "DOWNGRADE_ACTIVE": "#d9a400", "STANDBY": "#4a90d9", "SWITCHING": "#8e5bbf", "DRAINING": "#b48ad6",
    "CLOSED": "#c2524d", "FENCED": "#8f2f2b", "paused": "#8a8f98", "down": "#5c6068", "silent": "#b9bec7",
}
FAULT_COLOURS = ("#f2a19b", "#f5c97f", "#b9d98f", "#8fcbe4", "#c3a9e2", "#eea6cd", "#c9bfa6")
SITE_COLOURS = ("#cf5b55", "#4a90d9")
GOOD, BAD, WARN = "#2e9e57", "#cf4b44", "#d9a400"
_COMMANDS = ("failover", "switchover", "rejoin", "degrade", "resync", "abort", "resume", "start")
_STYLE: Any = {
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": INK, "xtick.color": INK, "ytick.color": INK, "grid.color": INK,
    "grid.alpha": 0.25, "svg.fonttype": "none", "font.family": "sans-serif", "legend.frameon": False, "legend.fontsize": 8,
    "svg.hashsalt": "timeline",
}
_HEIGHTS = (1.5, 1.2, 1.2, 0.9, 0.9, 0.9)
_NEAR = 0.012  # of the width: numbers of commands that are nearer stand above each other
_LEVELS = 3


def timeline(run: Run) -> str:
    """An SVG element."""
    with rc_context(_STYLE):
        figure = Figure(figsize=(12, 10.5), layout="constrained")
        axes = figure.subplots(6, 1, sharex=True, height_ratios=_HEIGHTS)
        end_s = max(run.lasted_s, 1.0)
        colours = _bands(axes, run, end_s)
        _roles(axes[0], run)
        _service(axes[1:4], run)
        _logs(axes[4:6], run)
        _commands(axes, run, end_s)
        axes[-1].set_xlabel("seconds since the run began")
        axes[-1].set_xlim(0, end_s)
        if colours:
            figure.legend(handles=[Patch(color=colour, label=name) for name, colour in colours.items()],
                          loc="outside upper center", ncols=4, title="faults", title_fontsize=8)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, transparent=True)
    svg = text.getvalue()
    return svg[svg.index("<svg"):].replace(INK, "currentColor")


def _bands(axes: Any, run: Run, end_s: float) -> dict[str, str]:
    """Returns the colour of each fault."""
    bands = [span for span in run.spans if not span.skipped and span.kind not in _COMMANDS]
    names = dict.fromkeys(_name(band) for band in sorted(bands, key=lambda band: band.from_s))
    colours = {name: FAULT_COLOURS[at % len(FAULT_COLOURS)] for at, name in enumerate(names)}
    for row, axis in enumerate(axes):
        for number, span in enumerate(bands):
            to_s = max(span.to_s, span.from_s + end_s / 400)
            axis.axvspan(span.from_s, to_s, color=colours[_name(span)], lw=0, gid=f"band-{row}-{number}")
        axis.grid(True, axis="y", lw=0.5)
        axis.spines[["top", "right"]].set_visible(False)
    return colours


def _commands(axes: Any, run: Run, end_s: float) -> None:
    """A line for each, and its number above it."""
    level, last_s = 0, float("-inf")
    for number, typed in enumerate(run.typed, 1):
        for axis in axes:
            axis.axvline(typed.at_s, color=INK, lw=0.7, ls=":", alpha=0.8)
        level = (level + 1) % _LEVELS if typed.at_s - last_s < _NEAR * end_s else 0
        last_s = typed.at_s
        axes[0].annotate(str(number), (typed.at_s, 1.74 + 0.27 * level), fontsize=8, va="bottom", ha="center")


def _name(span: Span) -> str:
    return " ".join(filter(None, (span.kind, span.target, span.how)))


def _roles(axis: Any, run: Run) -> None:
    shown = {}
    for row, site in enumerate(reversed(SITES)):
        for span in role_spans(run.samples, site):
            colour = ROLE_COLOURS.get(span.role, "#ff00ff")
            shown[span.role] = colour
            axis.broken_barh([(span.from_s, max(span.to_s - span.from_s, 0.2))], (row, 0.62), color=colour)
    axis.set_yticks([0.31, 1.31], [f"site {site}" for site in reversed(SITES)])
    axis.set_ylim(-0.1, 2.6)
    axis.grid(False)
    handles = [Patch(color=colour, label=role) for role, colour in shown.items()]
    axis.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _service(axes: Any, run: Run) -> None:
    ended = {second.at_s: second for second in seconds(run.history)}
    times = list(range(int(run.lasted_s) + 1))
    done = [ended[at_s].done if at_s in ended else 0 for at_s in times]
    axes[0].step(times, done, where="post", color=GOOD, lw=1.4)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("done / s", fontsize=8)
    late_ms = [ended[at_s].p99_ms if at_s in ended else None for at_s in times]
    gapped = [float("nan") if value is None else value for value in late_ms]
    axes[1].plot([at_s + 0.5 for at_s in times], gapped, ".-", color=INK, lw=0.9, ms=4)
    axes[1].set_yscale("log")
    axes[1].set_ylabel("p99, ms", fontsize=8)
    for name, colour in (("unknown", BAD), ("refused", WARN)):
        values = [getattr(ended[at_s], name) if at_s in ended else 0 for at_s in times]
        axes[2].step(times, values, where="post", color=colour, lw=1.4, label=name)
    axes[2].set_ylim(0, max(1.0, axes[2].get_ylim()[1]))
    axes[2].set_ylabel("unknown,\nrefused / s", fontsize=8)
    axes[2].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))


def _logs(axes: Any, run: Run) -> None:
    for site, colour in zip(SITES, SITE_COLOURS, strict=True):
        looks = sorted((each for each in run.samples if each.site == site), key=lambda each: each.at_s)
        times = [each.at_s for each in looks]
        lag, risk, log = (
            [float("nan") if (value := getattr(each, member)) is None else value for each in looks]
            for member in ("lag_records", "at_risk", "remote_log_bytes")
        )
        axes[0].plot(times, lag, color=colour, lw=1.2, label=f"lag, site {site} says")
        axes[0].plot(times, risk, color=colour, lw=1.6, ls=":", label=f"at risk, site {site} says")
        axes[1].plot(times, [size / 1024 for size in log], color=colour, lw=1.2, label=f"site {site} says")
    for axis, label in zip(axes, ("lag, at risk,\nrecords", "remote log,\nKiB"), strict=True):
        axis.set_ylabel(label, fontsize=8)
        axis.set_ylim(bottom=0)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
