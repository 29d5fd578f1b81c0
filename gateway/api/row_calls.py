"""One row over HTTP: put, change, delete, read, check-and-mutate. The hot path and the plain routes both end here.

What always holds: a write's answer carries its version as ETag; a read is of the version in its ETag, says that it depends on
Accept, and names its schema in `Twinlog-Schema`; an answer that may be behind says so in `Twinlog-Stale`; a write that is sent
again gets its first answer, also when its table has changed since and would not take it any more. Source: product.md section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from gateway.api.api_context import ApiContext
from gateway.api.bodies import VARY, decoded_object, encoded, shown_version
from gateway.api.content_coding import VARY_CODING
from gateway.api.documents import RowAnswer, WriteAnswer
from gateway.api.entity_tags import etag, is_matched, known_tag, representation, row_conditions, unmatched
from gateway.api.problems import Answer
from gateway.api.request import (
    JSON,
    MSGPACK,
    Head,
    column_list,
    expect_type,
    point_in_time,
    wanted_type,
)
from gateway.service.port import Mutation, WriteResult
from storage.rows.codec import RowCodec
from twinlog.errors import InvalidInput, NotFound, PreconditionFailed

STALE_HEADER = b"twinlog-stale"
Label = Callable[[], list[tuple[bytes, bytes]]]
SCHEMA_HEADER = b"twinlog-schema"
ROW_TYPES = (JSON, MSGPACK)


async def put_row(context: ApiContext, head: Head, table: str, key_path: str, body: bytes) -> Answer:
    """Writes the whole row that `body` holds. `key_path` is as it stands in the request line, percent-encoded."""
    kind = expect_type(head, ROW_TYPES)
    answer_type = wanted_type(head, ROW_TYPES)
    try:
        codec = context.codec(table)
        key, value = codec.encode_row_at(key_path, decoded_object(body, kind), native=kind == MSGPACK)
    except (InvalidInput, NotFound) as error:
        return write_answer(await context.repeated(head, body, error), answer_type, head)
    result = await context.write(codec.schema, head, body, (Mutation("upsert", key, value),), row_conditions(head, key))
    return write_answer(result, answer_type, head)


async def patch_row(context: ApiContext, head: Head, table: str, key_path: str, body: bytes) -> Answer:
    """Changes the columns that `body` holds. Raises NotFound when there is no such row."""
    kind = expect_type(head, ROW_TYPES)
    answer_type = wanted_type(head, ROW_TYPES)
    try:
        codec = context.codec(table)
        key, changes = codec.encode_changes_at(key_path, decoded_object(body, kind), native=kind == MSGPACK)
    except (InvalidInput, NotFound) as error:
        return write_answer(await context.repeated(head, body, error), answer_type, head)
    result = await context.write(codec.schema, head, body, (Mutation("update", key, changes),), row_conditions(head, key))
    return write_answer(result, answer_type, head)


async def delete_row(context: ApiContext, head: Head, table: str, key_path: str) -> Answer:
    """Deletes the row; an absent row is no error, unless a condition makes it one."""
    answer_type = wanted_type(head, ROW_TYPES)
    try:
        codec = context.codec(table)
        key = codec.keys.key_from_path(key_path)
    except (InvalidInput, NotFound) as error:
        return write_answer(await context.repeated(head, b"", error), answer_type, head)
    result = await context.write(codec.schema, head, b"", (Mutation("delete", key),), row_conditions(head, key))
    return write_answer(result, answer_type, head)


async def get_row(
    context: ApiContext, head: Head, table: str, key_path: str, columns: str | None = None, as_of: str | None = None,
    stale: bool = False,
) -> Answer:
    """Returns the row, or 304 when If-None-Match names what would be sent. Raises NotFound, PreconditionFailed by If-Match."""
    answer_type = wanted_type(head, ROW_TYPES)
    codec = context.codec(table)
    key = codec.keys.key_from_path(key_path)
    decode = codec.decoder(column_list(columns), native=answer_type == MSGPACK, int64_text=head.int64_text)
    label = stale_label(context, stale)
    row = await context.read(codec.schema, key, point_in_time(as_of), stale)
    if row is None:
        raise NotFound(f"table {table!r} has no row with the key {key_path[:200]}", table=table, key=key_path[:200])
    if head.if_match is not None and not is_matched(head, row.version):
        raise PreconditionFailed(unmatched(head.if_match), key=key_path[:200], version=row.version)
    tag = etag(row.version, representation(codec, answer_type, columns, head.number_versions, head.int64_text))
    headers = [(b"etag", tag), VARY, schema_header(codec), *label()]
    if (known := known_tag(head, tag)) is not None:
        return Answer(304, [(b"etag", known), VARY_CODING, *headers[1:]], b"")
    version = shown_version(row.version, answer_type, head)
    return encoded(RowAnswer(decode(row.key, row.value), version), answer_type, *headers)


def write_answer(result: WriteResult, answer_type: str, head: Head) -> Answer:
    version = shown_version(result.version, answer_type, head)
    answer = WriteAnswer(version, result.receipt, result.mode)
    return encoded(answer, answer_type, (b"etag", etag(result.version)))


def schema_header(codec: RowCodec) -> tuple[bytes, bytes]:
    """Returns the name of the very schema that the rows of an answer were made with, so that nobody reads them by another."""
    return SCHEMA_HEADER, codec.fingerprint


def stale_label(context: ApiContext, stale: bool) -> Label:
    """Begins before a read, which may take its time: returns the function that labels what it read, if `stale` and a standby
    answers, with how many seconds it is behind at most."""
    if not stale or context.service.cluster.role() != "STANDBY":
        return list
    lag_s, began_s = context.service.cluster.replication_lag_s(), context.now_s()

    def label() -> list[tuple[bytes, bytes]]:
        behind = b"unknown" if lag_s is None else b"%.3f" % (ceil((lag_s + context.now_s() - began_s) * 1000) / 1000)
        return [(STALE_HEADER, behind)]

    return label
