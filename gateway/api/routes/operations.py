"""Role changes: start, list, follow, abort, resume. One runs at a time."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import openapi as api
from gateway.api.api_context import ApiContext
from gateway.api.bodies import decoded
from gateway.api.documents import OperationBody, OperationDocument, OperationList
from gateway.api.event_stream import event_stream
from gateway.api.request import JSON, decoded_part, expect_type, idempotency
from gateway.api.routes.common import json_answer, whole_request
from twinlog.errors import InvalidInput

ACTOR_HEADER = "Twinlog-Actor"
ACTOR_LENGTH_MAX = 100
_decode = msgspec.json.Decoder(OperationBody).decode
_ASKED = {"kind": "switchover", "to": "b", "options": {}, "dry_run": False}
_SHOWN = {
    "id": "op-3f9c", "kind": "switchover", "to": "b", "state": "running", "started_at": "2013-01-01T05:00:00Z",
    "steps": [{"name": "drain", "state": "running"}],
}


def router(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1/operations", tags=["operations"], default_response_class=Response)
    service = context.service
    followed = api.answers({200: api.answer(OperationDocument, "the operation", _SHOWN)}, 404, 503)

    @routes.post(
        "", summary="Ask for a role change; with dry_run only plan it", status_code=202,
        openapi_extra=api.body(api.ref(OperationBody), _ASKED) | api.headers("Idempotency-Key"),
        responses=api.answers({
            202: api.answer(OperationDocument, "started; follow it by its id", _SHOWN),
            200: api.answer(OperationDocument, "the plan of a dry run", {**_SHOWN, "state": "planned"}),
        }, 400, 409, 413, 415, 421, 503),
    )
    async def start_operation(request: Request) -> Response:
        head, body = await whole_request(request, context)
        expect_type(head, (JSON,))
        asked, (key, _) = decoded(_decode, body), idempotency(head, body)
        actor = _actor(request)
        document = await service.start_operation(asked.kind, asked.to, asked.options, asked.dry_run, actor, key)
        if asked.dry_run:
            return json_answer(document)
        return json_answer(document, 202, (b"location", f"/v1/operations/{document['id']}".encode()))

    @routes.get(
        "", summary="All operations, the newest first",
        responses=api.answers({200: api.answer(OperationList, "all that are journaled", {"operations": [_SHOWN]})}, 503),
    )
    async def list_operations() -> Response:
        return json_answer({"operations": await service.operations()})

    @routes.get("/{operation_id}", summary="Show an operation", responses=followed)
    async def get_operation(operation_id: str) -> Response:
        return json_answer(await service.operation(decoded_part(operation_id)))

    @routes.get(
        "/{operation_id}/events", summary="The operation now and at each step, as server-sent events called `operation`",
        responses=api.answers({200: api.raw_answer("ends with the operation", "text/event-stream")}, 404, 503),
    )
    async def operation_events(operation_id: str) -> Response:
        return await event_stream("operation", service.operation_events(decoded_part(operation_id)), context.closing)

    changed = api.answers({200: api.answer(OperationDocument, "the operation", _SHOWN)}, 404, 409, 503)

    @routes.post("/{operation_id}:abort", summary="Abort before the point of no return", responses=changed)
    async def abort_operation(operation_id: str, request: Request) -> Response:
        return json_answer(await service.abort_operation(decoded_part(operation_id), _actor(request)))

    @routes.post("/{operation_id}:resume", summary="Go on with an operation that stopped", responses=changed)
    async def resume_operation(operation_id: str, request: Request) -> Response:
        return json_answer(await service.resume_operation(decoded_part(operation_id), _actor(request)))

    return routes


def _actor(request: Request) -> str:
    """Who asks: as they say themselves, if they do, and always the address that they ask from."""
    address = request.client.host if request.client else "unknown"
    said = request.headers.get(ACTOR_HEADER, "")
    if len(said) > ACTOR_LENGTH_MAX or not said.isprintable():
        raise InvalidInput(f"{ACTOR_HEADER} must be at most {ACTOR_LENGTH_MAX} printable characters, such as user@host")
    return f"{said} ({address})" if said else address
