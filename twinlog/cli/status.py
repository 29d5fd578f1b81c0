"""`twinlog status`: the pair on one screen, from the cluster document of each site.

What always holds: a figure that is not known is shown as `unknown`, never as 0; a sample carries its age; whatever stands
in the way (a blocker) is on the screen with the words of the site that named it. Source: switchover-lessons.md 9 and 21.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from twinlog.errors import PeerError, TwinlogError
from twinlog.sites import Sites
from twinlog.terminal import ConfigOption, Exit, JsonOption, out, print_json, verb

UNKNOWN = "[yellow]unknown[/]"
_ROLE_STYLES = {"ACTIVE": "bold green", "DOWNGRADE_ACTIVE": "bold yellow", "STANDBY": "cyan", "FENCED": "red", "CLOSED": "red"}
app = typer.Typer(rich_markup_mode="rich")
Answers = Mapping[str, Mapping[str, Any] | Exception]  # site -> its cluster document, or why there is none
Takeover = Mapping[str, Any] | None  # the checks of a failover to the site that answers; None: the active answers, or nobody


@app.command(epilog="Exit codes: 0 the pair is whole, 1 it is not, 4 no site answers.")
@verb
def status(
    context: typer.Context, config: ConfigOption = "", as_json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between refreshes.")] = 1.0,
) -> None:
    """Roles, epoch, mode, what is at risk, lag and what stands in the way, on one screen."""
    pair = Sites(config)
    context.call_on_close(pair.close)
    answers, takeover = _look(pair)
    if watch and not as_json:
        from rich.live import Live

        with Live(status_screen(answers, pair.urls, takeover), console=out(), auto_refresh=False) as live:
            while True:
                time.sleep(interval_s)
                answers, takeover = _look(pair)
                live.update(status_screen(answers, pair.urls, takeover), refresh=True)
    found = blockers(answers, takeover)
    if as_json:
        sites = {site: {"error": str(answer)} if isinstance(answer, Exception) else answer for site, answer in answers.items()}
        known = {site: answer for site, answer in answers.items() if isinstance(answer, Mapping)}
        print_json({"sites": sites, "blockers": found, "notices": notices(known), "takeover": takeover})
    else:
        out().print(status_screen(answers, pair.urls, takeover))
    if all(isinstance(answer, PeerError) for answer in answers.values()):
        raise typer.Exit(Exit.UNREACHABLE)
    if found:
        raise typer.Exit(Exit.FAILED)


def _look(pair: Sites) -> tuple[Answers, Takeover]:
    """Asks each site for its document; and, where the active does not answer, the other one for its checks of a takeover."""
    answers = pair.ask_all("/v1/cluster")
    known = {site: document for site, document in answers.items() if isinstance(document, Mapping)}
    active = (leading(known).get("active") or {}).get("site")
    to = next((site for site, document in known.items() if site != active and not _is_active(document)), None)
    if to is None or not isinstance(answers.get(str(active)), Exception):
        return answers, None
    try:
        return answers, pair.ask(to, "GET", "/v1/checks?for=failover")
    except TwinlogError as error:
        return answers, {"to": to, "error": error.message}


def figure(value: Any, unit: str = "") -> str:
    """A number for people, or `unknown`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return UNKNOWN
    if unit == "bytes":
        return size(value)
    if unit == "s":
        return duration(value)
    if value == 1:
        unit = unit.removesuffix("s")
    return f"{value:,}" + (f" {unit}" if unit else "")


def size(count: float) -> str:
    for name in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or name == "GiB":
            return f"{count:,.0f} {name}" if name == "bytes" else f"{count:,.1f} {name}"
        count /= 1024
    raise AssertionError


def duration(seconds: float) -> str:
    if seconds < 0.001:
        return "0 s" if seconds == 0 else "under 1 ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def status_screen(sites: Answers, urls: Mapping[str, str], takeover: Takeover = None) -> Group:
    """The pair on one screen."""
    known = {site: document for site, document in sites.items() if isinstance(document, Mapping)}
    best = leading(known)
    lines = [*_lines("red", blockers(sites, takeover)), *_lines("yellow", notices(known))]
    figures = _pair_figures(best, known, takeover)
    return Group(_headline(best, sites), Text(), _sites_table(sites, urls), Text(), figures, *lines)


