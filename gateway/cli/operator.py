"""The operator's verbs: show the pair, check it, change roles, follow and resume role changes.

What always holds: nothing is changed without a question or --yes; --dry-run sends the same request with `dry_run`; Ctrl-C
detaches and never cancels; a failover that may lose acknowledged writes needs the flag and the typed count.
Sources: product.md section 4, switchover-lessons.md (12 to 22).
What only one verb needs is imported in that verb: the others are typed in the middle of a failover.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import typer

from gateway.cli.following import await_running, find, follow, start
from gateway.cli.screens import (
    checks_screen,
    history_table,
    loss_screen,
    operation_screen,
)
from twinlog.cli import completion
from twinlog.cli.status import leading
from twinlog.errors import Conflict, InvalidInput, PeerError, Refused
from twinlog.sites import ALIVE, VALID_S, Sites
from twinlog.terminal import (
    EXIT_CODES,
    ConfigOption,
    DryRunOption,
    Exit,
    JsonOption,
    YesOption,
    confirm,
    notes,
    out,
    print_json,
    typed,
    verb,
)

app = typer.Typer(rich_markup_mode="rich")

_SiteOption = Annotated[str | None, typer.Option(
    "--to", metavar="SITE", help="The site that will be active: a or b.", autocompletion=completion.sites
)]
_WithinOption = Annotated[float, typer.Option(
    "--within", min=5, max=86_400, help="Undo it if it has not passed its point of no return after so many seconds."
)]
_ReasonOption = Annotated[str, typer.Option("--reason", help="Why; kept in the history.")]


def connected(context: typer.Context, address: str) -> Sites:
    """Both sites, until the command ends."""
    pair = Sites(address)
    context.call_on_close(pair.close)
    return pair


@app.command(
    epilog="Exit codes: 0 nothing failed (warnings and unknowns are shown), 1 a check failed, 4 no site answers.",
)
@verb
def validate(
    context: typer.Context, config: ConfigOption = "", to: _SiteOption = None, as_json: JsonOption = False,
    kind: Annotated[str, typer.Option("--for", metavar="KIND", help="switchover, failover or rejoin.")] = "switchover",
) -> None:
    """Would a role change work now? Looks at both sites, changes nothing, and leaves nothing in the history."""
    from switchover.preflight.checks import KINDS

    if kind not in KINDS:
        raise InvalidInput(f"--for {kind}: it must be {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    pair = connected(context, config)
    target = _checked_site(pair, to) if to else _other_than_active(pair)
    try:
        pair.ask(target, "GET", ALIVE)  # a site that hangs costs a second; its checks may take long for good reasons
        found = pair.ask(target, "GET", f"/v1/checks?for={kind}")
    except PeerError as error:
        if error.fields.get("status") is not None:
            raise
        fix = f"start the gateway of site {target}: it would execute the {kind}, and only it can run the other checks"
        silent = {"id": "site.answers", "status": "failed", "seen": error.message, "fix": fix}
        found = {"for": kind, "to": target, "ok": False, "checks": [silent], "loss": None}
    if as_json:
        print_json(found)
    else:
        out().print(checks_screen(found))
    if not found["ok"]:
        raise typer.Exit(Exit.FAILED)


@app.command(
    epilog="Exit codes: 0 nothing to do, 1 there is something to do, 4 no site answers.",
)
@verb
def advise(context: typer.Context, config: ConfigOption = "", as_json: JsonOption = False) -> None:
    """Advise what to do now, why, and on whose word: one look from here at both sites, which changes nothing."""
    from gateway.cli import monitor as cli_monitor
    from gateway.config.loading import check_pair_at, monitor_thresholds

    cli_monitor.advise(connected(context, config), monitor_thresholds(config), check_pair_at(config), as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def monitor(
    context: typer.Context, config: ConfigOption = "",
    act: Annotated[bool, typer.Option("--act", help="Do what it advises, where the pair allows it.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Watch both sites until Ctrl-C, and report each change of the advice. Best run where the coordinator runs.

    SIGHUP has it read the thresholds of the operator's file again.
    """
    from gateway.cli import monitor as cli_monitor
    from gateway.config.loading import check_pair_at, monitor_thresholds

    pair, read = connected(context, config), partial(monitor_thresholds, config)
    cli_monitor.monitor(pair, read, check_pair_at(config), act=act, as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def switchover(
    context: typer.Context, config: ConfigOption = "", to: _SiteOption = None, reason: _ReasonOption = "",
    within_s: _WithinOption = VALID_S,
    dry_run: DryRunOption = False, yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Hand over to the other site, planned: both sites alive, nothing lost, writes pause for about a second."""
    pair = connected(context, config)
    target = _checked_site(pair, to) if to else _other_than_active(pair)
    if not dry_run:
        confirm(f"Hand over to site {target} ({pair.urls[target]})?", yes)
    _run(pair, [target], "switchover", target, {"reason": reason}, dry_run=dry_run, as_json=as_json, valid_s=within_s)


@app.command(epilog=EXIT_CODES)
@verb
def failover(
    context: typer.Context,
    to: Annotated[str, typer.Option(
        "--to", metavar="SITE", help="The surviving site that takes over: a or b.", autocompletion=completion.sites
    )],
    config: ConfigOption = "", reason: _ReasonOption = "",
    accept_data_loss: Annotated[bool, typer.Option(
        "--accept-data-loss", help="Continue even if acknowledged asynchronous writes may be lost: type the displayed count."
    )] = False,
    count: Annotated[str, typer.Option("--count", help="The displayed count, for scripts: a number, or `unknown`.")] = "",
    without_coordinator: Annotated[bool, typer.Option(
        "--without-coordinator", help="The coordinator is lost too: the site keeps the register itself; asks for the site."
    )] = False,
    within_s: _WithinOption = VALID_S,
    dry_run: DryRunOption = False, yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Take over from a site that is lost, without asking it. Refuses when acknowledged writes could be lost."""
    pair = connected(context, config)
    target = _checked_site(pair, to)
    options: dict[str, Any] = {"reason": reason}
    try:
        if without_coordinator and not dry_run:
            options |= _given_up_coordinator(pair, target, count)
        elif accept_data_loss and not dry_run:
            options |= _accepted_loss(pair, target, count)
        if not dry_run:
            confirm(f"Fence the other site and open site {target} ({pair.urls[target]})?", yes)
        _run(pair, [target], "failover", target, options, dry_run=dry_run, as_json=as_json, valid_s=within_s)
    except Refused as error:
        manifest = error.fields.get("manifest")
        if isinstance(manifest, Mapping) and not as_json:
            notes().print(loss_screen(manifest))
        raise


def _given_up_coordinator(pair: Sites, target: str, count: str) -> dict[str, Any]:
    """Show the risk of a failover that no register decides, and have the operator type that nobody knows the loss."""
    from switchover.preflight.loss import UNKNOWN

    other = _others(pair, target)
    lost = other[0] if other else "the other site"
    notes().print(
        f"[bold red]No register decides between the two sites then.[/] Site {target} keeps the register itself, begins the "
        f"pair anew above every epoch that it knows, and replays what site {lost} acknowledged synchronously. What site {lost} "
        f"acknowledged alone is lost to clients, and how much is unknown. If site {lost} still runs and reaches the "
        "coordinator, it may continue to acknowledge alone: make sure that it does not run, and never start it with the old "
        "coordinator."
    )
    given = count or typed(f"Type the records at risk ({UNKNOWN}) to continue", "--count")
    if given.strip() != UNKNOWN:
        raise InvalidInput(f"{given!r} was given: it must be {UNKNOWN}; nothing was changed")
    return {"accept_data_loss": UNKNOWN, "without_coordinator": True}


def _accepted_loss(pair: Sites, target: str, count: str) -> dict[str, Any]:
    """Show what may be lost now, and have the operator type it. The site compares what is typed with what is so by then."""
    from switchover.preflight.loss import UNKNOWN, at_risk

    manifest = pair.ask(target, "GET", "/v1/checks?for=failover").get("loss")
    if manifest is None:
        if count.strip() == UNKNOWN:  # what a gap in the log takes away is seen by the replay only
            return {"accept_data_loss": UNKNOWN}
        notes().print("No acknowledged write is known to be at risk: this continues as a failover without loss.")
        return {}
    notes().print(loss_screen(manifest))
    shown = str(at_risk(manifest))
    return {"accept_data_loss": _count(count, shown)}


def _count(count: str, shown: str) -> int | str:
    """The accepted count, or `unknown`; asked for where it is not given. Raises InvalidInput."""
    from switchover.preflight.loss import UNKNOWN

    given = (count or typed(f"Type the records at risk ({shown}) to continue", "--count")).replace(",", "").strip()
    if given != UNKNOWN and not given.isdigit():
        raise InvalidInput(f"{given!r} was given: it must be the displayed count, {shown}; nothing was changed")
    return UNKNOWN if given == UNKNOWN else int(given)


@app.command(epilog=EXIT_CODES)
@verb
def rejoin(
    context: typer.Context, site: Annotated[str, typer.Argument(
        help="The site that comes back: a or b.", autocompletion=completion.sites
    )],
    config: ConfigOption = "", reason: _ReasonOption = "",
    merge: Annotated[bool, typer.Option("--merge", help="Put quarantined rows back where nothing newer is.")] = False,
    put_absent: Annotated[bool, typer.Option(
        "--put-absent", help="With --merge: put also rows that the active does not have. It may have deleted them."
    )] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the site has applied what is committed now.")] = False,
    accept_data_loss: Annotated[bool, typer.Option(
        "--accept-data-loss", help="Give up what this site's storage alone holds: type the count that `twinlog status` shows."
    )] = False,
    count: Annotated[str, typer.Option("--count", help="That count, for scripts: a number, or `unknown`.")] = "",
    dry_run: DryRunOption = False, yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Bring a site back as the standby. What only it holds is put into quarantine, never dropped silently."""
    pair = connected(context, config)
    target = _checked_site(pair, site)
    options: dict[str, Any] = {"reason": reason, "merge": merge, "put_absent": put_absent, "wait": wait}
    if accept_data_loss and not dry_run:
        options["accept_data_loss"] = _count(count, "the count that `twinlog status` shows")
    if put_absent and not merge:
        raise InvalidInput("--put-absent is an option of a merge: give --merge too")
    if not dry_run:
        confirm(_rejoin_question(pair, target, merge), yes)
    try:
        _run(pair, [target], "rejoin", target, options, dry_run=dry_run, as_json=as_json)
    except Conflict as error:  # a site that comes back begins to rejoin by itself
        await_running(pair, target, "rejoin", error)
        _run(pair, [target], "rejoin", target, options, dry_run=dry_run, as_json=as_json)


def _rejoin_question(pair: Sites, target: str, merge: bool) -> str:
    """Returns what the operator is asked. Raises Refused for the active, unless it is to merge: it has nobody to follow."""
    if not str(pair.ask(target, "GET", "/v1/cluster").get("role")).endswith("ACTIVE"):
        return f"Cut what diverges at site {target} (victim) and follow the other site (source)?"
    if not merge:
        raise Refused(f"site {target} is the active, and follows nobody: there is nothing to rejoin. Nothing was changed")
    return f"Write the rows in the quarantine of site {target}, which is the active, where nothing newer is? Nothing is cut"


@app.command(epilog=EXIT_CODES)
@verb
def degrade(
    context: typer.Context, config: ConfigOption = "", reason: _ReasonOption = "", dry_run: DryRunOption = False,
    yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Acknowledge with the local log alone, while the other site is away. Recorded before the first such write."""
    pair = connected(context, config)
    if not dry_run:
        confirm("From now on a loss of the active site can lose acknowledged writes. Degrade?", yes)
    _run(pair, _active_first(pair), "degrade", None, {"reason": reason}, dry_run=dry_run, as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def resync(
    context: typer.Context, config: ConfigOption = "", reason: _ReasonOption = "", dry_run: DryRunOption = False,
    yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Go back to synchronous: remote log on, catch up, then declare it. Writes continue meanwhile."""
    pair = connected(context, config)
    if not dry_run:
        confirm("Switch the remote log on and go back to synchronous?", yes)
    _run(pair, _active_first(pair), "resync", None, {"reason": reason}, dry_run=dry_run, as_json=as_json)


@verb
def skip(
    context: typer.Context, site: Annotated[str, typer.Argument(
        help="The site whose database refuses the change: a or b.", autocompletion=completion.sites
    )],
    epoch: Annotated[int, typer.Option("--epoch", min=1, help="Of the change, as `twinlog status` names it.")],
    seq: Annotated[int, typer.Option("--seq", min=1, help="Its sequence.")],
    config: ConfigOption = "", reason: _ReasonOption = "", dry_run: DryRunOption = False, yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Continue behind a schema change that a site's database refuses: it is applied, and its database does not show it."""
    pair = connected(context, config)
    target = _checked_site(pair, site)
    if not dry_run:
        confirm(
            f"Leave the schema change at sequence {seq} of epoch {epoch} out of what the database of site {target} shows? Rows "
            "and schema stay those of the log.", yes,
        )
    _run(pair, [target], "skip", target, {"reason": reason, "epoch": epoch, "seq": seq}, dry_run=dry_run, as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def resume(
    context: typer.Context, operation: Annotated[str, typer.Argument(
        help="The operation's id; see `twinlog history`.", autocompletion=completion.operations("failed", "interrupted")
    )],
    config: ConfigOption = "", yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Resume an operation that failed or was interrupted, from the state of the pair now."""
    _again(connected(context, config), operation, "resume", yes=yes, as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def abort(
    context: typer.Context, operation: Annotated[str, typer.Argument(
        help="The operation's id; see `twinlog history`.",
        autocompletion=completion.operations("running", "failed", "interrupted"),
    )],
    config: ConfigOption = "", yes: YesOption = False, as_json: JsonOption = False,
) -> None:
    """Undo an operation that has not passed its point of no return."""
    _again(connected(context, config), operation, "abort", yes=yes, as_json=as_json)


def _again(pair: Sites, operation: str, action: str, *, yes: bool, as_json: bool) -> None:
    site, document = find(pair, operation)
    confirm(f"{action.capitalize()} {document.get('kind')} {operation} (state {document.get('state')})?", yes)
    expires_ms = pair.clock_ms(site) + round(VALID_S * 1000) if action == "resume" else None
    document = pair.ask(site, "POST", f"/v1/operations/{operation}:{action}", None, None, "", expires_ms)
    if action == "abort" and document.get("state") == "aborted":
        _show(document, as_json=as_json)
        return
    follow(pair, site, document, as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def history(
    context: typer.Context,
    operation: Annotated[str, typer.Argument(
        help="Follow this one, or show how it ended.", show_default=False, autocompletion=completion.operations()
    )] = "",
    config: ConfigOption = "", as_json: JsonOption = False,
) -> None:
    """Every role change: who, why, how long and how it ended. With an id: follow that one."""
    pair = connected(context, config)
    if operation:
        site, document = find(pair, operation)
        follow(pair, site, document, as_json=as_json)
        return
    answers = pair.ask_all("/v1/operations")
    silent = [site for site, answer in answers.items() if isinstance(answer, Exception)]
    merged = [
        {**document, "site": site} for site, answer in answers.items() if isinstance(answer, dict)
        for document in answer.get("operations", [])
    ]
    merged.sort(key=lambda document: document.get("created_ms") or 0, reverse=True)
    if as_json:
        print_json({"operations": merged, "sites_not_asked": silent})
    else:
        out().print(history_table(merged))
        for site in silent:
            notes().print(f"[yellow]site {site} does not answer: what it keeps is not in this list[/]")
    if len(silent) == len(answers):
        raise PeerError("no site answers: start the gateway of a site, or correct the addresses in --config")


def _run(
    pair: Sites, order: list[str], kind: str, to: str | None, options: Mapping[str, Any], *, dry_run: bool, as_json: bool,
    valid_s: float = VALID_S,
) -> None:
    given = {name: value for name, value in options.items() if value != "" and value is not False}
    site, document = start(pair, order, kind, to, given, dry_run, valid_s)
    follow(pair, site, document, as_json=as_json)
    if dry_run and not as_json:
        out().print(f"[green]A {kind}{f' to {to}' if to else ''} would begin now.[/] Nothing was changed.")


def _show(document: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(document)
    else:
        out().print(operation_screen(document))


def _active_first(pair: Sites) -> list[str]:
    """The active, then whoever else answers."""
    active = _active(pair)
    return [active, *_others(pair, active)] if active else list(pair.urls)


def _active(pair: Sites) -> str | None:
    answers = pair.ask_all("/v1/cluster")
    known = {site: answer for site, answer in answers.items() if isinstance(answer, dict)}
    if not known:
        raise PeerError("no site answers: " + "; ".join(str(answer) for answer in answers.values()))
    active = (leading(known).get("active") or {}).get("site")
    return active if active in pair.urls else None


def _other_than_active(pair: Sites) -> str:
    active = _active(pair)
    others = _others(pair, active) if active else []
    if len(others) != 1:
        raise Refused("which site is to be active? No site is active now, so say it with --to a or --to b")
    return others[0]


def _others(pair: Sites, site: str | None) -> list[str]:
    return [other for other in pair.urls if other != site]


def _checked_site(pair: Sites, site: str) -> str:
    if site not in pair.urls:
        raise InvalidInput(f"there is no site {site!r} in this pair: it must be {' or '.join(pair.urls)}")
    return site
