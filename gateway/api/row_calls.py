"""One row over HTTP: put, change, delete, read, check-and-mutate. The hot path and the plain routes both end here.

What always holds: a write's answer carries its version as ETag; a read is of the version in its ETag, says that it depends on
Accept, and names its schema in `Twinlog-Schema`; an answer that may be behind, also that there is no such row, says so in
`Twinlog-Stale`; a write that is sent again gets its first answer, also when its table has changed since and would not take it
any more. Source: product.md section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from twinlog.errors import InvalidInput, NotFound, PreconditionFailed, TwinlogError

SCHEMA_HEADER = b"twinlog-schema"
STALE_HEADER = b"twinlog-stale"
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
    """Returns the row, 304 when If-None-Match names what would be sent, 404, or 412 by If-Match. Raises NotFound (table)."""
    answer_type = wanted_type(head, ROW_TYPES)
    codec = context.codec(table)
    key = codec.keys.key_from_path(key_path)
    shown = column_list(columns)
    decode = codec.decoder(shown, native=answer_type == MSGPACK, int64_text=head.int64_text)
    moment = moment_of_read(context) if stale else None
    row = await context.read(codec.schema, key, point_in_time(as_of), moment is not None, head.span)
    if (behind := context.codec_behind(codec)) is not codec:
        codec, decode = behind, behind.decoder(shown, native=answer_type == MSGPACK, int64_text=head.int64_text)
    label = stale_label(context, moment)
    if row is None or (head.if_match is not None and not is_matched(head, row.version)):
        answer = context.problem(_unread(head, table, key_path[:200], row), is_write=False)
        return answer._replace(headers=[*answer.headers, *label])
    tag = etag(row.version, representation(codec, answer_type, columns, head.number_versions, head.int64_text))
    headers = [(b"etag", tag), VARY, schema_header(codec), *label]
    if (known := known_tag(head, tag)) is not None:
        return Answer(304, [(b"etag", known), VARY_CODING, *headers[1:]], b"")
    version = shown_version(row.version, answer_type, head)
    return encoded(RowAnswer(decode(row.key, row.value), version), answer_type, *headers)


def _unread(head: Head, table: str, key: str, row: StoredRow | None) -> TwinlogError:
    if row is None:
        return NotFound(f"table {table!r} has no row with the key {key}", table=table, key=key)
    return PreconditionFailed(unmatched(head.if_match or ""), key=key, version=row.version)


def write_answer(result: WriteResult, answer_type: str, head: Head) -> Answer:
    version = shown_version(result.version, answer_type, head)
    answer = WriteAnswer(version, result.receipt, result.mode)
    return encoded(answer, answer_type, (b"etag", etag(result.version)))


def schema_header(codec: RowCodec) -> tuple[bytes, bytes]:
    """Returns the name of the very schema that the rows of an answer were made with, so that nobody reads them by another."""
    return SCHEMA_HEADER, codec.fingerprint


@dataclass(frozen=True, slots=True)
class Moment:
    """The moment of a read at a standby, by the site's own clock: no write that was acknowledged before is missing in it.
    None: unknown. `is_kept`: the read is of a snapshot of then, and not of what the storage holds now."""

    vouched_s: float | None
    is_kept: bool = False


def moment_of_read(context: ApiContext) -> Moment | None:
    """Returns the moment of a read that begins now, at a standby. None: another role answers, and only by its lease, also if
    the site becomes a standby before the read ends."""
    cluster = context.service.cluster
    return Moment(cluster.vouched_s()) if cluster.role() == "STANDBY" else None


def stale_label(context: ApiContext, moment: Moment | None) -> list[tuple[bytes, bytes]]:
    """Returns the header of what has been read by now, with how many seconds it is behind at most; none: it is not stale.

    A storage that was opened anew meanwhile, or a role that changed, may hold less than it did: the age is unknown.
    """
    if moment is None:
        return []
    cluster = context.service.cluster
    if moment.vouched_s is None or (not moment.is_kept and cluster.vouched_s() is None):
        return [(STALE_HEADER, b"unknown")]
    return [(STALE_HEADER, b"%.3f" % (ceil(cluster.age_s(moment.vouched_s) * 1000) / 1000))]
