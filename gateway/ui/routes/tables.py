"""The routes of the view *Tables*, and of the page of one table."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.request import decoded_part
from gateway.api.routes.common import caller_of, context_of
from gateway.audits.notes import PROVING_JOB, AuditRun
from gateway.table_figures.asking import figures_in
from gateway.ui.pages import Pages
from gateway.ui.routes.page_route import Text, pages_of
from gateway.ui.views import table_size
from gateway.ui.views.tables import rows_shown, start_of, table_path, table_rows, tables_found
from storage.rows.schema import to_public

Page = Annotated[int, Query(ge=1, le=1_000_000)]
Token = Annotated[str, Query(max_length=4000)]


def _may_see_audits(pages: Pages, request: Request) -> bool:
    return pages.may(caller_of(request), "GET", "/v1/audits/last")


def _compared(pages: Pages, request: Request) -> AuditRun | None:
    """The last comparison of both sites; None also where the caller may not see it."""
    return pages.service.audits.all().last.get(PROVING_JOB) if _may_see_audits(pages, request) else None


def add_routes(routes: APIRouter) -> None:
    @routes.get("/tables")
    async def tables(request: Request, name: Text = "", page: Page = 1) -> Response:
        pages = pages_of(request)
        service, caller = pages.service, caller_of(request)
        found = tables_found(service.tables.all(), caller, name, page)
        granted = [table.id for table in found.tables if table_size.is_granted(caller, table.name)]
        asked = pages.other_tables.ask()
        sizes, _ = await asyncio.gather(service.looks.table_sizes(granted), asked.wait())
        other = asked.known()
        rows = table_rows(found.tables, caller, sizes, other, _compared(pages, request))
        return pages.page(request, "tables.html", "Tables", {
            "found": found, "rows": rows, "other": other, "cluster": service.cluster.document(),
            "oldest": max((size.age_s or 0.0 for size in sizes.values()), default=0.0),
            "has_audits": _may_see_audits(pages, request),
        })

    @routes.get("/tables/{table}")
    async def table(table: str, request: Request, start: Text = "", key: Text = "", token: Token = "") -> Response:
        pages, context = pages_of(request), context_of(request)
        name = decoded_part(table)
        schema = context.codec(name).schema
        asked = pages.other_tables.ask(schema.id)
        rows, sizes, _ = await asyncio.gather(
            rows_shown(context, caller_of(request), name, start_of(start, key), token),
            pages.service.looks.table_sizes([schema.id]), asked.wait(),
        )
        other = asked.known()
        figures = figures_in(pages.service, schema, sizes, other)
        granted, hidden = table_size.is_granted(caller_of(request), name), table_size.NOT_GRANTED
        compared = _compared(pages, request)
        if compared is not None and name not in compared.tables:
            compared = None
        values: dict[str, Any] = {
            "table": to_public(schema), "revision": schema.revision, "rows": rows, "start": start, "key": key, "token": token,
            "path": table_path(name),
            "figures": figures, "other": other, "own_size": table_size.holds(figures.size) if granted else hidden,
            "other_size": table_size.holds(figures.other.size) if granted else hidden,
            "schema_at_both": table_size.schema(figures), "compared": table_size.comparison(compared),
            "has_audits": _may_see_audits(pages, request),
        }
        return pages.page(request, "table.html", f"Table {name}", values)
