"""`twinlog advise` and `twinlog monitor`: the availability monitor from the terminal, once or for as long as it runs.

What always holds: nothing is changed without --act; what is not known is called unknown, and has an exit code of its own.
Source: protocol.md section 8, product.md section 4.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from storage.clock import SystemClock
from switchover.monitor.findings import AdviceKind, Thresholds
from switchover.monitor.judgement import ACTIONS, Advice
from switchover.monitor.views import MONITOR, SiteView
from switchover.monitor.watcher import Watcher
from twinlog.cli.status import duration
from twinlog.decoding import decoded
from twinlog.errors import ConfigError, PeerError
from twinlog.sites import ALIVE, Sites
from twinlog.terminal import Exit, notes, out, print_json, print_json_line

LOOKS_APART_S = 1.0  # what moves is seen by looking twice
ORDER_VALID_S = 60.0  # what a monitor saw is old by then
MOMENT_S = 0.05
WAIT_MAX_S = 20.0  # for a finding that means nothing before it has held, as silence before the read lease has run out
ReadThresholds = Callable[[], Thresholds]  # from the operator's file; raises ConfigError
_STYLES = {
    AdviceKind.NOTHING: "green", AdviceKind.LOOK: "yellow", AdviceKind.RESYNC: "cyan", AdviceKind.DEGRADE: "bold yellow",
    AdviceKind.FAILOVER: "bold red",
}


class PairProbe:
    """The SiteProbe over the operator's connections to both sites. Each call runs in a thread of its own."""

    def __init__(self, pair: Sites, check_pair: Callable[[str], None]) -> None:
        self._pair, self._check_pair = pair, check_pair

    async def alive(self, site: str) -> None:
        await asyncio.to_thread(self._pair.ask, site, "GET", ALIVE)

    async def view(self, site: str) -> SiteView:
        document = await asyncio.to_thread(self._pair.ask, site, "GET", "/v1/view")
        view: SiteView = decoded(partial(msgspec.convert, type=SiteView), document, lambda what: PeerError(
            f"site {site} does not show its view as this release does: {what}", site=site
        ))
        self._check_pair(view.own.pair)
        return view

    async def checks(self, site: str) -> Mapping[str, Any]:
        return await asyncio.to_thread(self._pair.ask, site, "GET", "/v1/checks?for=failover")

    async def order(self, site: str, kind: str, to: str | None, options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        body = {"kind": kind, "to": to, "options": dict(options), "dry_run": False}
        expires_ms = await asyncio.to_thread(self._pair.clock_ms, site) + round(ORDER_VALID_S * 1000)
        return await asyncio.to_thread(self._pair.ask, site, "POST", "/v1/operations", body, key, MONITOR, expires_ms)


def advise(pair: Sites, thresholds: Thresholds, check_pair: Callable[[str], None], *, as_json: bool) -> None:
    """One look, as two a moment apart, or a few more until what calls for action has held for as long as it must. Leaves with
    the exit code of what was found."""
    at_once = replace(thresholds, look_after_s=0, resync_after_s=0, degrade_after_s=0, failover_after_s=0)
    watcher = _watcher(pair, at_once, check_pair, act=False, report=lambda advice, became: None)

    async def look() -> Advice:
        advice, waited_s, apart_s = await watcher.round(), 0.0, LOOKS_APART_S
        while not waited_s or (advice.holds_in_s and waited_s < WAIT_MAX_S):
            await asyncio.sleep(apart_s)
            advice, waited_s = await watcher.round(), waited_s + max(apart_s, MOMENT_S)
            apart_s = min(advice.holds_in_s + MOMENT_S, WAIT_MAX_S)
        return advice

    with notes().status("looking at both sites"):
        advice = asyncio.run(look())
    if as_json:
        print_json(advice)
    else:
        out().print(advice_screen(advice))
    if advice.id == "nobody":
        raise typer.Exit(Exit.UNREACHABLE)
    if advice.kind is not AdviceKind.NOTHING:
        raise typer.Exit(Exit.FAILED)


def monitor(pair: Sites, read: ReadThresholds, check_pair: Callable[[str], None], *, act: bool, as_json: bool) -> None:
    """Until Ctrl-C. Each change is a line, with --json a JSON document in a line. A SIGHUP has the thresholds read again."""
    def report(advice: Advice, became: str) -> None:
        at = datetime.now(UTC)
        if as_json:
            line = {"at": at.isoformat(timespec="milliseconds"), **msgspec.to_builtins(advice), "became": became}
            print_json_line(line)
        else:
            out().print(advice_lines(at, advice, became), soft_wrap=True)

    watcher = _watcher(pair, read(), check_pair, act=act, report=report)

    async def watch() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload, watcher, read, as_json)
        await watcher.run()

    asyncio.run(watch())


