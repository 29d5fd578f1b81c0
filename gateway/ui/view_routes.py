"""The routes of the views that only show: *History*, *Tables*, *Audits* and *Log*."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.request import decoded_part
from gateway.api.routes.common import caller_of, context_of
from gateway.ui.looks import Epochs
from gateway.ui.page_route import Text, pages_of
from gateway.ui.views.audit_values import audit_values, audits_values
from gateway.ui.views.history import epoch_rows, operation_rows
from gateway.ui.views.logs import SiteLogs, site_logs
from gateway.ui.views.tables import rows_shown, start_of, table_path, tables_page
from storage.rows.schema import to_public
from switchover.operations.document import OperationDocument
from twinlog.errors import TwinlogError

T = TypeVar("T")
Page = Annotated[int, Query(ge=1, le=1_000_000)]
Token = Annotated[str, Query(max_length=4000)]


async def _or_error(look: Awaitable[T]) -> T | TwinlogError:
    try:
        return await look
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
        seen, own, other, other_epochs = await asyncio.gather(
            pages.watch.seen(), looks.operations(), _or_error(looks.other_operations()), _or_error(looks.other_epochs()),
        )
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
            "has_times": all(row.since != "unknown" for row in rows),
        })

    @routes.get("/tables")
    async def tables(request: Request, name: Text = "", page: Page = 1) -> Response:
        pages = pages_of(request)
        found = tables_page(pages.service.tables.all(), caller_of(request), name, page)
        cluster = pages.service.cluster.document()
        return pages.page(request, "tables.html", "Tables", {"found": found, "cluster": cluster})

    @routes.get("/tables/{table}")
    async def table(table: str, request: Request, start: Text = "", key: Text = "", token: Token = "") -> Response:
        pages, context = pages_of(request), context_of(request)
        name = decoded_part(table)
        schema = context.codec(name).schema
        rows = await rows_shown(context, caller_of(request), name, start_of(start, key), token)
        values: dict[str, Any] = {
            "table": to_public(schema), "revision": schema.revision, "rows": rows, "start": start, "key": key, "token": token,
            "path": table_path(name),
        }
        return pages.page(request, "table.html", f"Table {name}", values)

    @routes.get("/log")
    async def log(request: Request) -> Response:
        pages = pages_of(request)
        looks = pages.service.looks
        seen, own, other = await asyncio.gather(pages.watch.seen(), looks.logs(), _or_error(looks.other_logs()))
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
