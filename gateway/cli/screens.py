"""The operator's screens, as Rich renderables made from the documents of the API. They show, they do not ask.

What always holds: a figure that is not known is shown as `unknown`, never as 0; a sample carries its age; whatever stands
in the way (a blocker) is on the screen with the words of the site that named it. Source: switchover-lessons.md 9 and 21.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from twinlog.cli.status import UNKNOWN, duration, figure, size

_STEP_MARKS = {
    "done": "[green]✓[/]", "running": "[cyan]▸[/]", "failed": "[red]✗[/]", "interrupted": "[yellow]✗[/]",
    "undone": "[yellow]↶[/]", "undo_failed": "[red]↶[/]",
}

_UNITS = {"s": duration, "bytes": size}
_CHECK_STYLES = {"ok": "green", "warning": "yellow", "unknown": "yellow", "failed": "bold red"}
_LOSS_LINES = (
    ("asynchronous_since_seq", "asynchronous since sequence"), ("active_committed_seq", "the lost active reported sequence"),
    ("this_site_holds_seq", "this site holds sequence"),
)


def operation_screen(document: Mapping[str, Any]) -> Group:
    """The step list of one operation, live or done."""
    title = f"[bold]{document.get('kind', 'operation')}[/]" + (f" to {document['to']}" if document.get("to") else "")
    if document.get("dry_run"):
        title = f"dry run of {title}"
    took = _took(document, "created_ms")
    heading = f"{title}   {escape(str(document.get('id', '')))}   {_state(document)}" + (f" in {took}" if took else "")
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(width=1)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for step in document.get("steps") or ():
        table.add_row(*step_cells(step))
    return Group(Text.from_markup(heading, emoji=False), table)


def _state(document: Mapping[str, Any]) -> str:
    state = str(document.get("state", "unknown"))
    colour = {"succeeded": "green", "running": "cyan", "interrupted": "yellow", "aborted": "yellow"}.get(state, "red")
    return f"[{colour}]{escape('aborting' if document.get('aborting') and state == 'running' else state)}[/]"


def _took(document: Mapping[str, Any], begin: str) -> str:
    first, last = document.get(begin), document.get("finished_ms")
    return duration(max(0, last - first) / 1000) if isinstance(first, int) and isinstance(last, int) else ""


def step_cells(step: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """(mark, name, time taken, what it says) of one step. What it says: its detail, or what it is going to do."""
    state = str(step.get("state", "pending"))
    name = escape(str(step.get("name", "?")))
    said = escape(detail_words(step.get("detail"))) if step.get("detail") else f"[dim]{escape(str(step.get('what', '')))}[/]"
    if state == "running" and not step.get("abortable", True):
        said += "  [yellow](no way back from here)[/]"
    mark = _STEP_MARKS.get(state, "[dim]·[/]")
    return mark, f"[dim]{name}[/]" if state == "pending" else name, _took(step, "started_ms"), said


def detail_words(value: Any) -> str:
    """An error, a text, or an object of facts as `name value, name value`, each with its unit; progress with rate and ETA."""
    if not isinstance(value, Mapping):
        return str(value)
    if "message" in value:
        return str(value["message"])
    shown = {name: fact for name, fact in value.items() if fact not in (None, "", [], {}) and not _is_table(fact)}
    parts = []
    done, total, unit = shown.pop("done", None), shown.pop("total", None), shown.pop("unit", "")
    if isinstance(done, int) and isinstance(total, int) and total:
        parts.append(f"{done:,} of {total:,}{f' {unit}' if unit else ''} ({100 * done / total:.0f} %)")
    if isinstance(shown.get("rate"), int | float):
        parts.append(f"{shown.pop('rate'):,.0f}/s")
    if isinstance(shown.get("eta_s"), int | float):
        parts.append(f"ETA {duration(shown.pop('eta_s'))}")
    return ", ".join([*parts, *(_named_fact(name, fact) for name, fact in shown.items())])


def _is_table(value: Any) -> bool:
    """Too much for a line: --json has it."""
    return isinstance(value, list) and any(isinstance(item, Mapping) for item in value)


def _named_fact(name: str, value: Any) -> str:
    """The unit, which ends the name, stands behind the figure."""
    what, _, unit = name.rpartition("_")
    if unit in _UNITS and isinstance(value, int | float):
        return f"{what.replace('_', ' ')} {_UNITS[unit](value)}"
    return f"{name.replace('_', ' ')} {_fact(value)}"


def _fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({value['statement'] if 'statement' in value else detail_words(value)})"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def checks_screen(found: Mapping[str, Any]) -> Group:
    """The checks one by one, what to do about those that are not ok, and what comes of it."""
    checks = found["checks"]
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in checks:
        status = str(check["status"])
        table.add_row(f"[{_CHECK_STYLES.get(status, 'yellow')}]{status}[/]", escape(check["id"]), escape(check["seen"]))
        if check["fix"]:
            table.add_row("", "", f"[bold]{escape('-> ' + check['fix'])}[/]")
    counts = [(sum(check["status"] == status for check in checks), status) for status in _CHECK_STYLES]
    shown = ", ".join(f"{count} {status}" for count, status in counts if count)
    what = f"{found['for']} {'of' if found['for'] == 'rejoin' else 'to'} {found['to']}"
    end = f"[green]A {what} would begin now[/]" if found["ok"] else f"[bold red]A {what} would be refused now[/]"
    return Group(table, Text(), Text.from_markup(f"{end}: {shown}. Nothing was changed.", emoji=False))


def loss_screen(manifest: Mapping[str, Any]) -> Group:
    """The loss manifest: what a failover may lose, as a lower bound with its time, or as unknown."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, title in _LOSS_LINES:
        table.add_row(title, figure(manifest.get(name)))
    from switchover.preflight.loss import at_risk  # not for the screens of a role change, which wait for no import

    risk = at_risk(manifest)
    shown = UNKNOWN if risk == "unknown" else f"at least {risk:,}"
    return Group(
        Text.from_markup(f"[bold red]Acknowledged writes may be lost.[/] Records at risk: [bold]{shown}[/]", emoji=False),
        Text(str(manifest.get("statement", ""))), table,
    )


def history_table(operations: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not operations:
        return Text("No role change has been made yet.")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("started (UTC)", "operation", "state", "took", "id"):
        wraps = title == "operation"
        table.add_column(title, no_wrap=not wraps, justify="right" if title == "took" else "left", ratio=1 if wraps else None)
    for document in operations:
        reason = (document.get("options") or {}).get("reason", "")
        to = f" to {document['to']}" if document.get("to") else ""
        dry = " (dry run)" if document.get("dry_run") else ""
        who = ": ".join(filter(None, (str(document.get("actor") or ""), str(reason))))
        what = f"{document.get('kind', '?')}{to}{dry}" + (f"\n[dim]{escape(who)}[/]" if who else "")
        table.add_row(
            moment(document.get("created_ms")), what,
            _state(document), _took(document, "created_ms"), escape(str(document.get("id", "?"))),
        )
    return table


def moment(wall_ms: Any) -> str:
    if not isinstance(wall_ms, int):
        return UNKNOWN
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def clock_text(wall_ms: int) -> str:
    """A moment of today, to the second."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%H:%M:%S UTC")
