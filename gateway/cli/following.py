"""Starting a role change and following it: the live step list, detaching, and the end.

What always holds: the id of what is asked for is on the screen before it is sent, and every request expires; leaving never
cancels, and says what continues and how it is given up; a site that goes away while the operation runs is no failure of the
operation: the command says that it is still running, or may be, and how to follow it (exit code 3).
Source: switchover-lessons.md 1, 16.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.markup import escape

from gateway.cli.screens import clock_text, operation_screen, step_cells
from twinlog.cli.status import duration
from twinlog.errors import Conflict, NotFound, OutcomeUnknown, PeerError
from twinlog.operation_ids import operation_of_key
from twinlog.sites import VALID_S, Sites
from twinlog.terminal import Exit, notes, out, print_json

RUNNING = ("running",)
RETRIES = 20
RETRY_S = 0.5
ORDER_ATTEMPTS = 3


def start(
    pair: Sites, order: Sequence[str], kind: str, to: str | None, options: Mapping[str, Any], dry_run: bool,
    valid_s: float = VALID_S,
) -> tuple[str, dict[str, Any]]:
    """Ask the first site of `order` that answers. (site, operation document). `valid_s`: until then it may pass its point of no
    return.

    One whose answer is lost is asked again, under the same idempotency key, and no other in its place.
    """
    body = {"kind": kind, "to": to, "options": dict(options), "dry_run": dry_run}
    silent: list[PeerError] = []
    for site in order:
        try:
            return site, _order(pair, site, kind, body, valid_s)
        except PeerError as error:
            silent.append(error)
            notes().print(f"[yellow]site {site} does not answer ({escape(error.message)})[/]")
    said = "; ".join(error.message for error in silent)
    if len(order) == 1:  # the other one may answer, and is not the one that could carry it out
        raise PeerError(
            f"site {order[0]}, which would carry out the {kind}, does not answer, and nothing was changed: {said}; start its "
            "gateway, or repair the way to it; `twinlog advise` shows what else helps"
        )
    raise PeerError(f"no site answers: {said}; start the gateway of a site")


def _order(pair: Sites, site: str, kind: str, body: Mapping[str, Any], valid_s: float) -> dict[str, Any]:
    """Raises PeerError only when the order certainly did not reach the site."""
    key, lost = secrets.token_hex(16), False
    operation_id, expires_ms = operation_of_key(key), pair.clock_ms(site) + round(valid_s * 1000)
    if not body["dry_run"]:
        notes().print(f"[dim]operation {operation_id} at site {escape(site)}; the request expires in {duration(valid_s)}[/]")
    for attempt in range(ORDER_ATTEMPTS):
        try:
            return pair.ask(site, "POST", "/v1/operations", body, key, "", expires_ms)
        except KeyboardInterrupt:
            notes().print(
                f"\nLeft before site {escape(site)} answered. It may have begun; if the request still arrives, it begins until "
                f"{clock_text(expires_ms)} by that site's clock; after that it is refused, or undone. "
                f"See it with: twinlog history {operation_id}   give it up with: twinlog abort {operation_id}"
            )
            raise typer.Exit(Exit.UNKNOWN) from None
        except PeerError as error:
            lost = lost or bool(error.fields.get("sent"))
            if not lost:
                raise
            if attempt + 1 < ORDER_ATTEMPTS:
                time.sleep(RETRY_S)
    raise OutcomeUnknown(
        f"site {site} was asked for the {kind} and did not answer: it may be running; look with `twinlog history "
        f"{operation_id}`; it does not begin after {clock_text(expires_ms)}", operation=operation_id,
    )


def await_running(pair: Sites, site: str, kind: str, error: Conflict) -> None:
    """Waits for the end of the operation that `error` names. Raises `error` when it names none, or one of another kind."""
    running = error.fields.get("running")
    document = pair.ask(site, "GET", f"/v1/operations/{running}") if running else {}
    if document.get("kind") != kind:
        raise error
    notes().print(f"[dim]site {escape(site)} runs a {kind} already: this request waits for the end of operation {running}[/]")
    for _ in documents(pair, site, document):
        pass


def find(pair: Sites, operation_id: str) -> tuple[str, dict[str, Any]]:
    """The site that keeps the operation, and its document. Raises NotFound; OutcomeUnknown when a site that may keep it did not
    answer; PeerError when none did."""
    answers = pair.ask_all(f"/v1/operations/{operation_id}")
    for site, answer in answers.items():
        if isinstance(answer, dict):
            return site, answer
    silent = {site: answer for site, answer in answers.items() if isinstance(answer, PeerError)}
    if len(silent) == len(answers):
        said = "; ".join(error.message for error in silent.values())
        raise PeerError(f"no site answers: {said}; start the gateway of a site")
    for site, error in silent.items():
        raise OutcomeUnknown(
            f"no site that answers knows an operation {operation_id}; site {site} may keep it, and does not answer "
            f"({error.message}): start its gateway, then `twinlog history {operation_id}`", operation=operation_id,
        )
    raise NotFound(f"no site knows an operation {operation_id}: `twinlog history` lists them")


def follow(pair: Sites, site: str, document: dict[str, Any], *, as_json: bool) -> None:
    """Show the operation until it ends. Leaves with the exit code of its end."""
    operation_id, shown = str(document.get("id", "")), [document]
    try:
        if as_json:
            for last in documents(pair, site, document):
                shown[-1] = last
            print_json(shown[-1])
        elif out().is_terminal:
            from rich.live import Live

            with Live(operation_screen(document), console=out(), refresh_per_second=8) as live:
                for last in documents(pair, site, document):
                    shown[-1] = last
                    live.update(operation_screen(last), refresh=True)
        else:
            _lines(documents(pair, site, document), shown)
    except KeyboardInterrupt:
        notes().print(f"\nDetached; it is still running at site {escape(site)}. Follow it with: twinlog history {operation_id}")
        notes().print(escape(_way_back(shown[-1])))
        raise typer.Exit(Exit.UNKNOWN) from None
    leave(shown[-1], as_json=as_json)


def _way_back(document: Mapping[str, Any]) -> str:
    """Says whether an operation that nobody follows any more can be given up, and until when it may continue by itself."""
    steps = document.get("steps") or ()
    barrier = next((step for step in steps if not step.get("abortable")), None)
    if not may_abort(document):
        return "It is past its point of no return: it goes to its end."
    until = f", which does not begin after {clock_text(document['expires_ms'])}" if document.get("expires_ms") else ""
    where = f" until step {barrier['name']} begins{until if barrier else ''}" if barrier else ""
    return f"It can be given up{where}: twinlog abort {document.get('id', '')}"


def leave(document: Mapping[str, Any], *, as_json: bool) -> None:
    """Say how it ended, and what to do next; raise typer.Exit when it did not end well."""
    state, operation_id = str(document.get("state", "unknown")), document.get("id", "")
    if state == "succeeded":
        return
    if not as_json:
        error = document.get("error")
        if isinstance(error, Mapping):
            notes().print(f"[bold red]{escape(str(error.get('code')))}[/]: {escape(str(error.get('message')))}")
        if not _has_effects(document):
            notes().print("Nothing was changed.")
        elif state in ("failed", "interrupted"):
            if state == "interrupted" and document.get("kind") in ("failover", "switchover"):
                notes().print(f"It resumes by itself when the gateway of site {escape(str(document.get('to')))} is started.")
            undo = f"   or undo it with: twinlog abort {operation_id}" if may_abort(document) else ""
            notes().print(f"Resume it with: twinlog resume {operation_id}{undo}")
    raise typer.Exit(Exit.UNKNOWN if state in RUNNING else Exit.FAILED)


def _has_effects(document: Mapping[str, Any]) -> bool:
    """True when a step that is more than a check has begun."""
    begun = [step for step in document.get("steps") or () if step.get("state") != "pending"]
    return not document.get("dry_run") and any(step.get("name") != "preflight" for step in begun)


def may_abort(document: Mapping[str, Any]) -> bool:
    """True until a step without a way back begins."""
    return all(step.get("abortable") or step.get("state") == "pending" for step in document.get("steps") or ())


def documents(pair: Sites, site: str, first: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`first`, then each change, until the operation has ended; through reconnects."""
    operation_id = str(first.get("id", ""))
    document, failures = first, 0
    yield document
    while document.get("state") in RUNNING:
        try:
            for document in pair.events(site, f"/v1/operations/{operation_id}/events"):
                failures = 0
                yield document
                if document.get("state") not in RUNNING:
                    return
            document = pair.ask(site, "GET", f"/v1/operations/{operation_id}")
            yield document
        except PeerError as error:
            if failures >= RETRIES:
                raise OutcomeUnknown(
                    f"site {site} no longer answers ({error.message}); the operation continues when it is back: "
                    f"twinlog history {operation_id}", operation=operation_id,
                ) from error
        failures += 1
        if document.get("state") in RUNNING:
            time.sleep(RETRY_S)


def _lines(coming: Iterator[dict[str, Any]], newest: list[dict[str, Any]]) -> None:
    """Prints one line for each step that changed, for a pipe or a log file. `newest[-1]` is the last document."""
    shown: dict[str, str] = {}
    console = out()
    for last in coming:
        newest[-1] = last
        for step in last.get("steps") or ():
            name, state = str(step.get("name")), str(step.get("state", "pending"))
            _, label, taken, said = step_cells(step)
            waits = state == "running" and "waiting_for" in (step.get("detail") or {})
            now = f"{state} {said}" if waits else state
            if (waits or state not in ("pending", "running")) and shown.get(name) != now:
                shown[name] = now
                console.print(f"{state:8} {label:10} {taken:>8}  {said}".rstrip(), soft_wrap=True)
    last = newest[-1]
    if last.get("dry_run") and last.get("state") == "succeeded":
        for step in last.get("steps") or ():
            if step.get("state") == "pending":
                what = escape(str(step.get("what", "")))
                console.print(f"{'would':8} {escape(str(step.get('name'))):10} {'':8}  {what}", soft_wrap=True)
    console.print(f"{last.get('kind')} {last.get('id')}: {last.get('state')}")
