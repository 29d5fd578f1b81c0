"""Starting a role change and following it: the live step list, detaching, and the end.

What always holds: leaving never cancels; a site that goes away while the operation runs is no failure of the operation:
the command says that it is still running, or may be, and how to follow it (exit code 3). Source: switchover-lessons.md 1, 16.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.live import Live
from rich.markup import escape

from gateway.cli.screens import operation_screen, step_cells
from twinlog.errors import NotFound, OutcomeUnknown, PeerError
from twinlog.sites import Sites
from twinlog.terminal import Exit, notes, out, print_json

RUNNING = ("running",)
RETRIES = 20
RETRY_S = 0.5
ORDER_ATTEMPTS = 3


def start(
    pair: Sites, order: Sequence[str], kind: str, to: str | None, options: Mapping[str, Any], dry_run: bool
) -> tuple[str, dict[str, Any]]:
    """Ask the first site of `order` that answers. (site, operation document).

    One whose answer is lost is asked again, under the same idempotency key, and no other in its place.
    """
    body = {"kind": kind, "to": to, "options": dict(options), "dry_run": dry_run}
    silent: list[PeerError] = []
    for site in order:
        try:
            return site, _order(pair, site, kind, body)
        except PeerError as error:
            silent.append(error)
            notes().print(f"[yellow]site {site} does not answer ({escape(error.message)})[/]")
    raise PeerError("no site answers: " + "; ".join(error.message for error in silent) + "; start the gateway of a site")


def _order(pair: Sites, site: str, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """Raises PeerError only when the order certainly did not reach the site."""
    key, lost = secrets.token_hex(16), False
    for attempt in range(ORDER_ATTEMPTS):
        try:
            return pair.ask(site, "POST", "/v1/operations", body, key)
        except PeerError as error:
            lost = lost or bool(error.fields.get("sent"))
            if not lost:
                raise
            if attempt + 1 < ORDER_ATTEMPTS:
                time.sleep(RETRY_S)
    raise OutcomeUnknown(
        f"site {site} was asked for the {kind} and did not answer: it may be running; look with `twinlog history`"
    )


def find(pair: Sites, operation_id: str) -> tuple[str, dict[str, Any]]:
    """The site that keeps the operation, and its document. Raises NotFound, or PeerError when a site did not answer."""
    answers = pair.ask_all(f"/v1/operations/{operation_id}")
    for site, answer in answers.items():
        if isinstance(answer, dict):
            return site, answer
    silent = [answer for answer in answers.values() if isinstance(answer, PeerError)]
    if silent:
        raise silent[0]
    raise NotFound(f"no site knows an operation {operation_id}: `twinlog history` lists them")


def follow(pair: Sites, site: str, document: dict[str, Any], *, as_json: bool) -> None:
    """Show the operation until it ends. Leaves with the exit code of its end."""
    operation_id = str(document.get("id", ""))
    try:
        if as_json:
            *_, last = documents(pair, site, document)
            print_json(last)
        elif out().is_terminal:
            last = document
            with Live(operation_screen(last), console=out(), refresh_per_second=8) as live:
                for last in documents(pair, site, document):
                    live.update(operation_screen(last), refresh=True)
        else:
            last = _lines(documents(pair, site, document), document)
    except KeyboardInterrupt:
        notes().print(f"\nDetached; it is still running. Follow it with: twinlog history {operation_id}")
        raise typer.Exit(Exit.UNKNOWN) from None
    leave(last, as_json=as_json)


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


def _lines(coming: Iterator[dict[str, Any]], first: dict[str, Any]) -> dict[str, Any]:
    """Prints one line for each step that changed, for a pipe or a log file. Returns the last document."""
    shown: dict[str, str] = {}
    console, last = out(), first
    for last in coming:
        for step in last.get("steps") or ():
            name, state = str(step.get("name")), str(step.get("state", "pending"))
            if state not in ("pending", "running") and shown.get(name) != state:
                shown[name] = state
                _, label, taken, said = step_cells(step)
                console.print(f"{state:8} {label:10} {taken:>8}  {said}".rstrip(), soft_wrap=True)
    if last.get("dry_run") and last.get("state") == "succeeded":
        for step in last.get("steps") or ():
            if step.get("state") == "pending":
                what = escape(str(step.get("what", "")))
                console.print(f"{'would':8} {escape(str(step.get('name'))):10} {'':8}  {what}", soft_wrap=True)
    console.print(f"{last.get('kind')} {last.get('id')}: {last.get('state')}")
    return last