def leading(known: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The document that speaks for the pair: that of the active with the highest epoch, else any."""
    def rank(document: Mapping[str, Any]) -> tuple[bool, int]:
        return _is_active(document), _whole(document.get("epoch"))

    return max(known.values(), key=rank, default={})


def _is_active(document: Mapping[str, Any]) -> bool:
    return str(document.get("role", "")).endswith("ACTIVE")


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _headline(best: Mapping[str, Any], sites: Answers) -> Text:
    active = best.get("active") or {}
    mode, policy = best.get("mode"), best.get("policy")
    style = {"sync": "bold green", "async": "bold yellow"}.get(str(mode), "yellow")
    nobody = "no site is active" if best else "which site is active is unknown"
    where = f"site [bold]{active['site']}[/] is active" if active.get("site") else f"[bold red]{nobody}[/]"
    where += _what_it_does(sites.get(str(active.get("site"))))
    return Text.from_markup(
        f"[bold]{escape(str(best.get('pair', 'pair')))}[/]   {where}   epoch {active.get('epoch') or UNKNOWN}   "
        f"mode [{style}]{mode or 'unknown'}[/] (policy {policy or 'unknown'})", emoji=False,
    )


def _what_it_does(active: Mapping[str, Any] | Exception | None) -> str:
    """Returns what keeps the site that the register calls the active from taking writes; empty where it takes them."""
    if isinstance(active, Exception):
        return ", and [bold red]does not answer[/]"
    serving = (active or {}).get("serving") or {}
    if active is None or serving.get("writes", True):
        return ""
    if not _is_active(active):
        return f", but it is [bold red]{active.get('role')}[/]"
    return " and [bold red]takes no writes[/]" if serving.get("reads") else " and [bold red]serves nobody[/]"


def _sites_table(sites: Answers, urls: Mapping[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("site")
    table.add_column("role", no_wrap=True)
    for title in ("epoch", "committed", "applied"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("address", overflow="fold")
    for site, document in sites.items():
        if isinstance(document, Exception):
            role = "unreachable" if isinstance(document, PeerError) else "refuses"
            table.add_row(site, f"[red]{role}[/]", UNKNOWN, UNKNOWN, UNKNOWN, urls[site])
            continue
        role = str(document.get("role") or "unknown")
        table.add_row(
            site, f"[{_ROLE_STYLES.get(role, 'yellow')}]{role}[/]", figure(document.get("epoch")),
            figure(document.get("committed_seq")), figure(document.get("applied_seq")), urls[site],
        )
    return table


def blockers(sites: Answers, takeover: Takeover = None) -> list[str]:
    """The reasons why the pair is not whole, in words; empty when all is well."""
    found = []
    for site, document in sites.items():
        if isinstance(document, Exception):
            verb = "does not answer" if isinstance(document, PeerError) else "refuses to say"
            found.append(f"site {site} {verb}: {document}")
            continue
        found += _said_by(site, document)
    best = leading({site: document for site, document in sites.items() if isinstance(document, Mapping)})
    if best and not best.get("active"):
        found.append("no site is active: `twinlog advise` shows what opens one")
    elif takeover is not None:
        found.append(_without_the_active(best, takeover))
    elif _is_active(best) and best.get("mode") == "async" and best.get("policy") != "performance":
        found.append(_not_synchronous(best))
    unnamed = [site for site in best.get("sites") or {} if site not in sites]
    if unnamed:
        where = ", ".join(f"{site}={best['sites'][site].get('url')}" for site in unnamed)
        found.append(f"site {' and '.join(unnamed)} was not asked, because the address does not name it: add {where}")
    return found


def _without_the_active(best: Mapping[str, Any], takeover: Mapping[str, Any]) -> str:
    """Returns what can be done while the active does not answer, by the checks of the site that does."""
    active, to = (best.get("active") or {}).get("site"), takeover.get("to")
    if takeover.get("ok"):
        return f"if site {active} is lost: `twinlog failover --to {to}`; nothing acknowledged is lost"
    if "error" in takeover:
        return f"whether site {to} can take over is unknown ({takeover['error']}): `twinlog validate --for failover --to {to}`"
    failed = [check["id"] for check in takeover.get("checks") or () if check.get("status") == "failed"]
    loss = takeover.get("loss")
    if isinstance(loss, Mapping) and failed == ["mode.sync"]:
        return (f"{loss.get('statement')}: bring site {active} back, and nothing is lost; "
                f"only if it is lost for good: `twinlog failover --to {to} --accept-data-loss`")
    return f"site {to} cannot take over ({', '.join(failed)}): `twinlog validate --for failover --to {to}` shows what to do"


def _said_by(site: str, document: Mapping[str, Any]) -> list[str]:
    """Returns why a site does less than its role is for, and what else keeps it from being whole, each with the way out."""
    serving, waits = document.get("serving") or {}, document.get("waiting_for")
    said = [f"{serving['why']}: {serving['do']}" if serving.get("do") else serving["why"]] if serving.get("why") else []
    does_its_part = serving.get("reads") or serving.get("follows")  # then it waits for nothing that the lines below do not name
    if waits and not does_its_part and not said:
        said.append(f"site {site} is {document.get('role')} and waits for {waits}")
    for trouble in document.get("troubles") or ():
        error = f" ({trouble['error']})" if trouble.get("error") else ""
        if not any(trouble["seen"] in text or (trouble.get("error") and trouble["error"] in text) for text in said):
            said.append(f"{trouble['seen']}{error}: {trouble['do']}")
    return said


def _not_synchronous(best: Mapping[str, Any]) -> str:
    """Returns what brings the second copy back. Without a register that both sites share nobody can follow."""
    alone, resync = "writes are acknowledged by the local log alone", best.get("resync") or {}
    if any(trouble.get("about") == "register" for trouble in best.get("troubles") or ()):
        return f"{alone} until the sites share a register again"
    left = resync.get("records_left")
    waits = f", waiting for {resync['waiting_for']}" if resync.get("waiting_for") else ""
    behind = f", {left:,} records left" if isinstance(left, int) else ""
    way = "it returns to synchronous automatically" if resync.get("automatic") else "`twinlog resync` returns to synchronous"
    return f"{alone}; {way}{waits}{behind}"


def _pair_figures(best: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]], takeover: Takeover) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    lag, remote, risk = (best.get(name) for name in ("replication_lag", "remote_log", "at_risk"))
    at_risk = _many(risk, (("records", "records"), ("bytes", "bytes"), ("seconds", "s")))
    if takeover is not None and "error" not in takeover:
        at_risk = _at_risk_by(takeover)
    table.add_row("at risk if the active is lost", at_risk)
    table.add_row("the standby lags by", _many(lag, (("records", "records"), ("bytes", "bytes"), ("seconds", "s"))))
    table.add_row("remote log holds", _many(remote, (("bytes", "bytes"), ("segments", "segments"))))
    table.add_row("releases", _releases(known))
    if best.get("operation"):
        table.add_row("operation under way", f"{escape(str(best['operation']))}   (twinlog history {best['operation']})")
    return table


def _releases(known: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the release of each site, and the formats that wait for the other one to read a newer version."""
    shown = [
        f"{site} {escape(str(document['release'])) if document.get('release') else UNKNOWN}" for site, document in known.items()
    ]
    older = {
        f"{what} {one['writes']} of {one['reads'][1]}" for document in known.values()
        for what, one in (document.get("formats") or {}).items() if one["writes"] < one["reads"][1]
    }
    waits = f"   (until both read more, they write {escape(', '.join(sorted(older)))})" if older else ""
    return (", ".join(shown) or UNKNOWN) + waits


def _at_risk_by(takeover: Mapping[str, Any]) -> str:
    """Returns the records at risk as the site counts them that would take over."""
    loss = takeover.get("loss")
    if not isinstance(loss, Mapping):
        return "0 records" if takeover.get("ok") else UNKNOWN
    count = loss.get("records_at_risk")
    return UNKNOWN if count is None else f"at least {figure(count, 'records')}"


def _many(value: Any, parts: Sequence[tuple[str, str]]) -> str:
    """A figure, or an object of figures, and how old the sample is."""
    if not isinstance(value, Mapping):
        return figure(value, "s")
    shown = [figure(value.get(name), unit) for name, unit in parts if name in value]
    if not shown or all(text == UNKNOWN for text in shown):
        shown = [UNKNOWN]
    age = value.get("sample_age_s", value.get("age_s"))
    if isinstance(age, int | float):
        shown.append(f"[dim]sampled {duration(age)} ago[/]")
    return ", ".join(shown)


def notices(known: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns what the sites say of their listeners and certificates, though nothing fails yet."""
    return [f"site {site}: {notice}" for site, document in known.items() for notice in document.get("notices") or ()]


def _lines(style: str, texts: Sequence[str]) -> list[RenderableType]:
    if not texts:
        return []
    return [Text(), *(Text.from_markup(f"[{style}]![/] {escape(text)}", emoji=False) for text in texts)]
