"""The data verbs: tables, put, get, scan, delete, drop-table, restore-table, receipt. All of them through the client.

What always holds: keys and values are typed by the table's schema, never guessed; a write prints how it was acknowledged.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from twinlog import Client
from twinlog.calls import Ack, json_ready
from twinlog.cli import completion
from twinlog.cli.table_figures import held_words, schema_words
from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, words
from twinlog.flow import Patience
from twinlog.key_text import part_from_path
from twinlog.terminal import (
    EXIT_CODES,
    ConfigOption,
    Exit,
    JsonOption,
    YesOption,
    confirm,
    notes,
    out,
    print_json,
    print_json_line,
    typed,
    verb,
)

app = typer.Typer(rich_markup_mode="rich")
TableArgument = Annotated[str, typer.Argument(
    help="The table's name.", show_default=False, autocompletion=completion.tables
)]
_KEY_HELP = "The primary key; parts joined by commas (in a part, a comma is %2C, a percent %25)."
_KeyArgument = Annotated[str, typer.Argument(help=_KEY_HELP, show_default=False)]
_ColumnsOption = Annotated[str, typer.Option(
    "--columns", help="Only these, joined by commas.", autocompletion=completion.listed(completion.columns)
)]
DeadlineOption = Annotated[float, typer.Option("--deadline", min=0.1, help="Give up after so many seconds.")]
_COMPARISON = re.compile(r"\s*([^\s=<>!]+)\s*(!=|<=|>=|=|<|>)\s*(.*)", re.DOTALL)
_IS_NULL = re.compile(r"\s*([^\s=<>!]+)\s+is\s+(not\s+)?null\s*", re.IGNORECASE)
_TABLE_COLUMNS_MAX = 12


def connected(address: str, deadline_s: float = 10.0) -> Client:
    return Client(address, Patience(deadline_s=deadline_s))


@app.command(epilog=EXIT_CODES)
@verb
def tables(
    table: Annotated[str, typer.Argument(
        help="Show this one's columns.", show_default=False, autocompletion=completion.tables
    )] = "",
    config: ConfigOption = "", as_json: JsonOption = False,
    dropped: Annotated[bool, typer.Option("--dropped", help="Those that `twinlog restore-table` brings back.")] = False,
    figures: Annotated[bool, typer.Option(
        "--figures", help="About how many rows this one has, and how its schema stands at the other site."
    )] = False,
) -> None:
    """List the tables, or show the columns of one."""
    if dropped and table:
        raise InvalidInput("--dropped lists tables: name none")
    if figures and not table:
        raise InvalidInput("--figures are of one table: name it")
    with connected(config) as client:
        if figures:
            _show_figures(client.table_figures(table), as_json=as_json)
            return
        if dropped:
            _show_dropped(client.dropped_tables(), as_json=as_json)
            return
        found = [client.table(table)] if table else client.tables()
    if as_json:
        print_json(found[0] if table else {"tables": found})
    elif table:
        show_columns(found[0])
    elif not found:
        out().print("There is no table yet. `twinlog load` makes one from a file, `twinlog create-table` an empty one.")
    else:
        shown = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("table", "primary key", "columns", "replication"):
            shown.add_column(title, justify="right" if title == "columns" else "left", overflow="fold")
        for one in found:
            shown.add_row(
                escape(one["name"]), escape(", ".join(one["primary_key"])), str(len(one["columns"])), one.get("replication", "")
            )
        out().print(shown)


def _show_figures(found: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    other = found["other"]
    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_column(style="dim")
    shown.add_column(overflow="fold")
    shown.add_row(f"at site {escape(found['site'])}", held_words(found["size"]))
    shown.add_row(f"at site {escape(other['site'])}", held_words(other["size"]))
    shown.add_row("schema", escape(schema_words(found["revision"], other)))
    out().print(shown)


def _show_dropped(found: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json({"dropped": found})
    elif not found:
        out().print("No dropped table is kept.")
    else:
        shown = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("table", "dropped (UTC)", "kept until", "columns", "restore as"):
            shown.add_column(title, overflow="fold")
        for one in found:
            moments = [escape(str(one[name])[:19].replace("T", " ")) for name in ("dropped_at", "kept_until")]
            shown.add_row(escape(one["name"]), *moments, str(len(one["columns"])), escape(one["kept_as"]))
        out().print(shown)


def show_columns(table: Mapping[str, Any]) -> None:
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("column", "type", "", "default"):
        shown.add_column(title)
    for column in table["columns"]:
        mark = "key" if column["name"] in table["primary_key"] else "" if column.get("nullable") else "not null"
        default = column.get("default")
        shown.add_row(escape(column["name"]), column["type"], mark, "" if default is None else escape(str(default)))
    out().print(shown)


@app.command(epilog=EXIT_CODES)
@verb
def put(
    table: TableArgument, key: _KeyArgument,
    values: Annotated[list[str] | None, typer.Argument(
        help="`null` for no value.", metavar="COLUMN=VALUE...", autocompletion=completion.assigned_columns
    )] = None,
    config: ConfigOption = "", deadline_s: DeadlineOption = 10.0, as_json: JsonOption = False,
    if_absent: Annotated[bool, typer.Option("--if-absent", help="Only where there is no row.")] = False,
    if_version: Annotated[int | None, typer.Option("--if-version", help="Only over this version.")] = None,
    request_key: Annotated[str, typer.Option("--request-key", help="Idempotency key: repeat an unknown outcome with it.")] = "",
) -> None:
    """Write a whole row: twinlog put flights 2013-01-01T10:00:00Z,UA,1545,EWR dest=IAH"""
    with connected(config, deadline_s) as client:
        types = _types(client.table(table))
        row = dict(_assignment(text, types) for text in values or ())
        ack = client.put(
            table, _key(key), row, if_absent=if_absent, if_version=if_version, request_key=request_key or None
        )
    _show_ack(ack, as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def get(
    table: TableArgument, key: _KeyArgument, config: ConfigOption = "",
    columns: _ColumnsOption = "",
    as_of: Annotated[str, typer.Option("--as-of", help="A version, or a time such as 2013-01-01T05:00:00Z.")] = "",
    deadline_s: DeadlineOption = 10.0, as_json: JsonOption = False,
) -> None:
    """Read one row."""
    with connected(config, deadline_s) as client:
        found = client.get(table, _key(key), columns=columns.split(",") if columns else None, as_of=as_of or None)
    if as_json:
        print_json({"row": _shown(found.row), "version": str(found.version)})
        return
    shown = Table(box=None, pad_edge=False, show_header=False)
    shown.add_column(style="dim", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in _shown(found.row).items():
        shown.add_row(escape(name), _cell(value))
    shown.add_row("(version)", str(found.version))
    out().print(shown)


@app.command(epilog=EXIT_CODES)
@verb
def delete(
    table: TableArgument, key: _KeyArgument, config: ConfigOption = "",
    if_version: Annotated[int | None, typer.Option("--if-version", help="Only at this version.")] = None,
    deadline_s: DeadlineOption = 10.0, yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Delete one row."""
    confirm(f"Delete {key} from {table}?", yes)
    with connected(config, deadline_s) as client:
        ack = client.delete(table, _key(key), if_version=if_version)
    _show_ack(ack, as_json=as_json)


