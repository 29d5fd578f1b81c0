"""Builds the HTTP door of a site: the FastAPI app with its routes, inside the raw ASGI hot path.

What always holds: every error, FastAPI's own included, is answered as a problem; a query parameter that a path does not know
is refused by name. Source: product.md section 2.
"""

from __future__ import annotations

from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway import openapi
from gateway.config import HttpConfig
from gateway.door import Door
from gateway.hot_path import DoorApp, is_write_method
from gateway.routes import cluster, health, internal, operations, rows, scans, tables
from gateway.routes.common import to_response
from gateway.service import SiteService
from storage.errors import InvalidInput, TwinlogError

_ABOUT = "Rows on two sites: what is acknowledged as `sync` is durable on both. Errors are RFC 9457 problems."


def build_app(service: SiteService, config: HttpConfig) -> DoorApp:
    """The ASGI application. Its `door.closing` must be set when the server stops, to end the event streams."""
    door = Door(service, config)
    app = FastAPI(
        title="twinlog", version="1", description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False,
        dependencies=[Depends(_only_known_parameters)], telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for room in (tables, rows, scans, cluster, operations, health, internal):
        app.include_router(room.router(door))
    outer = DoorApp(door, app)

    async def problem(request: Request, error: Exception) -> Response:
        return to_response(outer.problem(error, is_write_method(request.method)))

    for kind in (TwinlogError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, problem)
    openapi.install(app)
    return outer


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
