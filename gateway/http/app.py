"""Builds the HTTP door of a site: the FastAPI app with its routes. The hot path (hot_path.py) stands before it in the server.

What always holds: every error, FastAPI's own included, is answered as a problem; a query parameter that a path does not know
is refused by name, and so is a condition on a write that would ignore it. Paths are matched as they stand in the request line,
still percent-encoded, so that a `/` or `,` inside a key is not taken for a separator. HEAD is answered wherever GET is, and
OPTIONS everywhere; what Host and Origin do not allow in (origins.py) reaches no route, and neither does a caller whom the gate
(gateway/access/gate.py) does not let through to that very route. Source: product.md section 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Receive, Scope, Send

from gateway.access.caller import ANONYMOUS, CALLER
from gateway.access.gate import ADMITTED, Gate
from gateway.access.limits import Budget
from gateway.access.needs import IDENTITY, NEEDS
from gateway.access.settings import CALLBACK
from gateway.api import openapi
from gateway.api.api_context import BODY_HOLD, CONTEXT, SPAN, ApiContext
from gateway.api.content_coding import CodedSend
from gateway.api.request import is_write_method
from gateway.api.routes import (
    barriers,
    checks,
    cluster,
    configuration,
    health,
    internal,
    operations,
    pages,
    rows,
    scans,
    tables,
    trail,
)
from gateway.api.routes.common import context_of, to_response
from gateway.backup import routes as backups
from gateway.http.origins import Origins, preflight, shared_with
from gateway.service.http_settings import HttpSettings
from gateway.service.port import Configuration, SiteService
from gateway.table_figures import route as table_figures
from gateway.traces.requests import RequestTraces, over
from gateway.trail.trail import Trail
from gateway.ui.pages import Pages
from gateway.ui.routes import routes as ui
from gateway.ui.routes.page_route import refusal_page
from storage.clock import Clock
from storage.tracing import CURRENT
from twinlog.errors import Forbidden, InvalidInput, TwinlogError

Part = Literal["all", "public", "peer"]  # of the routes: `peer` is for the other site alone, `public` is all the rest
_REPEATED = ("where",)  # query parameters that a request may hold more than once
_ABOUT = "Rows on two sites: what is acknowledged as `sync` is durable on both. Errors are RFC 9457 problems."


class DoorApp:
    """The ASGI application of one door: its own context, origins and gate, before the routes that all sites of this process
    share. Without a gate every caller is anonymous, and has every grant."""

    def __init__(self, context: ApiContext, part: Part = "all", *, gate: Gate | None = None) -> None:
        self.context, self.gate = context, gate
        self.has_rows = part != "peer"
        if gate is not None:
            context.on_forbidden = lambda error, scope: gate.note(error, scope[CALLER], scope)
        self.plain, self._routes = _plain(part)
        self.origins = Origins(context.http)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Starlette's last resort answers an unexpected error and raises it again: by then nothing is left to do.

        An error in the middle of an answer reaches the server, which breaks the connection.
        """
        if scope["type"] != "http":
            return
        self.context.metrics.request(scope["method"])
        answering = _Answering(send, scope["method"] == "HEAD")
        accepted = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept-encoding")
        scope["path"] = scope["raw_path"].decode("latin-1")
        scope[CONTEXT] = self.context
        hold = scope[BODY_HOLD] = self.context.bodies.hold()
        send_coded = CodedSend(answering.send, accepted)
        try:
            if self.context.traces is None:
                await self._served(scope, receive, answering, send_coded)
            else:
                await self._traced(self.context.traces, scope, receive, answering, send_coded)
        except Exception:
            if not answering.finished:
                raise
        finally:
            hold.release()

    async def _traced(
        self, traces: RequestTraces, scope: Scope, receive: Receive, answering: _Answering, send: Send
    ) -> None:
        span = traces.begun(scope["method"], _matching(self._routes, scope)[0], scope["headers"])
        if span is None:
            await self._served(scope, receive, answering, send)
            return
        scope[SPAN] = span
        before = CURRENT.set(span)
        try:
            await self._served(scope, receive, answering, send)
        finally:
            CURRENT.reset(before)
            over(span, answering.status)

    async def _served(self, scope: Scope, receive: Receive, answering: _Answering, send: Send) -> None:
        method = scope["method"]
        try:  # a page has no certificate of the other site, and that may call this one by any name
            origin = self.origins.admit(scope["headers"], scope["http_version"]) if self.has_rows else None
        except HTTPException as error:
            refused = self.context.problem(error, is_write=is_write_method(method))
            await to_response(refused)(scope, receive, send)
            return
        if origin is not None:
            answering.headers += shared_with(origin)
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        elif method == "OPTIONS" and (allowed := _allowed(self._routes, scope)):
            answering.headers += [(b"allow", allowed.encode()), *(preflight(allowed) if origin is not None else ())]
            await Response(status_code=204)(scope, receive, send)
            return
        if self.gate is None:
            scope[CALLER] = ANONYMOUS
            await self.plain(scope, receive, send)
        else:
            await self._guarded(self.gate, scope, receive, send)

    async def _guarded(self, gate: Gate, scope: Scope, receive: Receive, send: Send) -> None:
        route, table = _matching(self._routes, scope)
        is_page = route.startswith(ui.PREFIX) and self.context.pages is not None
        if is_page and self.context.pages is not None:
            self.context.pages.present(scope, is_use=route != ui.EVENTS)
        try:
            need = NEEDS[scope["method"], route] if route else IDENTITY  # what is no route is said to callers alone
            budget = await gate.admit(scope, need, route, table)
        except Exception as error:
            await gate.before_refusal()
            if is_page:
                await refusal_page(Request(scope), error)(scope, receive, send)
                return
            refused = self.context.problem(error, is_write=is_write_method(scope["method"]))
            await to_response(refused)(scope, receive, send)
            return
        if budget is None:
            await self.plain(scope, receive, send)
            return
        try:
            await self.plain(scope, _counted_in(receive, budget, scope), _counted_out(send, budget))
        finally:
            budget.leave()


