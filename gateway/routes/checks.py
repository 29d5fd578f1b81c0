"""The checks before a role change, without one: what `twinlog validate` shows."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from gateway import openapi as api
from gateway.documents import ChecksDocument
from gateway.door import Door
from gateway.routes.common import json_answer

_SHOWN = {
    "for": "switchover", "to": "b", "ok": True, "loss": None,
    "checks": [{"id": "replication.lag", "status": "ok", "seen": "0 records behind, heard 0.1 s ago", "fix": ""}],
}
Kind = Annotated[str, Query(alias="for", description="switchover, failover or rejoin")]


def router(door: Door) -> APIRouter:
    routes = APIRouter(prefix="/v1/checks", tags=["operations"], default_response_class=Response)

    @routes.get(
        "", summary="Would a role change to this site work now? Looks at both sites, changes nothing",
        responses=api.answers({200: api.answer(ChecksDocument, "every check, with the fix where one is needed", _SHOWN)}, 422),
    )
    async def checks(kind: Kind) -> Response:
        return json_answer(await door.service.checks(kind))

    return routes
