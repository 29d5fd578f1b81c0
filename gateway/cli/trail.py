"""`twinlog trail`: a site's audit trail from its files, also when its gateway is dead. Reads, asks nobody, changes nothing.

What always holds: `--verify` reports each fault with file and line, and ends with 1; texts of entries come from whoever asked,
and reach a terminal without their control characters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from gateway.cli.screens import moment
from gateway.config.loading import load_site_config
from gateway.trail.chain import FOLDER, Verdict, Verifier, ordinal_of
from gateway.trail.entry import Entry
from twinlog.errors import InvalidInput, NotFound, reason
from twinlog.terminal import Exit, JsonOption, notes, out, print_json_line, verb

app = typer.Typer()
_OUTCOMES = {"done": "green", "begun": "cyan", "refused": "yellow", "failed": "red", "unknown": "bold yellow"}


@dataclass(slots=True)
class _Kept:
    """The newest entries that are asked for."""

    since_ms: int
    limit: int
    entries: deque[Entry] = field(default_factory=deque)
    more: int = 0

    def take(self, entry: Entry) -> None:
        if entry.time_ms < self.since_ms:
            return
        self.entries.append(entry)
        if self.limit and len(self.entries) > self.limit:
            self.entries.popleft()
            self.more += 1


@app.command(epilog="Exit codes: 0 done and sound, 1 the trail is broken, 2 wrong usage or configuration.")
@verb
def trail(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The site's TOML.")],
    verify: Annotated[bool, typer.Option("--verify", help="Prove the chain, and show its faults alone.")] = False,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="30m, 12h, 7d, or 2026-11-24T03:00Z.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="The newest so many entries; 0: all.")] = 50,
    begins_at: Annotated[int, typer.Option("--begins-at", min=1, help="Older files were archived: the first number.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show who did what at a site, when, and how it ended; with --verify prove that nothing was changed."""
    folder = load_site_config(config).data_dir / FOLDER
    kept = _Kept(_since_ms(since), limit)
    verifier = Verifier(begins_at, seen=kept.take)
    for name, data in _files(folder):
        verifier.file(name, data)
    verdict = verifier.end()
    if as_json:
        _print_json(verdict, kept, verify)
    else:
        if not verify:
            _show(kept)
        _judge(folder, verdict)
    if verdict.faults:
        raise typer.Exit(Exit.FAILED)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    try:
        names = sorted(path.name for path in folder.iterdir() if ordinal_of(path.name) is not None)
        if not names:
            raise NotFound(f"{folder} holds no trail: the site has not been started since it keeps one")
        for name in names:
            yield name, (folder / name).read_bytes()
    except OSError as error:
        raise NotFound(f"the trail cannot be read: {folder}: {reason(error)}") from error


def _since_ms(text: str) -> int:
    """Raises InvalidInput."""
    if not text:
        return 0
    units = {"m": "minutes", "h": "hours", "d": "days"}
    now = datetime.now(UTC)
    try:
        if text[-1:] in units and text[:-1].isdigit():
            begin = now - timedelta(**{units[text[-1]]: int(text[:-1])})
        else:
            begin = datetime.fromisoformat(text)
        return int((begin if begin.tzinfo else begin.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"--since is {text[:40]!r}: write 30m, 12h or 7d, or a time such as 2026-11-24T03:00Z") from error


def _print_json(verdict: Verdict, kept: _Kept, verify: bool) -> None:
    """The entries, one a line, then the verdict."""
    for entry in () if verify else kept.entries:
        print_json_line(msgspec.to_builtins(entry))
    print_json_line({
        "sound": not verdict.faults, "lines": verdict.lines, "first": verdict.first, "head": msgspec.to_builtins(verdict.head),
        "faults": [{"file": one.file, "line": one.line, "what": one.what} for one in verdict.faults],
        "remarks": [{"file": one.file, "what": one.what} for one in verdict.remarks],
    })


def _show(kept: _Kept) -> None:
    if kept.more:
        notes().print(f"[dim]{kept.more:,} older entries are left out; --limit 0 shows all[/]")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("number", "time (UTC)", "what", "outcome", "who"):
        table.add_column(title, justify="right" if title == "number" else "left", overflow="fold", no_wrap=title == "number")
    for entry in kept.entries:
        table.add_row(f"{entry.number:,}", moment(entry.time_ms), _what(entry), _outcome(entry), _who(entry))
    out().print(table)


def _outcome(entry: Entry) -> str:
    colour = _OUTCOMES.get(entry.outcome)
    return f"[{colour}]{entry.outcome}[/]" if colour else f"[dim]{escape(entry.outcome)}[/]"


def _who(entry: Entry) -> str:
    who = entry.who
    said = f"\n[dim]says {escape(who.says)}[/]" if who.says else ""
    return escape(f"{who.name} ({', '.join(filter(None, (who.kind, who.address)))})") + said


def _what(entry: Entry) -> str:
    facts = ", ".join(f"{name} {_fact(value)}" for name, value in entry.what.items())
    about = [f"operation {entry.operation}"] if entry.operation else []
    about += [f"of number {entry.of}"] if entry.of else []
    about += [f"written {entry.late_ms / 1000:,.0f} s later"] if entry.late_ms else []
    more = ", ".join([*about, *([facts] if facts else [])])
    return f"[bold]{escape(entry.event)}[/]" + (f"\n[dim]{escape(more)}[/]" if more else "")


def _fact(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _judge(folder: Path, verdict: Verdict) -> None:
    for each in verdict.faults:
        where = f"{folder / each.file}{f', line {each.line}' if each.line else ''}" if each.file else str(folder)
        out().print(f"[bold red]broken[/]: {escape(where)}: {escape(each.what)}")
    for each in verdict.remarks:
        out().print(f"[yellow]no fault[/]: {escape(str(folder / each.file))}: {escape(each.what)}")
    if verdict.faults:
        out().print(f"[bold red]The trail is broken[/]: {len(verdict.faults)} faults in {verdict.lines:,} lines.")
    else:
        out().print(
            f"[green]sound[/]: {verdict.lines:,} lines, number {verdict.first:,} to {verdict.head.number:,}; the last one has "
            f"sha256 {verdict.head.sha256}"
        )
