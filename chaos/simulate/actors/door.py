"""A gateway without its HTTP server: the requests of the product's client, answered by the product's own calls.

What always holds: what a request means and what an answer says is decided by the product (row_calls, batches, scans,
problems); only the paths are matched here, because the server that does so otherwise is left out. Requests that pass it:
twins/http_door.py.
"""

from __future__ import annotations

from urllib.parse import parse_qs

import msgspec

from gateway.api.api_context import ApiContext
from gateway.api.batches import check_row, mutate_rows
from gateway.api.bodies import encoded, shown_version
from gateway.api.documents import PageAnswer
from gateway.api.problems import Answer
from gateway.api.request import JSON, MSGPACK, Head, decoded_part, is_write_method, read_head, wanted_type
from gateway.api.row_calls import delete_row, get_row, patch_row, put_row
from gateway.api.scans import ScanParameters, plan_scan, read_page
from storage.rows.schema import to_public
from twinlog.errors import InvalidInput
from twinlog.wire.exchange import Reply, SiteRequest

ADDRESS = "http://a"  # of one site, and as long as the other one's
_OK = [(b"content-type", JSON.encode())]


async def answer(context: ApiContext, request: SiteRequest) -> Reply:
    """The reply to `request`; errors become problems."""
    try:
        found = await _dispatch(context, request)
    except Exception as error:
        found = context.problem(error, is_write=is_write_method(request.method))
    return Reply(found.status, {name.decode(): value.decode() for name, value in found.headers}, found.body)


async def _dispatch(context: ApiContext, request: SiteRequest) -> Answer:
    path, _, query = request.url[len(ADDRESS) :].partition("?")
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers.items()]
    head = read_head(request.method, path.encode(), headers)
    parts = path.split("/")[2:]  # behind /v1
    if parts[0] == "tables" and len(parts) >= 4 and parts[3]:
        return await _row(context, head, decoded_part(parts[1]), parts[3], query, request.content)
    if parts[0] == "tables" and len(parts) == 3:
        if parts[2] == "rows:mutate":
            return await mutate_rows(context, head, decoded_part(parts[1]), request.content)
        return await _scan(context, head, decoded_part(parts[1]), query)
    if parts[0] == "tables":
        return await _table(context, head, parts[1:], query, request.content)
    if parts[0] == "cluster":
        return _document(context.service.cluster.document())
    if parts[0] == "receipts":
        return _document(await context.service.rows.receipt(decoded_part(parts[1])))
    raise InvalidInput(f"the simulation has no path {path}")


async def _row(context: ApiContext, head: Head, table: str, key: str, query: str, body: bytes) -> Answer:
    if key.endswith(":check"):
        return await check_row(context, head, table, key.removesuffix(":check"), body)
    if head.method == "PUT":
        return await put_row(context, head, table, key, body)
    if head.method == "PATCH":
        return await patch_row(context, head, table, key, body)
    if head.method == "DELETE":
        return await delete_row(context, head, table, key)
    return await get_row(context, head, table, key, as_of=parse_qs(query).get("as_of", [None])[-1])


async def _scan(context: ApiContext, head: Head, table: str, query: str) -> Answer:
    every = parse_qs(query)
    asked = {name: values[-1] for name, values in every.items()}
    codec = context.codec(table)
    scan = plan_scan(codec, ScanParameters(
        asked.get("start"), asked.get("end"), every.get("where", ()), asked.get("columns"),
        limit=int(asked.get("limit", 1000)), page_token=asked.get("page_token"), as_of=asked.get("as_of"),
        reverse=asked.get("reverse") == "true", snapshot=asked.get("snapshot") == "true",
    ), stale=None)
    rows, token = await read_page(context, codec, scan)
    kind = wanted_type(head, (JSON, MSGPACK))
    decode = codec.decoder(scan.columns, native=kind == MSGPACK)
    versions = [shown_version(row.version, kind, head) for row in rows]
    return encoded(PageAnswer([decode(row.key, row.value) for row in rows], versions, token), kind)


async def _table(context: ApiContext, head: Head, names: list[str], query: str, body: bytes) -> Answer:
    """Schema changes."""
    if head.method == "POST":
        schema, created = await context.service.tables.create(msgspec.json.decode(body))
        return _document(to_public(schema), 201 if created else 200)
    if head.method == "PATCH":
        return _document(to_public(await context.service.tables.alter(names[0], msgspec.json.decode(body))))
    if head.method == "DELETE":
        await context.service.tables.drop(names[0], confirm=parse_qs(query).get("confirm", [None])[-1])
        return Answer(204, [], b"")
    return _document(to_public(context.service.tables.get(names[0])))


def _document(document: object, status: int = 200) -> Answer:
    return Answer(status, _OK, msgspec.json.encode(document))
