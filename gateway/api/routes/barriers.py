"""Routes of barriers, behind which each site keeps a snapshot, and of what audits found."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.documents import BarrierBody
from gateway.api.request import decoded_part
from gateway.api.routes.acts import act
from gateway.api.routes.common import context_of, head_once_whole, json_answer, json_request
from gateway.service.audits import AuditBody, AuditRun
from gateway.trail import events

_decode_barrier = msgspec.json.Decoder(BarrierBody).decode
_decode_audit = msgspec.json.Decoder(AuditRun).decode
_NO_STORE = (b"cache-control", b"no-store")
BarrierName = Annotated[str, Path(description="the name of a barrier", examples=["audit-1"])]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/barriers", tags=["audits"], default_response_class=Response)

    @routes.post(
        "", operation_id="takeBarrier",
        summary="Take a barrier at the active: both sites keep a snapshot exactly there", status_code=201,
        openapi_extra=api.body(api.ref(BarrierBody), examples.NEW_BARRIER),
        responses=api.answers({
            201: api.answer("taken, and kept at this site", examples.BARRIER),
            200: api.answer("held already under this name", examples.BARRIER),
        }, 400, 409, 413, 415, 421, 503, 504),
    )
    async def take_barrier(request: Request) -> Response:
        context = context_of(request)
        asked = await json_request(request, context, _decode_barrier)
        async with act(request, events.TAKE, {"barrier": asked.name}) as ended:
            document, is_new = await context.service.barriers.take(asked.name)
            ended |= {"barrier": document.name, "is_new": is_new}
        return json_answer(document, 201 if is_new else 200, (b"location", f"/v1/barriers/{document.name}".encode()))

    @routes.get(
        "", operation_id="listBarriers", summary="List the barriers whose snapshot this site holds, the oldest first",
        responses=api.answers({200: api.answer("what is held here", examples.BARRIERS)}),
    )
    async def list_barriers(request: Request) -> Response:
        return json_answer(context_of(request).service.barriers.all(), 200, _NO_STORE)

    @routes.get(
        "/{name}", operation_id="getBarrier", summary="Show a barrier whose snapshot this site holds",
        responses=api.answers({200: api.answer("held here", examples.BARRIER)}, 404),
    )
    async def get_barrier(request: Request, name: BarrierName) -> Response:
        return json_answer(context_of(request).service.barriers.get(decoded_part(name)), 200, _NO_STORE)

    @routes.delete(
        "/{name}", operation_id="releaseBarrier", summary="Release the snapshot of this site", status_code=204,
        responses=api.answers({204: {"description": "released"}}, 404, 413, 415),
    )
    async def release_barrier(name: BarrierName, request: Request) -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        async with act(request, events.RELEASE, {"barrier": decoded_part(name)}, needed=False):  # it gives space back
            await context.service.barriers.release(decoded_part(name))
        return Response(status_code=204)

    return routes


def audits_router() -> APIRouter:
    routes = APIRouter(prefix="/v1/audits", tags=["audits"], default_response_class=Response)

    @routes.post(
        "", operation_id="noteAudit", summary="Record what an audit found; each site keeps it for itself", status_code=201,
        openapi_extra=api.body(api.ref(AuditBody), examples.NEW_AUDIT),
        responses=api.answers({201: api.answer("kept", examples.AUDIT)}, 400, 413, 415, 422, 503),
    )
    async def note_audit(request: Request) -> Response:
        context = context_of(request)
        audit = await json_request(request, context, _decode_audit)
        what = {"id": audit.id, "job": audit.job, "outcome": audit.outcome, "differences": audit.differences, "by": audit.by}
        async with act(request, events.AUDIT, what):
            await context.service.audits.note(audit)
        return json_answer(audit, 201)

    @routes.get(
        "/last", operation_id="getLastAudits",
        summary="Show the last audit of each job, and the last comparison that found both sites equal",
        responses=api.answers({200: api.answer("null: never", examples.AUDITS)}),
    )
    async def last_audits(request: Request) -> Response:
        return json_answer(context_of(request).service.audits.all(), 200, _NO_STORE)

    return routes
