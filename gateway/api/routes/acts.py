"""Acts that the audit trail keeps: a line before the site begins, and one with the outcome.

What always holds: what changes tables, barriers or notes is not begun before its line is on the disk, and is refused where the
trail cannot be written; a role change continues without it (docs/decisions, a trail that cannot be written).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request

from gateway.api.problems import row_of
from gateway.api.routes.common import context_of
from gateway.trail.entry import Outcome, cut_text
from gateway.trail.who import ASKED_BY, who_of
from twinlog.errors import TwinlogError, Unavailable, words

NOT_BEGUN = "the audit trail of this site cannot be written, and nothing was done: its log says why; make room on its disk"


@asynccontextmanager
async def act(
    request: Request, event: str, what: dict[str, Any], *, needed: bool = True
) -> AsyncIterator[dict[str, Any]]:
    """Around what a request does; what the block adds to the dictionary stands in the line of its end. Raises Unavailable where
    the line of the beginning is `needed` and cannot be kept."""
    trail, ended = context_of(request).trail, dict[str, Any]()
    if trail is None:
        yield ended
        return
    who = who_of(request.scope)
    begun = await trail.write(event, who, "begun", what)
    if needed and not begun.is_written:
        trail.put(event, who, "refused", {"code": Unavailable.code}, of=begun)
        raise Unavailable(NOT_BEGUN, retry_after_s=1)
    try:
        yield ended
    except BaseException as error:
        outcome, why = _outcome(error)
        trail.put(event, who, outcome, {**why, **ended}, of=begun)
        raise
    await trail.write(event, who, "done", ended, of=begun)


@asynccontextmanager
async def role_change(request: Request, event: str, what: dict[str, Any], says: str) -> AsyncIterator[None]:
    """Around the command of a role change, whose journal has the lines of what is done (gateway/trail/journal.py): here it says
    who asks, and that a command came to nothing. `says`: what whoever asks calls himself."""
    trail = context_of(request).trail
    who = who_of(request.scope, says)
    asked_by = ASKED_BY.set(who)
    try:
        yield
    except BaseException as error:
        if trail is not None:
            outcome, why = _outcome(error)
            trail.put(event, who, outcome, {**what, **why}, operation=str(what.get("operation", "")))
        raise
    finally:
        ASKED_BY.reset(asked_by)


def _outcome(error: BaseException) -> tuple[Outcome, dict[str, Any]]:
    """Returns what the trail says of an act that ended with `error`."""
    if not isinstance(error, TwinlogError):
        return "unknown", {"code": "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"}
    row = row_of(error)
    why = {"code": error.code, "why": cut_text(words(error))}
    if error.fields.get("outcome", row.outcome) != "not_applied":
        return "unknown", why
    return ("refused" if row.status < 500 else "failed"), why