def reload(watcher: Watcher, read: ReadThresholds, as_json: bool) -> None:
    """Takes the thresholds that the operator's file has now, and shows which changed. A file with a fault changes nothing."""
    at, changed, faults = datetime.now(UTC), dict[str, list[object]](), list[str]()
    try:
        new = read()
    except ConfigError as error:
        found = error.fields.get("faults")
        named = found if isinstance(found, list) else []
        faults = [error.message, *(f"{fault['key']} {fault['problem']}" for fault in named)]
    else:
        before, after = asdict(watcher.thresholds), asdict(new)
        changed = {key: [before[key], value] for key, value in after.items() if value != before[key]}
        watcher.thresholds = new
    if as_json:
        print_json_line({"at": at.isoformat(timespec="milliseconds"), "reloaded": changed, "faults": faults})
    else:
        out().print(reload_lines(at, changed, faults), soft_wrap=True)


def _watcher(pair: Sites, settings: Thresholds, check_pair: Callable[[str], None], *, act: bool, report: Any) -> Watcher:
    return Watcher(tuple(pair.urls), PairProbe(pair, check_pair), SystemClock(), settings, act=act, report=report)


# ---- screens
def advice_screen(advice: Advice) -> Group:
    """Shows the advice: what to do, why, on whose word, and what to type."""
    table = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("advice", _headline(advice))
    table.add_row("why", escape(advice.reason))
    for number, said in enumerate(advice.evidence):
        table.add_row("" if number else "seen by", escape(said))
    if advice.command:
        table.add_row("type", f"[bold]{escape(advice.command)}[/]")
    if advice.holds_in_s:
        left = duration(advice.holds_in_s)
        table.add_row("not yet", f"it must be so for another {left} before it means anything: `twinlog monitor` waits for that")
    elif advice.kind in ACTIONS:
        table.add_row("how long", "it was seen just now: `twinlog monitor` shows whether it lasts")
    for number, reason in enumerate(advice.also):
        table.add_row("" if number else "also", escape(reason))
    parts: list[RenderableType] = [table]
    if advice.kind is AdviceKind.NOTHING:
        parts += [Text(), Text("There is nothing to do.")]
    return Group(*parts)


def _headline(advice: Advice) -> str:
    where = {
        AdviceKind.FAILOVER: f" to {advice.site}", AdviceKind.DEGRADE: f" site {advice.site}",
        AdviceKind.RESYNC: f" site {advice.site}",
    }
    at = f" at site {advice.site}" if advice.kind is AdviceKind.LOOK and advice.site else ""
    return f"[{_STYLES[advice.kind]}]{advice.kind}{where.get(advice.kind, at)}[/]"


def reload_lines(at: datetime, changed: Mapping[str, Sequence[object]], faults: Sequence[str]) -> str:
    """Returns the lines that a terminal or a log file gets of a reload."""
    begin = f"{at:%Y-%m-%d %H:%M:%S}  "
    indent = " " * len(begin)
    if faults:
        lines = [f"{begin}[bold red]not reloaded[/]  no threshold has changed", *(indent + escape(fault) for fault in faults)]
    elif changed:
        now = (f"{indent}monitor.{key}: {before} before, {after} now" for key, (before, after) in changed.items())
        lines = [f"{begin}reloaded", *now]
    else:
        lines = [f"{begin}[dim]reloaded[/]  no threshold differs"]
    return "\n".join(lines)


def advice_lines(at: datetime, advice: Advice, became: str) -> str:
    """Returns the lines that a terminal or a log file gets."""
    begin = f"{at:%Y-%m-%d %H:%M:%S}  "
    if advice.holds_in_s:
        left = duration(advice.holds_in_s)
        return f"{begin}[dim]watching[/]  {escape(advice.reason)} [dim]({_headline(advice)} in {left})[/]"
    lines = [f"{begin}{_headline(advice)}  {escape(advice.reason)}"]
    indent = " " * len(begin)
    lines += [f"{indent}[dim]{escape(said)}[/]" for said in advice.evidence]
    if advice.command:
        lines.append(f"{indent}type: [bold]{escape(advice.command)}[/]")
    if became:
        lines.append(f"{indent}[bold]{escape(became)}[/]")
    elif advice.acts_not:
        lines.append(f"{indent}not done: {escape(advice.acts_not)}")
    return "\n".join(lines)
