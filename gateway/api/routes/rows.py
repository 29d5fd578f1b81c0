"""Rows: the plain routes beside the hot path, batches, check-and-mutate. Keys stay percent-encoded up to their codec."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples, row_calls
from gateway.api import openapi as api
from gateway.api.batches import BATCH_TYPES, check_row, mutate_rows
from gateway.api.documents import BatchBody, CheckBody
from gateway.api.request import ARROW, MSGPACK, NDJSON, decoded_part
from gateway.api.routes.common import (
    SCHEMA,
    Int64,
    RowKey,
    TableName,
    context_of,
    head_of,
    head_once_whole,
    to_response,
    whole_batch,
    whole_request,
)

_ROW_SCHEMA = {"type": "object", "description": "column -> value; key columns may be left out, they stand in the path"}
_PROBLEMS = (400, 404, 406, 408, 409, 412, 413, 415, 421, 429, 503, 504)
_ETAG = {"ETag": "the version in quotes"}
_TAG = {"ETag": "the version, and a mark for any form but the whole row as JSON by the table's first columns, in quotes"}
SHOWN_VARY = {"Vary": "Accept"}
_WRITTEN = api.answers({200: api.answer("acknowledged", examples.WRITTEN, MSGPACK, headers=_ETAG)}, *_PROBLEMS)
_MUTATED = api.answers({200: api.answer("all acknowledged", examples.MUTATED, MSGPACK, headers=_ETAG)}, *_PROBLEMS)
STALE = {"Twinlog-Stale": "seconds behind, or unknown"}
AsOf = Annotated[str | None, Query(
    description="a version, or an RFC 3339 time: the row as it was then", examples=["2013-01-01T05:00:00Z"]
)]
Stale = Annotated[bool, Query(description="also a standby may answer; it says how far behind it is in Twinlog-Stale (seconds)")]
Versions = Annotated[Literal["string", "number"], Query(
    description="versions in JSON as decimal text, or as numbers, which JavaScript reads wrongly above 2^53"
)]
Columns = Annotated[str | None, Query(description="names joined by commas; left out: all", examples=["carrier,delay_min"])]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/tables/{table}", tags=["rows"], default_response_class=Response)
    row = "/rows/{key:path}"

    @routes.post(
        "/rows:mutate", operation_id="mutateRows", summary="Write a batch, all or nothing",
        openapi_extra=api.body(
            api.ref(BatchBody), examples.BATCH, MSGPACK, ARROW, lines=(NDJSON, examples.BATCH_LINES)
        ) | api.headers(*api.WRITE_HEADERS),
        responses=_MUTATED, description=f"Content types: {', '.join(BATCH_TYPES)}. An Arrow stream holds rows to upsert.",
    )
    async def mutate(table: TableName, request: Request, versions: Versions = "string") -> Response:
        context = context_of(request)
        head, body = await whole_batch(request, context, versions)
        return to_response(await mutate_rows(context, head, decoded_part(table), body))

    @routes.post(
        row + ":check", operation_id="checkAndMutateRow", summary="Write a batch if the row passes a check",
        openapi_extra=api.body(api.ref(CheckBody), examples.CHECK, MSGPACK) | api.headers(*api.WRITE_HEADERS),
        responses=_MUTATED,
    )
    async def check(table: TableName, key: RowKey, request: Request, versions: Versions = "string") -> Response:
        context = context_of(request)
        head, body = await whole_batch(request, context, versions)
        return to_response(await check_row(context, head, decoded_part(table), key, body))

    @routes.put(
        row, operation_id="putRow", summary="Write a whole row, new or over an old one", responses=_WRITTEN,
        openapi_extra=api.body(_ROW_SCHEMA, examples.ROW, MSGPACK) | api.headers(*api.ROW_WRITE_HEADERS),
    )
    async def put(table: TableName, key: RowKey, request: Request, versions: Versions = "string") -> Response:
        context = context_of(request)
        head, body = await whole_request(request, context, versions)
        return to_response(await row_calls.put_row(context, head, decoded_part(table), key, body))

    @routes.patch(
        row, operation_id="patchRow", summary="Change some columns of a row that exists", responses=_WRITTEN,
        openapi_extra=api.body(_ROW_SCHEMA, examples.SOME_COLUMNS, MSGPACK) | api.headers(*api.ROW_WRITE_HEADERS),
    )
    async def patch(table: TableName, key: RowKey, request: Request, versions: Versions = "string") -> Response:
        context = context_of(request)
        head, body = await whole_request(request, context, versions)
        return to_response(await row_calls.patch_row(context, head, decoded_part(table), key, body))

    @routes.delete(
        row, operation_id="deleteRow",
        summary="Delete a row", responses=_WRITTEN, openapi_extra=api.headers(*api.ROW_WRITE_HEADERS),
        description="Deletes also a row that is absent; with If-Match: * an absent row is 412.",
    )
    async def delete(table: TableName, key: RowKey, request: Request, versions: Versions = "string") -> Response:
        context = context_of(request)
        head = await head_once_whole(request, context, versions)
        return to_response(await row_calls.delete_row(context, head, decoded_part(table), key))

    @routes.get(
        row, operation_id="getRow", summary="Read a row", openapi_extra=api.headers("If-Match", "If-None-Match", "Accept"),
        responses=api.answers({
            200: api.answer("the row", examples.ROW_READ, MSGPACK, headers=_TAG | SHOWN_VARY | STALE | SCHEMA),
            304: {"description": "If-None-Match names the ETag that the row still has in this form"},
        }, 404, 406, 410, 412, 421, 429, 503),
    )
    async def get(
        table: TableName, key: RowKey, request: Request, columns: Columns = None, as_of: AsOf = None, stale: Stale = False,
        versions: Versions = "string", int64: Int64 = "number",
    ) -> Response:
        head = head_of(request, versions, int64)
        return to_response(await row_calls.get_row(context_of(request), head, decoded_part(table), key, columns, as_of, stale))

    return routes