@app.command("drop-table", epilog=EXIT_CODES)
@verb
def drop_table(
    table: TableArgument, config: ConfigOption = "",
    confirmed: Annotated[str, typer.Option(
        "--confirm", metavar="TABLE", help="Its name again: drop it with its rows.", autocompletion=completion.tables
    )] = "",
    deadline_s: DeadlineOption = 10.0, as_json: JsonOption = False,
) -> None:
    """Drop a table and all its rows."""
    with connected(config, deadline_s) as client:
        client.table(table)  # no question about a table that is not there
        name = confirmed or typed(f"Every row of {table} goes with it. Its name again", "--confirm")
        client.drop_table(table, confirm=name)
    if as_json:
        print_json({"dropped": table})
    else:
        back = f"`twinlog restore-table {escape(table)}` brings it back as long as its rows are kept"
        out().print(f"dropped {escape(table)}; {back}")


@app.command("restore-table", epilog=EXIT_CODES)
@verb
def restore_table(
    table: Annotated[str, typer.Argument(
        help="The name that it had, or what `twinlog tables --dropped` has under `restore as`.", show_default=False,
        autocompletion=completion.dropped_tables,
    )], config: ConfigOption = "", deadline_s: DeadlineOption = 10.0, as_json: JsonOption = False,
) -> None:
    """Bring back a dropped table with its rows: the last one that had this name."""
    with connected(config, deadline_s) as client:
        found = client.restore_table(table)
    if as_json:
        print_json(found)
    else:
        out().print(f"restored {escape(table)}")


@app.command(epilog=EXIT_CODES + " With --json: one row a line.")
@verb
def scan(
    table: TableArgument, config: ConfigOption = "",
    where: Annotated[list[str] | None, typer.Option(
        "--where", help="'carrier=UA', 'dep_delay>60', 'tailnum is null'; all must hold.", metavar="CONDITION",
        autocompletion=completion.columns,
    )] = None,
    start: Annotated[str, typer.Option("--start", help="First key, or its first parts; included.")] = "",
    end: Annotated[str, typer.Option("--end", help="Last key, or its first parts; not included.")] = "",
    columns: _ColumnsOption = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many rows; 0: all.")] = 20,
    as_of: Annotated[str, typer.Option("--as-of", help="A version, or a time such as 2013-01-01T05:00:00Z.")] = "",
    reverse: Annotated[bool, typer.Option("--reverse", help="From the end.")] = False,
    snapshot: Annotated[bool, typer.Option("--snapshot", help="All rows as of the moment at which the scan begins.")] = False,
    deadline_s: DeadlineOption = 10.0, as_json: JsonOption = False,
) -> None:
    """Read rows in key order."""
    with connected(config, deadline_s) as client:
        schema = client.table(table)
        types = _types(schema)
        found = client.scan(
            table, start=_key(start) if start else None, end=_key(end) if end else None,
            where=[_condition(text, types) for text in where or ()], columns=columns.split(",") if columns else None,
            as_of=as_of or None, reverse=reverse, snapshot=snapshot, page_rows=min(limit, 1000) or 1000,
        )
        with closing(found):
            rows = (_shown(row) for row in islice(found, limit or None))
            if as_json:
                for row in rows:
                    print_json_line(row)
                return
            names = columns.split(",") if columns else list(dict.fromkeys([*schema["primary_key"], *types]))
            _show_rows([*rows], names, limit)