class _Answering:
    """One answer on its way: `headers` are added to it, and a HEAD gets no body, however long a GET would stream one."""

    def __init__(self, send: Send, is_head: bool) -> None:
        self._send, self._is_head = send, is_head
        self.headers: list[tuple[bytes, bytes]] = []
        self.finished = False
        self.status = 499  # until an answer begins: the client went away

    async def send(self, message: Message) -> None:
        if self._is_head:
            if self.finished:
                return
            if message["type"] == "http.response.body":
                message = {"type": "http.response.body"}  # the server calls off what would come behind it
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self.headers:
                message["headers"] = [*message["headers"], *self.headers]
        self.finished = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


def _counted_in(receive: Receive, budget: Budget, scope: Scope) -> Receive:
    """Counts a body whose length nobody knew when it was let in."""
    if any(name == b"content-length" for name, _ in scope["headers"]):
        return receive

    async def counted() -> Message:
        message = await receive()
        budget.spend(len(message.get("body", b"")))
        return message

    return counted


def _counted_out(send: Send, budget: Budget) -> Send:
    async def counted(message: Message) -> None:
        budget.spend(len(message.get("body", b"")))
        await send(message)

    return counted


def build_app(
    service: SiteService, config: HttpSettings, *, now_s: Callable[[], float], new_id: Callable[[], str],
    gate: Gate | None = None, trail: Trail | None = None, configuration: Configuration | None = None,
    clock: Clock | None = None, secret: Callable[[], str] | None = None, traces: RequestTraces | None = None,
) -> DoorApp:
    """The door with all routes, to be served by server.py. `clock`, `secret`: of the operator's page; None: the door has
    none."""
    context = ApiContext(
        service, config, now_s=now_s, new_id=new_id, trail=trail, configuration=configuration, traces=traces
    )
    if clock is not None and secret is not None:
        context.pages = Pages(service, clock, context.closing, secret, gate)
    return DoorApp(context, gate=gate)


