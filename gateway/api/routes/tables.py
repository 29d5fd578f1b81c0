"""Tables: create, list, show, change, drop, restore."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.grants import ADMIN
from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.api_context import ApiContext
from gateway.api.bodies import decode_json_object, decoded
from gateway.api.documents import KeptTableDocument, TableBody, TableChange, TableList
from gateway.api.request import JSON, decoded_part, expect_type, request_mark
from gateway.api.routes.acts import act
from gateway.api.routes.common import (
    SCHEMA,
    Int64,
    TableName,
    caller_of,
    context_of,
    head_once_whole,
    json_answer,
    whole_request,
)
from gateway.api.row_calls import schema_header
from gateway.trail import events
from storage.log.record import RequestMark
from storage.rows.schema import TableDocument, TableSchema, name_before_drop, to_public

Confirm = Annotated[str | None, Query(
    description="the table's name once more: without it a table that holds rows is not dropped", examples=["flights"],
)]
Dropped = Annotated[bool, Query(description="show in `dropped` the tables that were dropped and can be restored, too")]
_WRITE_PROBLEMS = (400, 408, 413, 415, 421, 429, 503, 504)


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/tables", tags=["tables"], default_response_class=Response)

    @routes.post(
        "", operation_id="createTable", summary="Create a table", status_code=201,
        openapi_extra=api.body(api.ref(TableBody), examples.NEW_TABLE) | api.headers("Idempotency-Key"),
        responses=api.answers({
            201: api.answer("created", examples.TABLE),
            200: api.answer("an equal table exists already", examples.TABLE),
        }, 409, *_WRITE_PROBLEMS),
    )
    async def create_table(request: Request, int64: Int64 = "number") -> Response:
        context = context_of(request)
        body, mark = await _change(request, context)
        name = body.get("name")
        if isinstance(name, str):  # another one is refused by the table's own check
            caller_of(request).require(ADMIN, name)
        async with act(request, events.CREATE, {"table": name, "change": body}) as ended:
            schema, created = await context.service.tables.create(body, mark)
            ended["created"] = created
        return json_answer(_shown(schema, int64), 201 if created else 200)

    @routes.get(
        "", operation_id="listTables", summary="List the tables that the caller may know of",
        responses=api.answers({200: api.answer("all, by name", examples.TABLES)}, 503),
    )
    async def list_tables(request: Request, dropped: Dropped = False, int64: Int64 = "number") -> Response:
        context, caller = context_of(request), caller_of(request)
        shown = TableList([_shown(schema, int64) for schema in context.service.tables.all() if caller.knows(schema.name)])
        if dropped:
            kept = context.service.tables.dropped()
            shown.dropped = [
                _kept(table, until_ms, int64) for table, until_ms in kept if caller.knows(name_before_drop(table.name))
            ]
        return json_answer(shown)

    @routes.get(
        "/{table}", operation_id="getTable", summary="Show a table",
        responses=api.answers({200: api.answer("the table", examples.TABLE, headers=SCHEMA)}, 404, 421, 503),
    )
    async def get_table(request: Request, table: TableName, int64: Int64 = "number") -> Response:
        codec = context_of(request).codec(decoded_part(table))
        return json_answer(_shown(codec.schema, int64), 200, schema_header(codec))

    @routes.patch(
        "/{table}", operation_id="alterTable", summary="Add, drop or rename columns; change replication or history",
        openapi_extra=api.body(api.ref(TableChange), examples.TABLE_CHANGE) | api.headers("Idempotency-Key"),
        responses=api.answers({200: api.answer("the table as it is now", examples.TABLE)}, 404, 409, *_WRITE_PROBLEMS),
    )
    async def alter_table(table: TableName, request: Request, int64: Int64 = "number") -> Response:
        context = context_of(request)
        changes, mark = await _change(request, context)
        name = decoded_part(table)
        async with act(request, events.ALTER, {"table": name, "change": changes}):
            schema = await context.service.tables.alter(name, changes, mark)
        return json_answer(_shown(schema, int64))

    @routes.delete(
        "/{table}", operation_id="dropTable",
        summary="Drop a table; with its rows only if `confirm` names it", status_code=204,
        openapi_extra=api.headers("Idempotency-Key"),
        responses=api.answers({204: {"description": "dropped"}}, 404, 409, *_WRITE_PROBLEMS),
    )
    async def drop_table(table: TableName, request: Request, confirm: Confirm = None) -> Response:
        context = context_of(request)
        head = await head_once_whole(request, context)
        name, said = decoded_part(table), {} if confirm is None else {"confirm": confirm}
        async with act(request, events.DROP, {"table": name, **said}):
            await context.service.tables.drop(name, request_mark(head, b""), confirm)
        return Response(status_code=204)

    @routes.post(
        "/{table}:restore", operation_id="restoreTable",
        summary="Restore a dropped table and its rows, as long as they are kept", openapi_extra=api.headers("Idempotency-Key"),
        responses=api.answers({200: api.answer("the table as it is now", examples.TABLE)}, 404, 409, *_WRITE_PROBLEMS),
    )
    async def restore_table(table: TableName, request: Request, int64: Int64 = "number") -> Response:
        context = context_of(request)
        head = await head_once_whole(request, context)
        name = decoded_part(table)
        async with act(request, events.RESTORE, {"table": name}):
            schema = await context.service.tables.restore(name, request_mark(head, b""))
        return json_answer(_shown(schema, int64))

    return routes


def _shown(schema: TableSchema, int64: str) -> TableDocument:
    return to_public(schema, int64_text=int64 == "string")


def _kept(table: TableSchema, until_ms: int, int64: str) -> KeptTableDocument:
    shown, (dropped_at, kept_until) = _shown(table, int64), (
        datetime.fromtimestamp(ms / 1000, UTC) for ms in (table.dropped_ms or 0, until_ms)
    )
    return KeptTableDocument(
        name_before_drop(table.name), table.name, dropped_at, kept_until, shown.columns, shown.primary_key
    )


async def _change(request: Request, context: ApiContext) -> tuple[dict[str, Any], RequestMark | None]:
    """Returns the body, which must be a JSON object, and the mark that the idempotency key leaves in the log."""
    head, body = await whole_request(request, context)
    expect_type(head, (JSON,))
    return decoded(decode_json_object, body), request_mark(head, body)
