"""Builds the HTTP door of a site: the FastAPI app with its routes. The hot path (hot_path.py) stands before it in the server.

What always holds: every error, FastAPI's own included, is answered as a problem; a query parameter that a path does not know
is refused by name, and so is a condition on a write that would ignore it. Paths are matched as they stand in the request line,
still percent-encoded, so that a `/` or `,` inside a key is not taken for a separator. Source: product.md section 2.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.types import Message, Receive, Scope, Send

from gateway.api import openapi
from gateway.api.api_context import BODY_HOLD, ApiContext
from gateway.api.content_coding import CodedSend
from gateway.api.request import is_write_method
from gateway.api.routes import barriers, checks, cluster, health, internal, operations, rows, scans, tables
from gateway.api.routes.common import to_response
from gateway.service.http_settings import HttpSettings
from gateway.service.port import SiteService
from twinlog.errors import InvalidInput, TwinlogError

_ABOUT = "Rows on two sites: what is acknowledged as `sync` is durable on both. Errors are RFC 9457 problems."


class DoorApp:
    """The ASGI application of one site, around the FastAPI app `plain`."""

    def __init__(self, context: ApiContext, plain: FastAPI) -> None:
        self.context = context
        self.plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Starlette's last resort answers an unexpected error and raises it again: by then nothing is left to do.

        An error in the middle of an answer reaches the server, which breaks the connection.
        """
        if scope["type"] != "http":
            return
        finished = False

        async def watched(message: Message) -> None:
            nonlocal finished
            finished = message["type"] == "http.response.body" and not message.get("more_body", False)
            await coded_send(message)

        accepted = ",".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"accept-encoding")
        coded_send = CodedSend(send, accepted)
        scope["path"] = scope["raw_path"].decode("latin-1")
        hold = scope[BODY_HOLD] = self.context.bodies.hold()
        try:
            await self.plain(scope, receive, watched)
        except Exception:
            if not finished:
                raise
        finally:
            hold.release()


def build_app(
    service: SiteService, config: HttpSettings, *, now_s: Callable[[], float], new_id: Callable[[], str]
) -> DoorApp:
    """The door, to be served by server.py."""
    context = ApiContext(service, config, now_s=now_s, new_id=new_id)
    app = FastAPI(
        title="twinlog", version="1", description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False,
        dependencies=[Depends(_only_known_parameters), Depends(_only_known_conditions)],
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    routers = [room.router(context) for room in (tables, rows, scans, cluster, checks, operations, health, internal)]
    routers += [checks.view_router(context), barriers.router(context), barriers.audits_router(context)]
    for router in routers:
        app.include_router(router)
    every_route = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    async def problem(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:  # the framework names those of one route only
            fitting = [route.methods or set() for route in every_route if route.matches(request.scope)[0] is not Match.NONE]
            error = HTTPException(405, headers={"Allow": ", ".join(sorted(set().union(*fitting)))})
        return to_response(context.problem(error, is_write=is_write_method(request.method)))

    for kind in (TwinlogError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, problem)
    openapi.install(app, every_route)
    return DoorApp(context, app)


async def _only_known_parameters(request: Request) -> None:
    """Raises InvalidInput that names the unknown query parameters and those that the path knows."""
    if not request.scope["query_string"]:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [field.alias for field in route.dependant.query_params]
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        listed = ", ".join(known) or "none"
        raise InvalidInput(
            f"unknown query parameter {', '.join(repr(name[:60]) for name in unknown)}; this path knows {listed}",
            parameters=[name[:60] for name in unknown], allowed=known,
        )


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
