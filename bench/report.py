"""The figures of a run for people: a table on the terminal, and a plot. The whole of it is in bench.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table

SYNC_COLOUR, ASYNC_COLOUR = "#2b6cb0", "#dd8452"


def show(document: dict[str, Any], console: Console) -> None:
    rounds, seconds = document["settings"]["rounds"], document["settings"]["seconds"]
    table = Table(title=f"Medians of {rounds} interleaved rounds of {seconds:g} s (lowest to highest)", title_justify="left")
    table.add_column("case")
    for name in ("sync, rows/s", "async, rows/s", "sync : async", "p50 / p99 ms, sync", "p50 / p99 ms, async", "failed"):
        table.add_column(name, justify="right")
    for line in document["cases"]:
        sync, other = line["sync"], line["async"]
        table.add_row(
            line["case"], _rate(sync["rows_per_second"]), _rate(other["rows_per_second"]), _ratio(line["sync_to_async"]),
            _latency(sync), _latency(other), str(sync["failures"] + other["failures"]),
        )
    grown = Table(title="Cost of a row while a table grows (sync, Arrow, one connection)", title_justify="left")
    for name in ("rows", "us a row", "read p50 ms", "memory a, MiB", "memory b, MiB"):
        grown.add_column(name, justify="right")
    for step in document["growth"]:
        memory = step["memory_mb"]
        grown.add_row(
            f"{step['rows']:,}", f"{step['us_per_row']:.1f}", f"{step['get_p50_ms']:.2f}",
            f"{memory['a']:.0f}", f"{memory['b']:.0f}",
        )
    console.print(Group(table, grown) if document["growth"] else table)


def plot(document: dict[str, Any], path: Path) -> None:
    """Three panels: single-row writes by connections, their latencies, batches by format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    puts = [line for line in document["cases"] if line["case"].startswith("put")]
    batches = [line for line in document["cases"] if " rows, " in line["case"]]
    figure, (rate, latency, batch) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    settings = document["settings"]
    figure.suptitle(f"Synchronous against asynchronous: medians of {settings['rounds']} interleaved rounds, lowest to highest")
    labels = [line["case"].split(", ")[1].split()[0] for line in puts]
    _bars(rate, puts, labels, "rows_per_second", "writes a second")
    _bars(latency, puts, labels, "p99_ms", "p99, ms")
    latency.set_yscale("log")
    for axes in (rate, latency):
        axes.set_xlabel("connections")
    _bars(batch, batches, [line["case"].split(", ")[1] for line in batches], "rows_per_second", "rows a second")
    batch.set_xlabel("1,000 rows a request")
    rate.legend(frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _bars(axes: Any, lines: list[dict[str, Any]], labels: list[str], figure: str, title: str) -> None:
    for offset, mode, colour in ((-0.2, "sync", SYNC_COLOUR), (0.2, "async", ASYNC_COLOUR)):
        spreads = [line[mode][figure] or {"median": 0.0, "low": 0.0, "high": 0.0} for line in lines]
        medians = [spread["median"] for spread in spreads]
        below = [spread["median"] - spread["low"] for spread in spreads]
        above = [spread["high"] - spread["median"] for spread in spreads]
        places = [place + offset for place in range(len(lines))]
        axes.bar(places, medians, 0.38, yerr=[below, above], color=colour, label=mode, capsize=3, ecolor="#555555")
    axes.set_xticks(range(len(lines)), labels)
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


def _rate(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['median']:,.0f} [dim]({spread['low']:,.0f} to {spread['high']:,.0f})[/]"


def _ratio(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['median']:.2f} [dim]({spread['low']:.2f} to {spread['high']:.2f})[/]"


def _latency(mode: dict[str, Any]) -> str:
    if mode["p50_ms"] is None:
        return "-"
    return f"{mode['p50_ms']['median']:.2f} / {mode['p99_ms']['median']:.2f}"
