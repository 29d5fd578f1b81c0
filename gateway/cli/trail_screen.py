"""The screens of an audit trail: its entries, and the verdict on its chain, as Rich renderables. They show, they do not read.

What always holds: whatever an entry says stands there as text, for it comes from whoever asked; a beginning without its end is
shown as unknown, and not left to be guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.markup import escape
from rich.table import Table

from gateway.cli.screens import moment
from gateway.trail.chain import TrailFinding, Verdict
from gateway.trail.entry import TrailEntry
from gateway.trail.events import ABORT, OPENED, PEER_CHANGE, PEER_HEAD, STARTED

_OUTCOMES = {
    "done": "green", "begun": "cyan", "refused": "yellow", "failed": "red", "undone": "yellow", "unknown": "bold yellow",
}


def trail_table(entries: Sequence[TrailEntry]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("number", justify="right", no_wrap=True)
    table.add_column("time (UTC)", no_wrap=True)
    table.add_column("act", overflow="fold", ratio=1)
    table.add_column("outcome", no_wrap=True)
    table.add_column("who", overflow="fold")
    for entry in entries:
        table.add_row(f"{entry.number:,}", moment(entry.time_ms), _act(entry), _outcome(entry.outcome), _who(entry))
    return table


def _outcome(outcome: str) -> str:
    colour = _OUTCOMES.get(outcome, "dim")
    return f"[{colour}]{escape(outcome)}[/]"


def _who(entry: TrailEntry) -> str:
    who = entry.who
    said = f"\n[dim]says {escape(who.says)}[/]" if who.says else ""
    return escape(_named(who.name, who.kind, who.address)) + said


def _named(name: str, kind: str, address: str) -> str:
    proof = ", ".join(filter(None, (kind if kind not in (name, "site") else "", address)))
    return f"{name} ({proof})" if proof else name


def _act(entry: TrailEntry) -> str:
    said = ", ".join(_facts(entry))
    return f"[bold]{escape(entry.event)}[/]" + (f" [dim]{escape(said)}[/]" if said else "")


def _facts(entry: TrailEntry) -> Iterator[str]:
    """Yields what an entry says beside its event, in the order in which people ask."""
    what = dict(entry.what)
    if entry.event == PEER_CHANGE:
        yield from _of_peer(what)
        what = {}
    elif entry.event == PEER_HEAD:
        yield f"its trail stands at number {what.pop('number', '?')}"
        what.pop("sha256", None)
    elif entry.event == OPENED:
        what = {name: what[name] for name in ("leftovers", "broken") if what.get(name)}
    kind, to = what.pop("kind", None), what.pop("to", None)
    if kind is not None:
        yield f"{kind} to {to}" if to else str(kind)
    for name, value in what.items():
        yield f"{name.replace('_', ' ')} {_fact(value)}"
    if entry.operation:
        yield f"operation {entry.operation}"
    if entry.of:
        yield f"of number {entry.of:,}"
    if entry.late_ms:
        yield f"written {entry.late_ms / 1000:,.0f} s later"


def _of_peer(what: dict[str, Any]) -> Iterator[str]:
    """A role change as the other site's trail has it."""
    to = f" to {what['to']}" if what.get("to") else ""
    yield f"{what.get('event', '?')} {what.get('outcome', '?')}: {what.get('kind', '?')}{to}"
    by = _named(str(what.get("who", "?")), str(what.get("who_kind", "")), str(what.get("address", "")))
    yield f"by {by}" + (f", who says {what['says']}" if what.get("says") else "")
    yield f"number {what.get('number', '?')} there"


def _fact(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def without_end(entries: Sequence[TrailEntry]) -> list[TrailEntry]:
    """Returns the beginnings that have no end although a later life of the gateway began: nobody knows what became of them."""
    ended = {entry.of for entry in entries if entry.outcome != "begun"}
    last_start = max((entry.number for entry in entries if entry.event == STARTED), default=0)
    return [
        entry for entry in entries
        if entry.outcome == "begun" and entry.event != ABORT and entry.number not in ended and entry.number < last_start
    ]


def verdict_lines(folder: Path, verdict: Verdict) -> Iterator[str]:
    for each in verdict.faults:
        yield f"[bold red]broken[/]: {escape(_place(folder, each))}: {escape(each.what)}"
    for each in verdict.remarks:
        yield f"[yellow]no fault[/]: {escape(_place(folder, each))}: {escape(each.what)}"
    lines, count = f"{verdict.lines:,} lines", len(verdict.faults)
    if verdict.faults:
        yield f"[bold red]The trail is broken[/]: {count} {'fault' if count == 1 else 'faults'} in {lines}."
    else:
        yield f"[green]sound[/]: {lines}, number {verdict.first:,} to {verdict.head.number:,}; the last one has sha256 " \
            f"{verdict.head.sha256}"


def _place(folder: Path, finding: TrailFinding) -> str:
    if not finding.file:
        return str(folder)
    return f"{folder / finding.file}{f', line {finding.line}' if finding.line else ''}"
