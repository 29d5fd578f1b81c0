"""The checks before a role change, without one: what `twinlog validate` shows; and what the availability monitor looks at."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from msgspec.structs import replace
from starlette.responses import Response

from gateway.api import openapi as api
from gateway.api.api_context import ApiContext
from gateway.api.documents import ChecksDocument
from gateway.api.routes.common import json_answer
from switchover.monitor.views import SiteView

_SHOWN = {
    "for": "switchover", "to": "b", "ok": True, "loss": None,
    "checks": [{"id": "replication.lag", "status": "ok", "seen": "0 records behind, heard 0.1 s ago", "fix": ""}],
}
_VIEW: dict[str, object] = {
    "own": {"site": "a", "role": "ACTIVE", "epoch": 3, "mode": "sync", "lease_left_s": 0.8, "peer_dfs_error": None},
    "peer": {"site": "b", "role": "STANDBY", "epoch": 3}, "peer_error": "", "running": None, "changes": [],
    "register": {"state_id": 7, "epoch": 3, "active": "a", "mode": "sync", "switching": None},
    "answers": {"acknowledged": 8123, "failed": 0, "ack_s": 24.4},
}
Kind = Annotated[str, Query(alias="for", description="switchover, failover or rejoin")]


def router(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1/checks", tags=["operations"], default_response_class=Response)

    @routes.get(
        "", summary="Would a role change to this site work now? Looks at both sites, changes nothing",
        responses=api.answers({200: api.answer(ChecksDocument, "every check, with the fix where one is needed", _SHOWN)}, 422),
    )
    async def checks(kind: Kind) -> Response:
        return json_answer(await context.service.checks(kind))

    return routes


def view_router(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1/view", tags=["operations"], default_response_class=Response)

    @routes.get(
        "", summary="What this site sees: itself, the other one, both DFSs, the register, its clients. For `twinlog monitor`",
        responses=api.answers({200: api.answer(SiteView, "what could not be seen is null", _VIEW)}),
    )
    async def view() -> Response:
        seen = await context.service.view()
        return json_answer(replace(seen, answers=context.metrics.answers()), 200, (b"cache-control", b"no-store"))

    return routes
