"""The routes below `/ui`: pages for operators, their event stream, and the files that they use.

What always holds: an error is a page; what a page changes comes by a form with the text of that page; the stream of a page
shows nothing that the page itself would not.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.problems import Answer
from gateway.api.routes.common import caller_of, to_response
from gateway.api.routes.streams import frame_stream
from gateway.ui.live import Live
from gateway.ui.pages import may_see_figures
from gateway.ui.rendering import ASSETS, SECURITY, asset
from gateway.ui.routes import change, log_in, tables, views
from gateway.ui.routes.page_route import PageRoute, Text, pages_of
from gateway.ui.views.now import now_page
from twinlog.errors import NotFound

PREFIX, EVENTS = "/ui", "/ui/events"
_FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")


def router() -> APIRouter:
    routes = APIRouter(prefix=PREFIX, include_in_schema=False, default_response_class=Response, route_class=PageRoute)
    _now(routes)
    _files(routes)
    log_in.add_routes(routes)
    change.add_routes(routes)
    views.add_routes(routes)
    tables.add_routes(routes)
    return routes


def _now(routes: APIRouter) -> None:
    @routes.get("")
    async def now(request: Request) -> Response:
        pages, is_advised = pages_of(request), may_see_figures(pages_of(request), request)
        page = now_page(await pages.watch.seen(), is_advised=is_advised)
        return pages.page(request, "now.html", "Now", {"page": page, "is_advised": is_advised}, live={"view": "now"})

    @routes.get("/events")
    async def events(request: Request, view: Text, operation: Text = "", audit: Text = "") -> Response:
        pages = pages_of(request)
        live = Live(pages, caller_of(request), pages.sessions.number_of(request.scope["headers"]), view, operation, audit)
        return await frame_stream(request, live.follow())


def _files(routes: APIRouter) -> None:
    @routes.get("/static/{file}")
    async def static(request: Request, file: Annotated[str, Path()], v: Text = "") -> Response:
        if file not in ASSETS:
            raise NotFound(f"the page has no file {file[:80]!r}")
        headers = [(b"content-type", ASSETS[file].encode()), _FOR_EVER if v else (b"cache-control", b"no-cache"), *SECURITY]
        return to_response(Answer(200, headers, asset(file)))
