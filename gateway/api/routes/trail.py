"""The route of the audit trail: its newest lines, for people. The proof of the whole chain is `twinlog trail --verify`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.documents import TrailDocument, TrailLine, TrailWho
from gateway.api.routes.common import context_of, json_answer
from gateway.trail.entry import TrailEntry, TrailHead

LINES_MAX = 500
Limit = Annotated[int, Query(ge=1, le=LINES_MAX, description="at most so many lines, the newest")]
Since = Annotated[int, Query(ge=0, le=1 << 53, description="none before this moment, in milliseconds since 1970")]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/trail", tags=["operations"], default_response_class=Response)

    @routes.get(
        "", operation_id="getTrail", summary="Show the newest lines of this site's audit trail: who did what, and how it ended",
        responses=api.answers({200: api.answer("the newest, the oldest of them first", examples.TRAIL)}, 500),
    )
    async def get_trail(request: Request, limit: Limit = 100, since_ms: Since = 0) -> Response:
        context = context_of(request)
        trail = context.trail
        if trail is None:
            return json_answer(_shown(context.service.site, TrailHead(), None, []))
        return json_answer(_shown(trail.site, trail.head, trail.fault, await trail.newest(limit, since_ms)))

    return routes


def _shown(site: str, head: TrailHead, fault: str | None, entries: list[TrailEntry]) -> TrailDocument:
    return TrailDocument(site, head.number, head.sha256, fault, [_line(entry) for entry in entries])


def _line(entry: TrailEntry) -> TrailLine:
    who = TrailWho(*msgspec.structs.astuple(entry.who))
    return TrailLine(
        entry.number, entry.time_ms, entry.event, entry.outcome, who, entry.what, entry.operation, entry.of, entry.late_ms
    )
