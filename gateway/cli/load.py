"""`twinlog load`: a file into a table. It is the server's, because it reads files with Arrow, which the client does without."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from twinlog.addresses import resolve_address
from twinlog.cli import completion
from twinlog.cli.status import duration, figure
from twinlog.terminal import EXIT_CODES, ConfigOption, JsonOption, out, print_json, verb

app = typer.Typer(rich_markup_mode="rich")


@app.command(epilog=EXIT_CODES)
@verb
def load(
    source: Annotated[str, typer.Argument(help="`flights`, or a .csv, .parquet or .ndjson file.", show_default=False)],
    config: ConfigOption = "",
    table: Annotated[str, typer.Option(
        "--table", help="The table; made when it is not there.", autocompletion=completion.tables
    )] = "",
    key: Annotated[str, typer.Option("--key", help="Primary key columns of a new table, joined by commas.")] = "",
    rows_max: Annotated[int, typer.Option("--rows", min=0, help="Only the first so many rows; 0: all.")] = 0,
    batch_rows: Annotated[int, typer.Option("--batch-rows", min=1, help="Rows in a request: all of them or none.")] = 1000,
    in_flight: Annotated[int, typer.Option("--in-flight", min=1, max=64, help="Requests at a time.")] = 4,
    rate: Annotated[int, typer.Option("--rate", min=0, help="At most so many rows a second; 0: as fast as it goes.")] = 0,
    deadline_s: Annotated[float, typer.Option("--deadline", min=1, help="Give up when a batch takes so many seconds.")] = 300.0,
    state: Annotated[Path | None, typer.Option("--state", help="Keeps what is acknowledged: the next load resumes.")] = None,
    acks: Annotated[Path | None, typer.Option("--acks", help="Append a JSON line for each acknowledged batch.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Stream a file in, batch by batch: resumable, repeats nothing, survives a failover."""
    from gateway.load.loading import LoadPlan, run_load

    resolve_address(config)
    summary = run_load(LoadPlan(
        source=source, address=config, table=table, key=tuple(key.split(",")) if key else (), rows_max=rows_max,
        batch_rows=batch_rows, in_flight=in_flight, rate=rate, deadline_s=deadline_s, state=state, acks=acks,
    ))
    if as_json:
        print_json(summary)
        return
    modes = ", ".join(f"{mode} {count:,}" for mode, count in summary["modes"].items())
    out().print(
        f"[green]Loaded[/] {figure(summary['rows'], 'rows')} into {escape(summary['table'])} in {duration(summary['seconds'])}:"
        f" {figure(summary['acknowledged'], 'requests')} acknowledged" + (f" ({modes})." if modes else ".")
    )
    if summary["acknowledged_before"]:
        before = figure(summary["acknowledged_before"], "requests")
        out().print(f"{before} had been acknowledged before, as {escape(str(state))} says.")
