"""`twinlog trail`: a site's audit trail from its files, also when its gateway is dead; with --site, its newest lines from a
gateway that runs.

What always holds: nothing is changed; `--verify` reports each fault with file and line, and ends with 1; a chain is proven on
the files alone, for a gateway that answers could answer anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import msgspec
import typer
from rich.markup import escape

from gateway.cli.trail_screen import trail_table, verdict_lines, without_end
from gateway.config.loading import load_site_config
from gateway.trail.anchors import anchors_in
from gateway.trail.chain import FOLDER, ChainVerifier, Verdict, ordinal_of
from gateway.trail.entry import TrailEntry, TrailHead
from twinlog.cli import completion
from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, NotFound, PeerError, reason
from twinlog.sites import Sites
from twinlog.terminal import Exit, JsonOption, notes, out, print_json_line, verb

app = typer.Typer()
ASKED_MAX = 500  # lines that a gateway shows at most
_to_entries = partial(msgspec.convert, type=list[TrailEntry])


@dataclass(slots=True)
class _Kept:
    """The newest entries that are asked for."""

    since_ms: int
    limit: int
    entries: deque[TrailEntry] = field(default_factory=deque)
    more: int = 0

    def take(self, entry: TrailEntry) -> None:
        if entry.time_ms < self.since_ms:
            return
        self.entries.append(entry)
        if self.limit and len(self.entries) > self.limit:
            self.entries.popleft()
            self.more += 1


@app.command(epilog="Exit codes: 0 done and sound, 1 the trail is broken, 2 wrong usage or configuration, 4 no site reached.")
@verb
def trail(
    config: Annotated[str, typer.Option(
        "--config", envvar="TWINLOG_CONFIG", metavar="FILE", show_default=False,
        help="The site's TOML; with --site, the pair as for `twinlog status`.",
    )],
    site: Annotated[str, typer.Option(
        "--site", metavar="SITE", help="Ask this site's gateway: a or b.", autocompletion=completion.sites,
    )] = "",
    verify: Annotated[bool, typer.Option("--verify", help="Prove the chain, and show its faults alone.")] = False,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="30m, 12h, 7d, or 2026-11-24T03:00Z.")] = "",
    limit: Annotated[int, typer.Option("--limit", min=0, help="The newest so many entries; 0: all.")] = 50,
    against: Annotated[list[Path] | None, typer.Option(
        "--against", metavar="PATH", help="Prove it also by a structured log, or by the other site's trail folder.",
    )] = None,
    begins_at: Annotated[int, typer.Option("--begins-at", min=1, help="Older files were archived: the first number.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show who did what at a site, when, and how it ended; with --verify prove that nothing was changed."""
    since_ms = _since_ms(since)
    if site:
        if verify or against:
            raise InvalidInput("a chain is proven on the files: run --verify at the site, with --config and its TOML")
        _show_asked(config, site, since_ms, limit, as_json=as_json)
        return
    loaded = load_site_config(Path(config))
    folder = loaded.data_dir / FOLDER
    kept = _Kept(since_ms, limit)
    anchors = [anchor for path in against or () for anchor in _anchors(path, loaded.site)]
    verifier = ChainVerifier(begins_at, anchors, kept.take)
    for name, data in _files(folder):
        verifier.file(name, data)
    verdict = verifier.end()
    if as_json:
        for entry in () if verify else kept.entries:
            print_json_line(msgspec.to_builtins(entry))
        print_json_line(_document(verdict, len(anchors)))
    else:
        if not verify:
            _show(list(kept.entries), kept.more)
        for line in verdict_lines(folder, verdict):
            out().print(line)
        if against:
            notes().print(f"[dim]{len(anchors):,} lines of this trail were known elsewhere[/]")
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
        raise NotFound(f"the trail in {folder} cannot be read: {reason(error)}") from error


def _anchors(path: Path, site: str) -> Iterator[TrailHead]:
    paths = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    try:
        for each in paths:
            with each.open("rb") as lines:
                yield from anchors_in((line.rstrip(b"\n") for line in lines), site)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {reason(error)}") from error


def _since_ms(text: str) -> int:
    """Raises InvalidInput."""
    if not text:
        return 0
    units = {"m": "minutes", "h": "hours", "d": "days"}
    try:
        if text[-1:] in units and text[:-1].isdigit():
            begin = datetime.now(UTC) - timedelta(**{units[text[-1]]: int(text[:-1])})
        else:
            begin = datetime.fromisoformat(text)
        return max(0, int((begin if begin.tzinfo else begin.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"--since is {text[:40]!r}: write 30m, 12h or 7d, or a time such as 2026-11-24T03:00Z") from error


def _document(verdict: Verdict, anchors: int) -> dict[str, Any]:
    """The verdict, in a line behind those of the entries."""
    return {
        "sound": not verdict.faults, "lines": verdict.lines, "first": verdict.first, "head": msgspec.to_builtins(verdict.head),
        "known_elsewhere": anchors,
        "faults": [{"file": one.file, "line": one.line, "what": one.what} for one in verdict.faults],
        "remarks": [{"file": one.file, "what": one.what} for one in verdict.remarks],
    }


def _show(entries: Sequence[TrailEntry], more: int) -> None:
    if more:
        notes().print(f"[dim]{more:,} older entries are left out; --limit 0 shows all[/]")
    out().print(trail_table(entries))
    for entry in without_end(entries):
        what = f"number {entry.number:,}, {escape(entry.event)}, has no end: the gateway ended first"
        out().print(f"[bold yellow]unknown[/]: {what}")


def _show_asked(config: str, site: str, since_ms: int, limit: int, *, as_json: bool) -> None:
    pair = Sites(config)
    try:
        if site not in pair.urls:
            raise InvalidInput(f"there is no site {site!r} in this pair: it must be {' or '.join(pair.urls)}")
        asked = urlencode({"limit": min(limit or ASKED_MAX, ASKED_MAX), "since_ms": since_ms})
        document = pair.ask(site, "GET", f"/v1/trail?{asked}")
    finally:
        pair.close()
    entries = decoded(
        _to_entries, document.get("entries"), lambda what: PeerError(f"what site {site} shows is no trail: {what}")
    )
    if as_json:
        print_json_line(document)
        return
    _show(entries, 0)
    if document.get("fault"):
        out().print(f"[bold red]The next line cannot be written[/]: {escape(str(document['fault']))}")
    notes().print("[dim]as the gateway says it; `twinlog trail --verify --config` at the site proves the files[/]")
