"""Scans over HTTP: a JSON (or msgpack) page, or a stream of rows: NDJSON lines, or Arrow batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated

import msgspec
import structlog
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.api_context import ApiContext
from gateway.api.bodies import VARY, encoded, shown_version
from gateway.api.documents import PageAnswer
from gateway.api.problems import Answer
from gateway.api.request import ARROW, JSON, MSGPACK, NDJSON, Head, decoded_part, wanted_type
from gateway.api.routes.common import SCHEMA, Int64, TableName, context_of, head_of, head_once_whole, to_response
from gateway.api.routes.rows import SHOWN_VARY, STALE, AsOf, Columns, Stale, Versions
from gateway.api.routes.streams import ClosedStream
from gateway.api.row_calls import moment_of_read, schema_header, stale_label
from gateway.api.scans import OFF_LOOP_ROWS, Scan, ScanParameters, end_scan, plan_scan, read_page, read_stream
from storage.engine import StoredRow
from storage.rows.arrow_out import ArrowOut
from storage.rows.codec import RowCodec
from twinlog.errors import InvalidInput, words

STREAMED = (NDJSON, ARROW)
SCAN_TYPES = (JSON, MSGPACK, *STREAMED)
_log = structlog.get_logger("gateway.api.scans")
_encode_lines = msgspec.json.Encoder().encode_lines
_WHERE = 'one condition or a list of them, as JSON; all must hold: [{"column": "delay_min", "op": ">", "value": 10}]'
_LIMIT = "the most rows; left out: 1000 in a page, all in a stream"
Bound = Annotated[str | None, Query(description="a key, or its leading parts, as in a path", examples=["UA"])]
Where = Annotated[list[str] | None, Query(description=_WHERE)]
Token = Annotated[str | None, Query(description="the next_page_token of the page before, with the same other parameters")]
PageToken = Annotated[str, Path(description="the next_page_token of the newest page")]
Reverse = Annotated[bool, Query(description="from the end, which is not included, back to the start, which is")]
AtOnce = Annotated[bool, Query(
    description="all pages are of the moment of the first; the site holds it for a minute behind each page, ten minutes at most"
)]
Limit = Annotated[int | None, Query(ge=1, description=_LIMIT)]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/tables/{table}", tags=["rows"], default_response_class=Response)
    ok = api.answer("a page, or a stream of rows", examples.PAGE, MSGPACK, headers=SHOWN_VARY | STALE | SCHEMA)
    ok["content"][NDJSON] = {"schema": {"type": "string"}, "example": examples.LINES}
    ok["content"][ARROW] = {"schema": {"type": "string", "format": "binary"}}

    @routes.get(
        "/rows", operation_id="scanRows",
        summary="Scan rows in key order: `start` included, `end` not", openapi_extra=api.headers("Accept"),
        responses=api.answers({200: ok}, 404, 406, 410, 421, 429, 503),
    )
    async def scan_rows(
        table: TableName, request: Request, start: Bound = None, end: Bound = None, where: Where = None,
        columns: Columns = None, limit: Limit = None, page_token: Token = None, as_of: AsOf = None, reverse: Reverse = False,
        stale: Stale = False, snapshot: AtOnce = False, versions: Versions = "string", int64: Int64 = "number",
    ) -> Response:
        context = context_of(request)
        head = head_of(request, versions, int64)
        kind = wanted_type(head, SCAN_TYPES)
        if limit is not None and limit > context.http.page_rows_max and kind not in STREAMED:
            rows_max = context.http.page_rows_max
            raise InvalidInput(
                f"limit is {limit}; the limit of this site is {rows_max} rows a page: follow next_page_token, "
                f"or ask for {' or '.join(STREAMED)}", parameter="limit", page_rows_max=rows_max,
            )
        codec = context.codec(decoded_part(table))
        asked = ScanParameters(start, end, where or (), columns, limit, page_token, as_of, reverse, snapshot)
        scan = plan_scan(codec, asked, moment_of_read(context) if stale else None)
        if kind in STREAMED:
            return await _stream(context, codec, scan, kind, head)
        return to_response(await _page(context, codec, scan, kind, head))

    @routes.delete(
        "/scans/{page_token}", operation_id="endScan", status_code=204,
        summary="End a scan with `snapshot=true` before its last page: the site lets its snapshot go at once",
        responses=api.answers({204: {"description": "no snapshot of this scan is held"}}, 400, 413, 415),
    )
    async def end(table: TableName, page_token: PageToken, request: Request) -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        end_scan(context, decoded_part(page_token))
        return Response(status_code=204)

    return routes


async def _page(context: ApiContext, codec: RowCodec, scan: Scan, kind: str, head: Head) -> Answer:
    rows, token = await read_page(context, codec, scan)
    codec = context.codec_behind(codec)
    labels = [VARY, schema_header(codec), *stale_label(context, scan.stale)]

    def encode() -> Answer:
        decode = codec.decoder(scan.columns, native=kind == MSGPACK, int64_text=head.int64_text)
        versions = [shown_version(row.version, kind, head) for row in rows]
        page = PageAnswer([decode(row.key, row.value) for row in rows], versions, token)
        return encoded(page, kind, *labels)

    return await asyncio.to_thread(encode) if len(rows) > OFF_LOOP_ROWS else encode()


class _Lines:
    """The pieces of a stream of NDJSON."""

    def __init__(self, codec: RowCodec, scan: Scan, head: Head) -> None:
        self._decode = codec.decoder(scan.columns, int64_text=head.int64_text)

    def part(self, rows: Sequence[StoredRow]) -> bytes:
        return _encode_lines([self._decode(row.key, row.value) for row in rows])

    def end(self) -> bytes:
        return b""


async def _stream(context: ApiContext, codec: RowCodec, scan: Scan, kind: str, head: Head) -> Response:
    """Streams rows. An error before the first chunk is a problem; a later one breaks the connection before the end."""
    chunks = read_stream(context, codec, scan)
    first: list[StoredRow] = await anext(chunks, [])
    codec = context.codec_behind(codec)
    pieces = ArrowOut(codec, scan.columns) if kind == ARROW else _Lines(codec, scan, head)
    response = ClosedStream(_parts(codec.schema.name, pieces, first, chunks), kind)
    response.raw_headers.extend([VARY, schema_header(codec), *stale_label(context, scan.stale)])
    return response


async def _parts(
    table: str, pieces: ArrowOut | _Lines, first: list[StoredRow], chunks: AsyncGenerator[list[StoredRow]]
) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(chunks):
            yield pieces.part(first)
            async for rows in chunks:
                yield await asyncio.to_thread(pieces.part, rows) if len(rows) > OFF_LOOP_ROWS else pieces.part(rows)
    except Exception as error:
        _log.warning("a scan ended early", table=table, error=words(error))
        raise
    yield pieces.end()
