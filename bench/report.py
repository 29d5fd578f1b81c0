"""The figures of a run for people: a table on the terminal, and a plot. The whole of it is in bench.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SYNC_COLOUR, ASYNC_COLOUR = "#2b6cb0", "#dd8452"


def show(document: dict[str, Any], console: Console) -> None:
    """Fits into 80 columns, so spreads are shown as half of highest less lowest, in per cent of the median."""
    rounds, seconds = document["settings"]["rounds"], document["settings"]["seconds"]
    console.print(f"\n[bold]Synchronous against asynchronous[/]: medians of {rounds} interleaved rounds of {seconds:g} s")
    console.print(f"[dim]{stack(document)}[/]")
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    for name in ("sync\nrows/s", "async\nrows/s", "sync :\nasync", "sync p50,\np99 ms", "remote\np50 ms", "async p50,\np99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    for line in document["cases"]:
        sync, other = line["sync"], line["async"]
        table.add_row(
            line["case"], _figure(sync["rows_per_second"], ",.0f"), _figure(other["rows_per_second"], ",.0f"),
            _figure(line["sync_to_async"], ".2f"), _latency(sync), _median(sync["append_p50_ms"]), _latency(other),
        )
    console.print(table)
    console.print("[dim]put, get: one row of about 100 bytes, x connections; open: arrivals at random moments over 64 "
                  "connections, latencies from the moment that was meant; batch: 1,000 rows a request, 4 connections; "
                  "remote: an append to the remote log, until it is durable there[/]")
    for line in document["cases"]:
        if failed := line["sync"]["failures"] + line["async"]["failures"]:
            console.print(f"[red]{line['case']}: {failed} requests failed; bench.json shows how[/]")
    for line in document["cases"]:
        if late := line["sync"]["late_p99_ms"]:
            console.print(f"{line['case']}, sync: of the p99 the generator itself was late by {_median(late)} ms")
    console.print(pauses(document["cases"]))
    if document["growth"]:
        _show_growth(document["growth"], console)


def pauses(lines: list[dict[str, Any]]) -> str:
    """Returns a line that says what held up the active for more than 50 ms, and in which cases."""
    found = [
        f"{line['case']}, {mode}: {count} of the {cause}" for line in lines for mode in ("sync", "async")
        for cause, count in line[mode]["pauses"].items() if count
    ]
    return f"Pauses over 50 ms by collector, apply and snapshot: {'; '.join(found) or 'none'}"


def stack(document: dict[str, Any]) -> str:
    """Returns a line that names the pair's DFS and engine."""
    settings = document["settings"]
    logs = f"HDFS with {settings['dfs_sync']}" if settings["dfs"] == "hdfs" else "a directory"
    names = {"rocksdb": "RocksDB", "postgresql": "PostgreSQL", "sqlite": "SQLite"}
    return f"rows in {names[settings['engine']]}, remote logs on {logs}"


def _show_growth(steps: list[dict[str, Any]], console: Console) -> None:
    console.print("\n[bold]A table that grows[/]: synchronous, Arrow, one connection")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("rows", "us a row", "read p50 ms", "memory of a, MiB", "of b, MiB"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in steps:
        memory = step["memory_mb"]
        table.add_row(
            f"{step['rows']:,}", f"{step['us_per_row']:.1f}", f"{step['get_p50_ms']:.2f}",
            f"{memory['a']:.0f}", f"{memory['b']:.0f}",
        )
    console.print(table)


def plot(document: dict[str, Any], path: Path) -> None:
    """Three panels: single-row writes by connections, their latencies, batches by format."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    puts = [line for line in document["cases"] if line["case"].startswith("put ")]
    batches = [line for line in document["cases"] if line["case"].startswith("batch ")]
    figure, (rate, latency, batch) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    settings = document["settings"]
    figure.suptitle(
        f"Synchronous against asynchronous: medians of {settings['rounds']} interleaved rounds, lowest to highest;"
        f" {stack(document)}"
    )
    labels = [line["case"].removeprefix("put x") for line in puts]
    _bars(rate, puts, labels, "rows_per_second", "writes a second")
    _bars(latency, puts, labels, "p99_ms", "p99, ms")
    latency.set_yscale("log")
    for axes in (rate, latency):
        axes.set_xlabel("connections")
    _bars(batch, batches, [line["case"].removeprefix("batch ") for line in batches], "rows_per_second", "rows a second")
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


def _figure(spread: dict[str, float] | None, style: str) -> str:
    if spread is None:
        return "-"
    share = (spread["high"] - spread["low"]) / 2 / spread["median"] if spread["median"] else 0.0
    return f"{spread['median']:{style}}[dim] ±{share:.0%}[/]"


def _median(spread: dict[str, float] | None) -> str:
    return "-" if spread is None else f"{spread['median']:.2f}"


def _latency(mode: dict[str, Any]) -> str:
    if mode["p50_ms"] is None:
        return "-"
    return f"{mode['p50_ms']['median']:.2f}, {mode['p99_ms']['median']:.0f}"