@cache
def _plain(part: Part) -> tuple[FastAPI, Sequence[Route]]:
    """Returns the FastAPI app and its routes. They know no site, and to build them takes a fifth of a second: the simulator
    has hundreds of sites in one process."""
    app = FastAPI(
        title="twinlog", version="1", description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False,
        dependencies=[Depends(_only_what_was_admitted), Depends(_only_known_parameters), Depends(_only_known_conditions)],
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    routers = [internal.router()] if part != "public" else []
    if part != "peer":
        rooms = (tables, table_figures, rows, scans, cluster, checks, operations, health)
        routers = [room.router() for room in rooms] + routers
        routers += [
            checks.view_router(), barriers.router(), backups.router(), barriers.audits_router(), trail.router(),
            configuration.router(), pages.router(app), ui.router(),
        ]
    for router in routers:
        app.include_router(router)
    every_route = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    routes = [*every_route, *(route for route in app.routes if type(route) is Route)]  # the framework's own, too

    async def problem(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:  # the framework names those of one route only
            error = HTTPException(405, headers={"Allow": _allowed(routes, request.scope)})
        elif isinstance(error, Forbidden):
            context_of(request).on_forbidden(error, request.scope)
        return to_response(context_of(request).problem(error, is_write=is_write_method(request.method)))

    for kind in (TwinlogError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, problem)
    openapi.install(app, [route for route in every_route if route.include_in_schema])
    return app, routes


def openapi_document() -> dict[str, Any]:
    """Returns the OpenAPI document of what clients and operators reach at a site, which is the same at every site."""
    return _plain("public")[0].openapi()


def _allowed(routes: Sequence[Route], scope: Scope) -> str:
    """Returns the methods of a path, joined by commas; nothing where there is no such path. `/*`: those of any path."""
    is_all = scope["path"] == "/*"
    fitting = [route.methods or set() for route in routes if is_all or route.matches(scope)[0] is not Match.NONE]
    methods = set[str]().union(*fitting)
    if "GET" in methods:
        methods.add("HEAD")
    return ", ".join(sorted(methods | {"OPTIONS"})) if methods else ""


def _matching(routes: Sequence[Route], scope: Scope) -> tuple[str, str]:
    """Returns the path of the route that answers, with its parameters in braces, and the table that it names; else empty."""
    for route in routes:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return route.path_format, child["path_params"].get("table", "")
    return "", ""


async def _only_what_was_admitted(request: Request) -> None:
    """Stops a request that would reach another route than the one that it was judged for."""
    scope = request.scope
    if scope[CALLER] is not ANONYMOUS and scope[ADMITTED] != scope["route"].path_format:
        raise RuntimeError(f"{scope[ADMITTED]} was let through, and {scope['route'].path_format} would answer")


async def _only_known_parameters(request: Request) -> None:
    """Raises InvalidInput that names the unknown query parameters and those that the path knows, or one that is there twice:
    a proxy may read the first of them where this site reads the last. What an issuer answers may hold more than is read."""
    if not request.scope["query_string"]:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    if route.path_format == CALLBACK:
        return
    known = [field.alias for field in route.dependant.query_params]
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        listed = ", ".join(known) or "none"
        raise InvalidInput(
            f"unknown query parameter {', '.join(repr(name[:60]) for name in unknown)}; this path knows {listed}",
            parameters=[name[:60] for name in unknown], allowed=known,
        )
    for name in request.query_params:
        if name not in _REPEATED and len(request.query_params.getlist(name)) > 1:
            raise InvalidInput(f"query parameter {name!r} is there more than once: send it once", parameter=name)


async def _only_known_conditions(request: Request) -> None:
    """Raises InvalidInput that names a condition which this write would ignore."""
    if not is_write_method(request.method):
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    taken = {shown["name"] for shown in (route.openapi_extra or {}).get("parameters", ())}
    for name in ("If-Match", "If-None-Match"):
        if name in request.headers and name not in taken:
            raise InvalidInput(f"{request.method} takes no {name} here, and nothing was done: leave it out")
