"""The timeline of a run as one picture: faults as bands, the roles of both sites, what clients got, lag and remote log.

What always holds: a fault has the same colour in every row, and a command of an operator is a line, not a band.
"""

from __future__ import annotations

import io
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from chaos.harness.nemesis import Span
from chaos.harness.pair.sites import SITES
from chaos.harness.report.figures import role_spans, seconds
from chaos.harness.run import Run

ROLE_COLOURS = {
    "ACTIVE": "#1b7f3b", "DOWNGRADE_ACTIVE": "#d9a400", "STANDBY": "#4a90d9", "SWITCHING": "#8e5bbf", "DRAINING": "#b48ad6",
    "CLOSED": "#b0413e", "FENCED": "#7a1f1d", "paused": "#555555", "down": "#111111", "silent": "#cccccc",
}
FAULT_COLOURS = ("#f4b6b2", "#f7d9a8", "#cfe3b4", "#b7dcec", "#d6c6ea", "#f2c4dd", "#d9d2c2")
_COMMANDS = ("failover", "switchover", "rejoin", "degrade", "resync", "abort", "resume", "start")


def timeline(run: Run) -> str:
    """An SVG element."""
    figure = Figure(figsize=(12, 10.5), layout="constrained")
    axes = figure.subplots(6, 1, sharex=True, height_ratios=(1.5, 1.2, 1.2, 0.9, 0.9, 0.9))
    end_s = max(run.lasted_s, 1.0)
    happened = [span for span in run.spans if not span.skipped]
    bands = [span for span in happened if span.kind not in _COMMANDS]
    colours = {name: FAULT_COLOURS[at % len(FAULT_COLOURS)] for at, name in enumerate(dict.fromkeys(_name(b) for b in bands))}
    for axis in axes:
        for span in bands:
            axis.axvspan(span.from_s, max(span.to_s, span.from_s + end_s / 400), color=colours[_name(span)], alpha=0.55, lw=0)
        for typed in run.typed:
            axis.axvline(typed.at_s, color="#444444", lw=0.7, ls=":")
        axis.grid(True, axis="y", lw=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    _roles(axes[0], run)
    _service(axes[1:4], run)
    _logs(axes[4:6], run)
    for typed in run.typed:
        verb = typed.command.removeprefix("twinlog ").split()[0]
        axes[0].annotate(verb, (typed.at_s, 1.72), rotation=28, fontsize=7, va="bottom")
    axes[-1].set_xlabel("seconds since the run began")
    axes[-1].set_xlim(0, end_s)
    if colours:
        figure.legend(handles=[Patch(color=colour, label=name) for name, colour in colours.items()], loc="outside upper center",
                      ncols=4, fontsize=8, frameon=False, title="faults", title_fontsize=8)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return svg[svg.index("<svg"):]


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
    axis.set_ylim(-0.1, 2.5)
    axis.grid(False)
    axis.legend(handles=[Patch(color=colour, label=role) for role, colour in shown.items()], loc="center left",
                bbox_to_anchor=(1.0, 0.5), fontsize=7, frameon=False)


def _service(axes: Any, run: Run) -> None:
    ended = {second.at_s: second for second in seconds(run.history)}
    times = list(range(int(run.lasted_s) + 1))
    done = [ended[at_s].done if at_s in ended else 0 for at_s in times]
    axes[0].step(times, done, where="post", color="#1b7f3b", lw=1.2)
    axes[0].set_ylabel("done / s", fontsize=8)
    late = [(at_s, second.p99_ms) for at_s, second in ended.items() if second.p99_ms is not None]
    axes[1].plot([at_s + 0.5 for at_s, _ in late], [p99_ms for _, p99_ms in late], ".-", color="#333333", lw=0.8, ms=3)
    axes[1].set_yscale("log")
    axes[1].set_ylabel("p99, ms", fontsize=8)
    for name, colour in (("unknown", "#b0413e"), ("refused", "#d9a400")):
        values = [getattr(ended[at_s], name) if at_s in ended else 0 for at_s in times]
        axes[2].step(times, values, where="post", color=colour, lw=1.2, label=name)
    axes[2].set_ylim(bottom=0)
    axes[2].set_ylabel("unknown,\nrefused / s", fontsize=8)
    axes[2].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7, frameon=False)


def _logs(axes: Any, run: Run) -> None:
    for axis, member, scale, label in (
        (axes[0], "lag_records", 1.0, "lag,\nrecords"), (axes[1], "remote_log_bytes", 1 / 1024, "remote log,\nKiB"),
    ):
        for site, colour in zip(SITES, ("#b0413e", "#4a90d9"), strict=True):
            known = [(each.at_s, getattr(each, member)) for each in run.samples if each.site == site]
            shown = [(at_s, value * scale if value is not None else float("nan")) for at_s, value in known]
            axis.plot(*zip(*shown, strict=True), color=colour, lw=1.1, label=f"site {site} says")
        axis.set_ylabel(label, fontsize=8)
        axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7, frameon=False)
        axis.set_ylim(bottom=0)
