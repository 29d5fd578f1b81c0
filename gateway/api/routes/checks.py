"""Routes that judge a role change without starting it, for `twinlog validate`, and that show a site's view to the monitor."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.routes.common import context_of, json_answer
from switchover.preflight.checks import KINDS

Kind = Annotated[str, Query(
    alias="for", description="the role change", examples=["switchover"], json_schema_extra={"enum": list(KINDS)}
)]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/checks", tags=["operations"], default_response_class=Response)

    @routes.get(
        "", operation_id="getChecks",
        summary="Judge whether a role change to this site would work now; looks at both sites, changes nothing",
        responses=api.answers({200: api.answer("every check, with the fix where one is needed", examples.CHECKS)}),
    )
    async def checks(request: Request, kind: Kind) -> Response:
        return json_answer(await context_of(request).service.operations.checks(kind))

    return routes


def view_router() -> APIRouter:
    routes = APIRouter(prefix="/v1/view", tags=["operations"], default_response_class=Response)

    @routes.get(
        "", operation_id="getView",
        summary="Show what this site sees of itself, the other one, both DFSs and the register, for `twinlog monitor`",
        responses=api.answers({200: api.answer("what could not be seen is null", examples.VIEW)}),
    )
    async def view(request: Request) -> Response:
        context = context_of(request)
        seen = await context.service.operations.view()
        return json_answer(replace(seen, answers=context.metrics.answers()), 200, (b"cache-control", b"no-store"))

    return routes
