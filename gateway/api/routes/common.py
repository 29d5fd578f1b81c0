"""The plain routes share these: reading the request, and answering."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import msgspec
from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.caller import CALLER, Caller
from gateway.api.api_context import BODY_HOLD, CONTEXT, SPAN, ApiContext
from gateway.api.bodies import decoded
from gateway.api.content_coding import content_coding
from gateway.api.problems import Answer
from gateway.api.request import JSON, MSGPACK, Head, expect_type, read_body, read_head
from storage.rows.schema import NAME
from twinlog.errors import InvalidInput

T = TypeVar("T")
SCHEMA = {"Twinlog-Schema": "the name of the schema that the answer was made with: equal for equal columns only"}
TableName = Annotated[str, Path(
    description="the name of a table", examples=["flights"], json_schema_extra={"pattern": f"^{NAME.pattern}$"},
)]
RowKey = Annotated[str, Path(
    description="the key columns in order, each percent-encoded, joined by commas; `=` and the base64url of a part stands for "
    "it too, and is how `.`, `..` and the empty text are written: =Lg, =Li4, =", examples=["UA,1545"],
)]
Int64 = Annotated[Literal["number", "string"], Query(
    description="values and defaults of int64 columns as numbers, or as decimal text"
)]


def to_response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    return response


def json_answer(document: msgspec.Struct, status: int = 200, *headers: tuple[bytes, bytes]) -> Response:
    return to_response(Answer(status, [(b"content-type", JSON.encode()), *headers], msgspec.json.encode(document)))


def head_of(request: Request, versions: str = "string", int64: str = "number") -> Head:
    """Returns the head. `versions`, `int64`: the parameters that say how the answer shows versions and int64 columns. Raises
    InvalidInput."""
    head = read_head(request.method, request.scope["raw_path"], request.scope["headers"])
    if head.twice:
        raise InvalidInput(f"{head.twice} is there twice: send it once")
    head.span = request.scope.get(SPAN)
    head.number_versions, head.int64_text = versions == "number", int64 == "string"
    return head


def caller_of(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


def context_of(request: Request) -> ApiContext:
    """Returns the context of the door that the request came in by: the routes are the same for every site of this process."""
    context: ApiContext = request.scope[CONTEXT]
    return context


async def whole_request(request: Request, context: ApiContext, versions: str = "string") -> tuple[Head, bytes]:
    """Returns the head, and a body that holds one row or a document."""
    return await _whole(request, context, context.http.row_body_bytes_max, versions)


async def whole_batch(request: Request, context: ApiContext, versions: str) -> tuple[Head, bytes]:
    """Returns the head, and a body that holds many rows."""
    return await _whole(request, context, context.http.body_bytes_max, versions)


async def _whole(request: Request, context: ApiContext, bytes_max: int, versions: str) -> tuple[Head, bytes]:
    head = head_of(request, versions)
    coding, hold = content_coding(head.content_encoding), request.scope[BODY_HOLD]
    body = await read_body(request.receive, head.content_length, bytes_max, hold)
    return head, await context.expander.expanded(body, coding, bytes_max, hold) if coding else body


async def head_once_whole(request: Request, context: ApiContext, versions: str = "string") -> Head:
    """Returns the head of a write that takes no body. Raises MalformedBody where the request is broken: nothing may act."""
    head, body = await whole_request(request, context, versions)
    if body:
        expect_type(head, (JSON, MSGPACK))
    return head


async def json_request(request: Request, context: ApiContext, decode: Callable[[bytes], T]) -> T:
    """Returns the body, which must be JSON, decoded by `decode`."""
    head, body = await whole_request(request, context)
    expect_type(head, (JSON,))
    return decoded(decode, body)
