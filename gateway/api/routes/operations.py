"""Role changes: start, list, follow, abort, resume. One runs at a time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.caller import ANONYMOUS
from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.bodies import decoded
from gateway.api.documents import OperationBody, OperationList
from gateway.api.request import JSON, decoded_part, expect_type, idempotency
from gateway.api.routes.acts import role_change
from gateway.api.routes.common import caller_of, context_of, head_once_whole, json_answer, whole_request
from gateway.api.routes.streams import event_stream
from gateway.trail import events
from twinlog.errors import InvalidInput

ACTOR_HEADER = "Twinlog-Actor"
EXPIRES_HEADER = "Twinlog-Expires-Ms"
ACTOR_LENGTH_MAX = 100
EXPIRES_DIGITS_MAX = 15
_decode = msgspec.json.Decoder(OperationBody).decode
OperationId = Annotated[str, Path(description="the id of an operation", examples=[examples.OPERATION.id])]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/operations", tags=["operations"], default_response_class=Response)
    followed = api.answers({200: api.answer("the operation", examples.OPERATION)}, 404, 503)

    @routes.post(
        "", operation_id="startOperation", summary="Start a role change; with dry_run only plan it", status_code=202,
        openapi_extra=api.body(api.ref(OperationBody), examples.SWITCHOVER)
        | api.headers("Idempotency-Key", ACTOR_HEADER, EXPIRES_HEADER),
        responses=api.answers({
            202: api.answer("started; follow it by its id", examples.OPERATION),
            200: api.answer("the plan of a dry run", examples.PLANNED),
        }, 400, 409, 413, 415, 421, 503),
    )
    async def start_operation(request: Request) -> Response:
        context = context_of(request)
        head, body = await whole_request(request, context)
        expect_type(head, (JSON,))
        asked, (key, _) = decoded(_decode, body), idempotency(head, body)
        actor, start = actor_of(request), context.service.operations.start
        if asked.dry_run:  # changes nothing, so the trail has no line of it
            planned = await start(asked.kind, asked.to, asked.options, True, actor, key, _expires_ms(request))
            return json_answer(planned)
        what = {"kind": asked.kind, "to": asked.to, "options": asked.options}
        async with role_change(request, events.ASKED, what, says_of(request)):
            document = await start(asked.kind, asked.to, asked.options, False, actor, key, _expires_ms(request))
        return json_answer(document, 202, (b"location", f"/v1/operations/{document.id}".encode()))

    @routes.get(
        "", operation_id="listOperations", summary="List the operations, the newest first",
        responses=api.answers({200: api.answer("all that are journaled", examples.OPERATIONS)}, 503),
    )
    async def list_operations(request: Request) -> Response:
        return json_answer(OperationList(await context_of(request).service.operations.all()))

    @routes.get("/{operation_id}", operation_id="getOperation", summary="Show an operation", responses=followed)
    async def get_operation(request: Request, operation_id: OperationId) -> Response:
        return json_answer(await context_of(request).service.operations.get(decoded_part(operation_id)))

    @routes.get(
        "/{operation_id}/events", operation_id="followOperation",
        summary="Follow an operation: now and at each step, as server-sent events called `operation`",
        responses=api.answers({200: api.events("ends with the operation", "operation", examples.OPERATION)}, 404, 503),
    )
    async def operation_events(operation_id: OperationId, request: Request) -> Response:
        context = context_of(request)
        followed = context.service.operations.follow(decoded_part(operation_id))
        return await event_stream(request, "operation", followed, context.closing)

    changed = api.answers({200: api.answer("the operation", examples.OPERATION)}, 404, 409, 413, 415, 503)

    @routes.post(
        "/{operation_id}:abort", operation_id="abortOperation", summary="Abort an operation before its point of no return",
        responses=changed, openapi_extra=api.headers(ACTOR_HEADER),
    )
    async def abort_operation(operation_id: OperationId, request: Request) -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        name, actor = decoded_part(operation_id), actor_of(request)
        async with role_change(request, events.ABORT, {"operation": name}, says_of(request)):
            document = await context.service.operations.abort(name, actor)
        return json_answer(document)

    @routes.post(
        "/{operation_id}:resume", operation_id="resumeOperation", summary="Resume an operation that stopped",
        responses=changed, openapi_extra=api.headers(ACTOR_HEADER, EXPIRES_HEADER),
    )
    async def resume_operation(operation_id: OperationId, request: Request) -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        name, actor, expires_ms = decoded_part(operation_id), actor_of(request), _expires_ms(request)
        async with role_change(request, events.RESUMED, {"operation": name}, says_of(request)):
            document = await context.service.operations.resume(name, actor, expires_ms)
        return json_answer(document)

    return routes


def _expires_ms(request: Request) -> int | None:
    """Returns the moment, by this site's clock, after which nobody waits for what is asked. Raises InvalidInput."""
    said = request.headers.get(EXPIRES_HEADER)
    if said is None:
        return None
    if not said.isascii() or not said.isdigit() or len(said) > EXPIRES_DIGITS_MAX:
        raise InvalidInput(f"{EXPIRES_HEADER} must be milliseconds since 1970 by this site's clock: now_ms of GET /v1/cluster, "
                           "and as long as you are willing to wait")
    return int(said)


def actor_of(request: Request) -> str:
    """Returns who asks: the identity where there is one, as they say themselves, if they do, and always the address that they
    ask from."""
    address, said = request.client.host if request.client else "unknown", says_of(request)
    caller = caller_of(request)
    known = [] if caller is ANONYMOUS else [f"{caller.kind} {caller.name}"]
    who = ", as ".join([*known, *([said] if said else [])])
    return f"{who} ({address})" if who else address


def says_of(request: Request) -> str:
    """Returns what whoever asks calls himself, which nothing proves. Raises InvalidInput."""
    said = request.headers.get(ACTOR_HEADER, "")
    if len(said) > ACTOR_LENGTH_MAX or not said.isprintable():
        raise InvalidInput(f"{ACTOR_HEADER} must be at most {ACTOR_LENGTH_MAX} printable characters, such as user@host")
    return said
