"""The routes of the views that only show: *History*, *Audits* and *Log*."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.request import decoded_part
from gateway.api.routes.common import caller_of
from gateway.ui import words
from gateway.ui.looks import Epochs
from gateway.ui.routes.page_route import pages_of
from gateway.ui.views.audit_values import audit_values, audits_values
from gateway.ui.views.history import epoch_rows, happening_rows, operation_rows
from gateway.ui.views.logs import SiteLogs, site_logs
from gateway.ui.watch import PairSeen
from switchover.operations.document import OperationDocument
from twinlog.errors import PeerError, TwinlogError

T = TypeVar("T")
Page = Annotated[int, Query(ge=1, le=1_000_000)]
Token = Annotated[str, Query(max_length=4000)]


async def _of_other(seen: PairSeen, look: Callable[[], Awaitable[T]]) -> T | TwinlogError:
    """Returns what the other site shows, or why it does not. Nobody waits for a site that was silent a moment ago."""
    if seen.silence:
        return PeerError(seen.silence, site=seen.other)
    try:
        return await look()
    except TwinlogError as error:
        return error


def _last(known: Epochs) -> int:
    return known.epochs[-1].epoch if known.epochs else 0


def add_routes(routes: APIRouter) -> None:
    _audits(routes)

    @routes.get("/history")
    async def history(request: Request) -> Response:
        pages = pages_of(request)
        looks = pages.service.looks
        seen = await pages.watch.seen()
        own, other, other_epochs, other_happened = await asyncio.gather(
            looks.operations(), _of_other(seen, looks.other_operations), _of_other(seen, looks.other_epochs),
            _of_other(seen, looks.other_happenings),
        )
        happened = {pages.site: looks.happenings()}
        if not isinstance(other_happened, TwinlogError):
            happened[seen.other] = other_happened
        by_site: dict[str, list[OperationDocument]] = {pages.site: own.operations}
        missing = other.message if isinstance(other, TwinlogError) else ""
        if not isinstance(other, TwinlogError):
            by_site[seen.other] = other.operations
        known = looks.epochs()
        if not isinstance(other_epochs, TwinlogError) and _last(other_epochs) > _last(known):
            known = other_epochs
        every = [one for found in by_site.values() for one in found]
        rows = epoch_rows(known, every, seen.own.cluster.now_ms)
        return pages.page(request, "history.html", "History", {
            "epochs": rows, "operations": operation_rows(by_site), "missing": missing, "other": seen.other,
            "happenings": happening_rows(happened),
            "since": ", ".join(f"site {site} {words.moment(one.since_ms)}" for site, one in sorted(happened.items())),
            "has_times": all(row.since != "unknown" for row in rows),
        })


    @routes.get("/log")
    async def log(request: Request) -> Response:
        pages = pages_of(request)
        looks = pages.service.looks
        seen = await pages.watch.seen()
        own, other = await asyncio.gather(looks.logs(), _of_other(seen, looks.other_logs))
        told = SiteLogs(seen.other, other.message) if isinstance(other, TwinlogError) else site_logs(other)
        shown = sorted((site_logs(own), told), key=lambda one: one.site)
        return pages.page(request, "log.html", "Log", {"logs": shown})


def _audits(routes: APIRouter) -> None:
    @routes.get("/audits")
    async def audits(request: Request) -> Response:
        pages = pages_of(request)
        return pages.page(request, "audits.html", "Audits", audits_values(pages.service), live={"view": "audits"})

    @routes.get("/audits/{audit}")
    async def audit(request: Request, audit: str) -> Response:
        pages, name = pages_of(request), decoded_part(audit)
        values = audit_values(pages.service, name, caller_of(request).grants)
        live = {"view": "audit", "audit": name} if values["running"] is not None else None
        return pages.page(request, "audit.html", f"Audit {name[:60]}", values, live=live)
