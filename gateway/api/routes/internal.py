"""The route of the other site's calls: bytes in, bytes out; the caller turns problems of any kind into the same errors."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import openapi as api
from gateway.api.api_context import BODY_HOLD
from gateway.api.body_budget import BodyHold
from gateway.api.problems import PROBLEMS, Answer
from gateway.api.request import MSGPACK, expect_type, read_body
from gateway.api.routes.common import context_of, head_of, to_response

Method = Annotated[str, Path(description="a method of remote_log/replication/messages.py", examples=["status"])]


def router() -> APIRouter:
    routes = APIRouter(prefix="/internal/v1", tags=["internal"], default_response_class=Response)

    @routes.post(
        "/peer/{method}", operation_id="callPeer", summary="Call a method of the other site", responses=api.answers(
            {200: api.raw_answer("a msgpack map", MSGPACK)}, 408, 415, *(row.status for row in PROBLEMS.values())
        ),
        openapi_extra={"requestBody": {"content": {MSGPACK: {"schema": {"type": "string", "format": "binary"}}}}},
    )
    async def peer_call(method: Method, request: Request) -> Response:
        context = context_of(request)
        head = head_of(request)
        expect_type(head, (MSGPACK,))
        if head.content_encoding:
            raise HTTPException(415, "calls of the other site are sent as they are: no Content-Encoding is taken here")
        hold: BodyHold = request.scope[BODY_HOLD]
        hold.of_peer = True
        body = await read_body(request.receive, head.content_length, context.http.bodies_bytes_max, hold)
        reply = await context.service.peer_call(method, body)
        return to_response(Answer(200, [(b"content-type", MSGPACK.encode())], reply))

    return routes
