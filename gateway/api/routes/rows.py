"""Rows: the plain routes beside the hot path, batches, check-and-mutate. Keys stay percent-encoded up to their codec."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import openapi as api
from gateway.api import row_calls
from gateway.api.api_context import ApiContext
from gateway.api.batches import BATCH_TYPES, check_row, mutate_rows
from gateway.api.documents import BatchAnswer, BatchBody, CheckBody, RowAnswer, WriteAnswer
from gateway.api.request import ARROW, MSGPACK, NDJSON, decoded_part
from gateway.api.routes.common import head_of, to_response, whole_request

_ROW_SCHEMA = {"type": "object", "description": "column -> value; key columns may be left out, they stand in the path"}
_SHOWN = {"row": api.EXAMPLE_ROW, "version": api.EXAMPLE_VERSION}
_PROBLEMS = (400, 404, 406, 408, 409, 412, 413, 415, 421, 429, 503, 504)
_ETAG = {"ETag": "the version in quotes"}
_WRITTEN = api.answers({200: api.answer(WriteAnswer, "acknowledged", api.EXAMPLE_WRITE, MSGPACK, headers=_ETAG)}, *_PROBLEMS)
_MUTATED = api.answers(
    {200: api.answer(BatchAnswer, "all acknowledged", {**api.EXAMPLE_WRITE, "count": 3}, MSGPACK, headers=_ETAG)}, *_PROBLEMS
)
_EXAMPLE_CHECK = {
    "conditions": [{"column": "delay_min", "op": "<", "value": 10}],
    "mutations": [{"op": "upsert", "row": api.EXAMPLE_ROW}],
}
STALE = {"Twinlog-Stale": "seconds behind, or unknown"}
AsOf = Annotated[str | None, Query(description="a version, or an RFC 3339 time: the row as it was then")]
Stale = Annotated[bool, Query(description="also a standby may answer; it says how far behind it is in Twinlog-Stale (seconds)")]
Columns = Annotated[str | None, Query(description="names joined by commas; left out: all")]


def router(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1/tables/{table}", tags=["rows"], default_response_class=Response)
    row = "/rows/{key:path}"

    @routes.post(
        "/rows:mutate", summary="Write a batch, all or nothing",
        openapi_extra=api.body(api.ref(BatchBody), api.EXAMPLE_BATCH, MSGPACK, NDJSON, ARROW) | api.headers(*api.WRITE_HEADERS),
        responses=_MUTATED, description=f"Content types: {', '.join(BATCH_TYPES)}. An Arrow stream holds rows to upsert.",
    )
    async def mutate(table: str, request: Request) -> Response:
        head, body = await whole_request(request, context)
        return to_response(await mutate_rows(context, head, decoded_part(table), body))

    @routes.post(
        row + ":check", summary="Write a batch if the row passes a check",
        openapi_extra=api.body(api.ref(CheckBody), _EXAMPLE_CHECK, MSGPACK) | api.headers(*api.WRITE_HEADERS),
        responses=_MUTATED,
    )
    async def check(table: str, key: str, request: Request) -> Response:
        head, body = await whole_request(request, context)
        return to_response(await check_row(context, head, decoded_part(table), key, body))

    @routes.put(
        row, summary="Write a whole row, new or over an old one", responses=_WRITTEN,
        openapi_extra=api.body(_ROW_SCHEMA, api.EXAMPLE_ROW, MSGPACK) | api.headers(*api.ROW_WRITE_HEADERS),
    )
    async def put(table: str, key: str, request: Request) -> Response:
        head, body = await whole_request(request, context)
        return to_response(await row_calls.put_row(context, head, decoded_part(table), key, body))

    @routes.patch(
        row, summary="Change some columns of a row that exists", responses=_WRITTEN,
        openapi_extra=api.body(_ROW_SCHEMA, {"delay_min": 4.0}, MSGPACK) | api.headers(*api.ROW_WRITE_HEADERS),
    )
    async def patch(table: str, key: str, request: Request) -> Response:
        head, body = await whole_request(request, context)
        return to_response(await row_calls.patch_row(context, head, decoded_part(table), key, body))

    @routes.delete(
        row, summary="Delete a row", responses=_WRITTEN, openapi_extra=api.headers(*api.ROW_WRITE_HEADERS),
        description="A row that is not there is deleted all the same; use If-Match: * to be told.",
    )
    async def delete(table: str, key: str, request: Request) -> Response:
        return to_response(await row_calls.delete_row(context, head_of(request), decoded_part(table), key))

    @routes.get(
        row, summary="Read a row", openapi_extra=api.headers("If-None-Match"),
        responses=api.answers({
            200: api.answer(RowAnswer, "the row", _SHOWN, MSGPACK, headers=_ETAG | STALE),
            304: {"description": "the row is still at a version that If-None-Match names"},
        }, 404, 406, 410, 421, 429, 503),
    )
    async def get(
        table: str, key: str, request: Request, columns: Columns = None, as_of: AsOf = None, stale: Stale = False
    ) -> Response:
        head = head_of(request)
        return to_response(await row_calls.get_row(context, head, decoded_part(table), key, columns, as_of, stale))

    return routes