def _show_rows(rows: Sequence[Mapping[str, Any]], names: list[str], limit: int) -> None:
    if not rows:
        out().print("No rows.")
        return
    console = out()
    fitting = names[: max(1, min(_TABLE_COLUMNS_MAX, console.width // 10))]
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for name in fitting:
        numeric = all(isinstance(row.get(name), int | float | None) for row in rows)
        shown.add_column(escape(name), justify="right" if numeric else "left", overflow="ellipsis", no_wrap=True)
    for row in rows:
        shown.add_row(*(_cell(row.get(name)) for name in fitting))
    console.print(shown)
    left = names[len(fitting):]
    if left:
        notes().print(f"[dim]not shown: {escape(', '.join(left))} (use --columns or --json)[/]")
    if limit and len(rows) == limit:
        notes().print(f"[dim]{limit} rows; there may be more (--limit 0 for all)[/]")


@app.command(epilog="Exit codes: 0 survived, 1 lost, 3 unknown, 4 no site could be reached.")
@verb
def receipt(
    text: Annotated[str, typer.Argument(metavar="RECEIPT", help="The string that a write answered.", show_default=False)],
    config: ConfigOption = "", as_json: JsonOption = False,
) -> None:
    """Show what became of an acknowledged write: survived, lost or unknown."""
    with connected(config) as client:
        found = client.receipt(text)
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        colour = {"survived": "green", "lost": "bold red"}.get(found.outcome, "yellow")
        out().print(f"[{colour}]{found.outcome}[/]   epoch {found.epoch}, sequence {found.seq}, acknowledged {found.mode}")
    code = {"survived": Exit.OK, "lost": Exit.FAILED}.get(found.outcome, Exit.UNKNOWN)
    if code:
        raise typer.Exit(code)


def _show_ack(ack: Ack, *, as_json: bool) -> None:
    if as_json:
        print_json({**msgspec.to_builtins(ack), "version": str(ack.version)})
    else:
        how = "[green]in both logs[/]" if ack.mode == "sync" else "[yellow]in the local log only[/]"
        out().print(f"acknowledged ({ack.mode}: {how})   version {ack.version}   receipt {ack.receipt}")


def _key(text: str) -> tuple[str, ...]:
    """The parts of a key as a path has them (key_text.py); here `.` and `..` may stand bare."""
    try:
        return tuple(part_from_path(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidInput(f"the key {text[:60]!r} {words(error)}") from None


def _types(table: Mapping[str, Any]) -> dict[str, str]:
    return {column["name"]: column["type"] for column in table["columns"]}


def _assignment(text: str, types: Mapping[str, str]) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator:
        raise InvalidInput(f"{text!r} is not of the form COLUMN=VALUE")
    return name, _value(name, value, types)


def _condition(text: str, types: Mapping[str, str]) -> tuple[str, str, Any]:
    null = _IS_NULL.fullmatch(text)
    if null:
        return null[1], "not_null" if null[2] else "is_null", None
    match = _COMPARISON.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{text!r} is no condition: write 'column=value', 'column>value' or 'column is null'")
    return match[1], match[2], _value(match[1], match[3], types)


def _value(name: str, text: str, types: Mapping[str, str]) -> Any:
    """The column's value that `text` is in JSON. What is wrong in range or form, the site says."""
    if name not in types:
        raise InvalidInput(f"there is no column {name!r}: the table has {', '.join(types)}")
    kind = types[name]
    if text == "null" and kind != "string":
        return None
    try:
        if kind == "bool":
            return {"true": True, "false": False}[text]
        if kind in ("int32", "int64"):
            return int(text)
        if kind in ("float32", "float64"):
            return float(text)
        if kind == "bytes":
            return binascii.a2b_base64(text, strict_mode=True)
        if kind == "json":
            return decoded(msgspec.json.decode, text, ValueError)
        if kind == "timestamp":
            datetime.fromisoformat(text)
    except (ValueError, KeyError):
        raise InvalidInput(f"column {name!r} is of type {kind}: {text!r} is none") from None
    return text


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as the API has it in JSON: bytes in base64, times and decimals as texts."""
    return msgspec.to_builtins(json_ready(row))  # type: ignore[no-any-return]


def _cell(value: Any) -> str:
    if value is None:
        return "[dim]null[/]"
    return escape(value if isinstance(value, str) else msgspec.json.encode(value).decode())
