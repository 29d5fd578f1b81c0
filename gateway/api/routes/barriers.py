"""Barriers, behind which each site keeps a snapshot; and what audits found."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import openapi as api
from gateway.api.api_context import ApiContext
from gateway.api.documents import BarrierBody, BarrierDocument, BarrierList
from gateway.api.request import decoded_part
from gateway.api.routes.common import json_answer, json_request
from gateway.service.audits import AuditBody, Audits

_decode_barrier = msgspec.json.Decoder(BarrierBody).decode
_decode_audit = msgspec.json.Decoder(AuditBody).decode
_NO_STORE = (b"cache-control", b"no-store")
_SHOWN = {
    "name": "audit-1", "epoch": 3, "seq": 8123, "taken_at": "2013-01-01T05:00:00.000Z",
    "expires_at": "2013-01-01T06:00:00.000Z", "engine": "rocksdb", "place": "rocksdb:/srv/twinlog/engine/kept/audit-1/rocksdb",
}
_AUDIT = {
    "id": "20130101T050000-compare", "job": "compare", "barrier": "audit-1", "started_at": "2013-01-01T05:00:00Z",
    "finished_at": "2013-01-01T05:01:00Z", "outcome": "good", "differences": 0, "tables": ["flights"], "by": "ann@host",
}


def router(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1/barriers", tags=["audits"], default_response_class=Response)
    service = context.service

    @routes.post(
        "", summary="Take a barrier at the active: both sites keep a snapshot exactly there", status_code=201,
        openapi_extra=api.body(api.ref(BarrierBody), {"name": "audit-1"}),
        responses=api.answers({
            201: api.answer(BarrierDocument, "taken, and kept at this site", _SHOWN),
            200: api.answer(BarrierDocument, "held already under this name", _SHOWN),
        }, 400, 409, 413, 415, 421, 503, 504),
    )
    async def take_barrier(request: Request) -> Response:
        asked = await json_request(request, context, _decode_barrier)
        document, is_new = await service.take_barrier(asked.name)
        return json_answer(document, 201 if is_new else 200, (b"location", f"/v1/barriers/{document['name']}".encode()))

    @routes.get(
        "", summary="The barriers of which this site holds the snapshot, the oldest first",
        responses=api.answers({200: api.answer(BarrierList, "what is held here", {"site": "a", "barriers": [_SHOWN]})}),
    )
    async def list_barriers() -> Response:
        return json_answer(service.barriers(), 200, _NO_STORE)

    @routes.get(
        "/{name}", summary="One barrier, if this site holds its snapshot",
        responses=api.answers({200: api.answer(BarrierDocument, "held here", _SHOWN)}, 404),
    )
    async def get_barrier(name: str) -> Response:
        return json_answer(service.barrier(decoded_part(name)), 200, _NO_STORE)

    @routes.delete(
        "/{name}", summary="Release the snapshot of this site", status_code=204,
        responses=api.answers({204: {"description": "released"}}, 404),
    )
    async def release_barrier(name: str) -> Response:
        await service.release_barrier(decoded_part(name))
        return Response(status_code=204)

    return routes


def audits_router(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1/audits", tags=["audits"], default_response_class=Response)
    service = context.service

    @routes.post(
        "", summary="Say what an audit found; each site keeps it for itself", status_code=201,
        openapi_extra=api.body(api.ref(AuditBody), _AUDIT),
        responses=api.answers({201: api.answer(AuditBody, "kept", _AUDIT)}, 400, 413, 415, 503),
    )
    async def note_audit(request: Request) -> Response:
        audit = await json_request(request, context, _decode_audit)
        await service.note_audit(audit)
        return json_answer(audit, 201)

    @routes.get(
        "/last", summary="The last audit of each job, and the last comparison that found both sites equal",
        responses=api.answers({
            200: api.answer(Audits, "null: never", {"last": {"compare": _AUDIT}, "last_good_compare": _AUDIT})
        }),
    )
    async def last_audits() -> Response:
        return json_answer(service.audits(), 200, _NO_STORE)

    return routes
