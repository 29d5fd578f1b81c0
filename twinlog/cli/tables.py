"""The verbs that change what tables there are: create-table, alter-table. data.py lists, drops and restores them.

What always holds: a table is created once, however often it is asked for: an equal one that is there is fine.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape

from twinlog.cli import completion
from twinlog.cli.data import DeadlineOption, TableArgument, connected, show_columns
from twinlog.errors import InvalidInput
from twinlog.terminal import EXIT_CODES, ConfigOption, JsonOption, out, print_json, verb

app = typer.Typer(rich_markup_mode="rich")
TYPES = "bool, int32, int64, float32, float64, decimal, string, bytes, timestamp, json"
_NotNullOption = Annotated[str, typer.Option("--not-null", help="These of the columns, joined by commas, always have a value.")]
_HistoryOption = Annotated[
    int | None, typer.Option("--history", min=0, show_default=False, help="Seconds for which former rows can be read.")
]


@app.command("create-table", epilog=EXIT_CODES)
@verb
def create_table(
    table: TableArgument,
    columns: Annotated[list[str], typer.Argument(metavar="COLUMN:TYPE...", help=f"Types: {TYPES}.", show_default=False)],
    key: Annotated[str, typer.Option("--key", help="The primary key: columns joined by commas.", show_default=False)],
    not_null: _NotNullOption = "", history_s: _HistoryOption = None,
    config: ConfigOption = "", deadline_s: DeadlineOption = 10.0, as_json: JsonOption = False,
) -> None:
    """Create a table: twinlog create-table planes tail:string seats:int32 --key tail"""
    parts = _names(key)
    body: dict[str, Any] = {
        "name": table, "columns": _columns(columns, {*_names(not_null), *parts}), "primary_key": parts,
        **({} if history_s is None else {"history_s": history_s}),
    }
    with connected(config, deadline_s) as client:
        found = client.create_table(body)
    if as_json:
        print_json(found)
    else:
        show_columns(found)


@app.command("alter-table", epilog=EXIT_CODES)
@verb
def alter_table(
    table: TableArgument,
    add: Annotated[list[str] | None, typer.Option("--add", metavar="COLUMN:TYPE", help=f"A new column. {TYPES}.")] = None,
    drop: Annotated[list[str] | None, typer.Option(
        "--drop", metavar="COLUMN", help="It goes, with its values.", autocompletion=completion.columns
    )] = None,
    rename: Annotated[list[str] | None, typer.Option(
        "--rename", metavar="OLD=NEW", help="A new name for a column.", autocompletion=completion.assigned_columns
    )] = None,
    history_s: _HistoryOption = None,
    config: ConfigOption = "", deadline_s: DeadlineOption = 10.0, as_json: JsonOption = False,
) -> None:
    """Add, drop or rename columns; change how long former rows can be read. All that is given, or nothing."""
    names = dict(_pair(text, "=", "OLD=NEW") for text in rename or ())
    given = {"add": _columns(add or [], set()), "drop": drop, "rename": names, "history_s": history_s}
    body = {name: value for name, value in given.items() if value not in (None, [], {})}
    if not body:
        raise InvalidInput(f"what is to change in {table}? give --add, --drop, --rename or --history")
    with connected(config, deadline_s) as client:
        found = client.alter_table(table, body)
    if as_json:
        print_json(found)
    else:
        out().print(f"changed {escape(table)}")
        show_columns(found)


def _columns(texts: list[str], not_null: set[str]) -> list[dict[str, Any]]:
    columns: list[dict[str, Any]] = []
    for text in texts:
        name, kind = _pair(text, ":", "COLUMN:TYPE")
        columns.append({"name": name, "type": kind, "nullable": name not in not_null})
    unknown = not_null - {column["name"] for column in columns}
    if unknown:
        raise InvalidInput(f"--key and --not-null name columns, and {', '.join(sorted(unknown))} is none of this table")
    return columns


def _pair(text: str, separator: str, form: str) -> tuple[str, str]:
    name, found, value = text.partition(separator)
    if not (name and found and value):
        raise InvalidInput(f"{text!r} is not of the form {form}")
    return name, value


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]
