"""Acts that the audit trail keeps: a line before the site begins, and one with the outcome.

What always holds: what changes tables, barriers or notes is not begun before its line is on the disk, and is refused where the
trail cannot be written; a role change goes on without it (docs/decisions, a trail that cannot be written).
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
async def act(request: Request, event: str, what: dict[str, Any], says: str = "") -> AsyncIterator[dict[str, Any]]:
    """Around what a request does; what the block adds to the dictionary stands in the line of its end. `says`: what whoever
    asks calls himself. Raises Unavailable where the beginning cannot be kept."""
    async with _kept(request, event, what, says, needed=True) as ended:
        yield ended


@asynccontextmanager
async def role_act(request: Request, event: str, what: dict[str, Any], says: str) -> AsyncIterator[dict[str, Any]]:
    """As `act`, around the command of a role change: it is done also where the trail cannot be written."""
    async with _kept(request, event, what, says, needed=False) as ended:
        yield ended


@asynccontextmanager
async def _kept(
    request: Request, event: str, what: dict[str, Any], says: str, *, needed: bool
) -> AsyncIterator[dict[str, Any]]:
    trail, ended = context_of(request).trail, dict[str, Any]()
    if trail is None:
        yield ended
        return
    who = who_of(request.scope, says)
    begun = await trail.write(event, who, "begun", what)
    if needed and not begun.is_written:
        trail.put(event, who, "refused", {"code": Unavailable.code}, of=begun)
        raise Unavailable(NOT_BEGUN, retry_after_s=1)
    asked_by = ASKED_BY.set(who)
    try:
        yield ended
    except BaseException as error:
        outcome, why = _outcome(error)
        trail.put(event, who, outcome, {**why, **ended}, of=begun)
        raise
    finally:
        ASKED_BY.reset(asked_by)
    await trail.write(event, who, "done", ended, of=begun)


def _outcome(error: BaseException) -> tuple[Outcome, dict[str, Any]]:
    """What the trail says of an act that ended with `error`."""
    if not isinstance(error, TwinlogError):
        return "unknown", {"code": "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"}
    row = row_of(error)
    why = {"code": error.code, "why": cut_text(words(error))}
    if error.fields.get("outcome", row.outcome) != "not_applied":
        return "unknown", why
    return ("refused" if row.status < 500 else "failed"), why
