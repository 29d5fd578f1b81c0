"""Completion at each Tab: sites, tables, columns and operations of the pair that the command line names, or TWINLOG_CONFIG.

What always holds: a Tab is quick and quiet: both sites are asked at the same time, nobody is waited for longer than DEADLINE_S,
and without an answer nothing is offered; what is offered holds no character that means something to a shell.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import suppress
from typing import Any

import typer

from twinlog.addresses import resolve_address
from twinlog.errors import TwinlogError
from twinlog.sites import Sites

DEADLINE_S = 0.8
_OFFERED = re.compile(r"[\w.-]+=?", re.ASCII)
_JOINED = re.compile(r"\n?([=:]+)(?:\n(?=[^\n]))?")  # bash takes `=` and `:` for words of their own
Offer = str | tuple[str, str]  # what may stand here, and what a shell that can shows beside it


def join_words(environ: MutableMapping[str, str]) -> None:
    """Puts the words of a bash command line together again that bash has divided: `--to=b` and `http://HOST:PORT` are one."""
    words, cursor = environ.get("COMP_WORDS", ""), environ.get("COMP_CWORD", "")
    if "\n" not in words or not cursor.isdigit():
        return
    before = "\n".join(words.split("\n")[: int(cursor) + 1])
    joined = _JOINED.sub(r"\1", before)
    environ["COMP_WORDS"], environ["COMP_CWORD"] = joined, str(joined.count("\n"))


def sites(ctx: typer.Context) -> list[Offer]:
    """The names of both sites; no site is asked."""
    try:
        return list(resolve_address(_pair(ctx)))
    except TwinlogError:
        return []


def tables(ctx: typer.Context) -> list[Offer]:
    return _safe(str(table.get("name")) for table in _tables(ctx))


def dropped_tables(ctx: typer.Context) -> list[Offer]:
    for answer in _answers(ctx, "/v1/tables?dropped=true"):
        with suppress(KeyError, TypeError):
            return list(dict.fromkeys(_safe(str(table["name"]) for table in answer["dropped"])))
    return []


def columns(ctx: typer.Context) -> list[Offer]:
    return _safe(_columns(ctx))


def assigned_columns(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """`COLUMN=` of the table on the command line; nothing for a value."""
    return [] if "=" in incomplete else _safe(f"{name}=" for name in _columns(ctx))


def listed(names: Callable[[typer.Context], list[Offer]]) -> Callable[[typer.Context, str], list[Offer]]:
    """Completes the last of several `names` joined by commas, but for those that are there already."""
    def complete(ctx: typer.Context, incomplete: str) -> list[Offer]:
        head, comma, _ = incomplete.rpartition(",")
        there = head.split(",")
        return [f"{head}{comma}{name}" for name in names(ctx) if name not in there]

    return complete


def operations(*states: str) -> Callable[[typer.Context], list[Offer]]:
    """Completes the ids of both sites' operations that are in one of `states`, or of all; newest first."""
    def complete(ctx: typer.Context) -> list[Offer]:
        found = [one for answer in _answers(ctx, "/v1/operations") for one in answer["operations"]]
        found.sort(key=lambda one: -int(one["created_ms"]))
        return [
            (one["id"], f"{one['kind']} {one['state']}") for one in found
            if _OFFERED.fullmatch(one["id"]) and (not states or one["state"] in states)
        ]

    return _quiet(complete)


def _quiet(complete: Callable[[typer.Context], list[Offer]]) -> Callable[[typer.Context], list[Offer]]:
    """A site of another release may answer otherwise: that is nothing for the middle of a command line."""
    def completed(ctx: typer.Context) -> list[Offer]:
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            return complete(ctx)
        return []

    return completed


def _tables(ctx: typer.Context) -> list[dict[str, Any]]:
    """The tables as the first site that answers has them."""
    for answer in _answers(ctx, "/v1/tables"):
        with suppress(KeyError, TypeError):
            return [table for table in answer["tables"] if isinstance(table, dict)]
    return []


def _columns(ctx: typer.Context) -> Iterator[str]:
    wanted = ctx.params.get("table") or next(iter(ctx.args), None)  # at an option's value the arguments are not yet assigned
    for table in _tables(ctx):
        if table.get("name") == wanted:
            yield from (str(column.get("name")) for column in table.get("columns", ()))


def _safe(names: Iterator[str]) -> list[Offer]:
    return [name for name in names if _OFFERED.fullmatch(name)]


def _answers(ctx: typer.Context, path: str) -> Iterator[dict[str, Any]]:
    """Yields what the sites answer in time, as it comes."""
    try:
        pair = Sites(_pair(ctx), DEADLINE_S)
    except TwinlogError:
        return
    answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def ask(site: str) -> None:
        try:
            answers.put(pair.ask(site, "GET", path))
        except TwinlogError:
            answers.put(None)

    for site in pair.urls:
        threading.Thread(target=ask, args=(site,), daemon=True).start()  # a site that hangs holds up no exit
    until_s = time.monotonic() + DEADLINE_S
    for _ in pair.urls:
        try:
            answer = answers.get(timeout=max(0.0, until_s - time.monotonic()))
        except queue.Empty:
            return
        if answer is not None:
            yield answer


def _pair(ctx: typer.Context) -> str:
    return str(ctx.params.get("config") or os.environ.get("TWINLOG_CONFIG", ""))
