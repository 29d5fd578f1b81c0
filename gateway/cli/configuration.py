"""`twinlog config reload` and `twinlog log-level`: the configuration of sites that run.

What always holds: each site is asked by itself, and one that refuses or does not answer keeps the other one from nothing; what
became of each is shown, and the exit code is that of the last that failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer
from rich.markup import escape

from twinlog.errors import InvalidInput, TwinlogError
from twinlog.sites import Sites
from twinlog.terminal import notes, out, print_json


def reload(context: typer.Context, address: str, site: str, *, as_json: bool) -> None:
    _ask(context, address, site, ":reload", None, as_json=as_json)


def set_log_level(context: typer.Context, address: str, site: str, level: str, *, as_json: bool) -> None:
    _ask(context, address, site, ":log-level", {"level": level}, as_json=as_json)


def _ask(
    context: typer.Context, address: str, site: str, what: str, body: Mapping[str, Any] | None, *, as_json: bool
) -> None:
    pair = Sites(address)
    context.call_on_close(pair.close)
    if site and site not in pair.urls:
        raise InvalidInput(f"--site {site}: the sites are {' and '.join(pair.urls)}")
    answers: dict[str, Any] = {}
    failed: TwinlogError | None = None
    for name in [site] if site else pair.urls:
        try:
            answers[name] = pair.ask(name, "POST", f"/v1/configuration{what}", body)
        except TwinlogError as error:
            if failed is not None:
                notes().print(f"[red]site {failed.fields.get('site', '')}[/] {escape(failed.message)}")
            failed = error
            if not site:
                failed.message = f"site {name}: {failed.message}"
    if as_json:
        print_json({"sites": answers})
    else:
        for name, answer in answers.items():
            _show(name, answer)
    if failed is not None:
        raise failed


def _show(site: str, answer: Mapping[str, Any]) -> None:
    changed, waiting = answer["changed"], answer["needs_restart"]
    if not changed and not waiting:
        out().print(f"[bold]site {site}[/] runs as its file says: nothing to change.")
        return
    out().print(f"[bold]site {site}[/]")
    for title, listed in (("changed", changed), ("[yellow]needs a restart[/]", waiting)):
        for each in listed:
            out().print(f"  {title}  [bold]{escape(each['key'])}[/]: {escape(each['before'])} -> {escape(each['after'])}")
