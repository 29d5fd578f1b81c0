"""Scans: pages and streams of rows in key order, filtered, in bounded pieces.

What always holds: at most `page_rows_max` rows and about `PAGE_BYTES` in a page, at most `EXAMINED_ROWS_MAX` rows looked at
for it, about `CHUNK_BYTES` read from the engine at a time; a page token continues exactly the query that it came from, or is
refused. `start` is included and `end` is not, also in reverse, which begins at the end. Pages and chunks are read one after
the other: a row written meanwhile may or may not be there; with `as_of` all are of one moment, and with `snapshot` of that at
which the scan began, its columns too: a page behind a change of the table is refused.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import msgspec

from gateway.api.api_context import ApiContext
from gateway.api.request import column_list, point_in_time
from gateway.api.row_calls import Moment
from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from storage.rows.predicates import Predicate, compile_predicates
from twinlog.decoding import decoded
from twinlog.errors import HistoryNotHeld, InvalidInput

PAGE_ROWS_DEFAULT = 1000
PAGE_BYTES = 16 << 20
EXAMINED_ROWS_MAX = 200_000
CHUNK_BYTES = 4 << 20
FIRST_CHUNK_ROWS = 128
CHUNK_ROWS_MAX = 8192
OFF_LOOP_ROWS = 500
_TOKEN_FORMAT = 4
_Moment = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]  # seconds by the site's own clock, and no infinity
_decode_place = msgspec.msgpack.Decoder(tuple[int, bytes, bytes, str, bytes, _Moment | None]).decode


@dataclass(frozen=True, slots=True)
class Scan:
    """One query. `limit` None: all rows (streams only). `digest` is the query that page tokens are bound to."""

    start: bytes | None
    end: bytes | None
    reverse: bool
    limit: int | None
    columns: list[str] | None
    as_of: int | None
    stale: Moment | None  # None: no standby answers, and none of its rows may be stale
    matches: Predicate | None
    digest: bytes
    snapshot: str | None = None  # an empty text: one that is to be opened
    schema: bytes = b""  # the name of the schema that the rows are made with


@dataclass(frozen=True, slots=True)
class ScanParameters:
    """The parameters of a scan as the client sent them."""

    start: str | None = None
    end: str | None = None
    where: Sequence[str] = ()
    columns: str | None = None
    limit: int | None = None
    page_token: str | None = None
    as_of: str | None = None
    reverse: bool = False
    snapshot: bool = False


def plan_scan(codec: RowCodec, asked: ScanParameters, stale: Moment | None) -> Scan:
    """Returns the scan that the parameters ask for, whose rows are of the moment `stale`, or of that of its first page.

    Raises InvalidInput that names the parameter.
    """
    keys = codec.keys
    start = keys.prefix_from_path(asked.start) if asked.start is not None else None
    end = keys.prefix_from_path(asked.end) if asked.end is not None else None
    columns = column_list(asked.columns)
    codec.decoder(columns)  # refuses an unknown one
    if asked.snapshot and asked.as_of is not None:
        raise InvalidInput("as_of and snapshot both name a moment: leave one of them out", parameter="snapshot")
    shape = (list(asked.where), asked.columns, asked.as_of, asked.reverse, asked.snapshot)
    query = (codec.schema.id, asked.start, asked.end, *shape)
    snapshot = "" if asked.snapshot else None
    digest = hashlib.blake2b(msgspec.msgpack.encode(query), digest_size=8).digest()
    if asked.page_token is not None:
        last, held, schema, vouched_s = _read_token(asked.page_token, digest)
        if asked.snapshot:
            snapshot, stale = held, stale and Moment(vouched_s, is_kept=True)
        if asked.snapshot and schema != codec.fingerprint:
            raise HistoryNotHeld(
                f"the columns of table {codec.schema.name!r} have changed since this scan with snapshot=true began: begin the "
                "scan anew, without page_token", table=codec.schema.name,
            )
        start, end = (start, last) if asked.reverse else (last + b"\0", end)
    as_of, matches = point_in_time(asked.as_of), _filter(codec, asked.where)
    return Scan(
        start, end, asked.reverse, asked.limit, columns, as_of, stale, matches, digest, snapshot, codec.fingerprint
    )


def _filter(codec: RowCodec, texts: Sequence[str]) -> Predicate | None:
    """Returns all predicates of all `where` parameters; each holds one, or a list of them, as JSON."""
    predicates: list[Any] = []
    for text in texts:
        sent = decoded(msgspec.json.decode, text, lambda what: InvalidInput(
            f'where is no JSON ({what}); write for example where=[{{"column":"delay_min","op":">","value":10}}]',
            parameter="where",
        ))
        predicates.extend(sent if isinstance(sent, list) else [sent])
    return compile_predicates(codec, predicates) if predicates else None


def page_token(scan: Scan, last: bytes) -> str:
    vouched_s = scan.stale and scan.stale.vouched_s
    packed = msgspec.msgpack.encode((_TOKEN_FORMAT, scan.digest, last, scan.snapshot or "", scan.schema, vouched_s))
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _read_token(text: str, digest: bytes) -> tuple[bytes, str, bytes, float | None]:
    """Returns the last key of the page before, its snapshot, the schema of its rows, and the moment that they are of."""
    token_format, bound_to, last, snapshot, schema, vouched_s = _unpacked(text)
    if token_format != _TOKEN_FORMAT or bound_to != digest:
        raise InvalidInput(
            "page_token belongs to another table or query: send the same parameters with it, or leave it out to begin anew",
            parameter="page_token",
        )
    return last, snapshot, schema, vouched_s


def _unpacked(text: str) -> tuple[int, bytes, bytes, str, bytes, float | None]:
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return decoded(_decode_place, packed, ValueError)
    except ValueError as error:  # binascii's too
        raise InvalidInput(
            "page_token is not one of this site: send the next_page_token of the page before, or none to begin anew",
            parameter="page_token",
        ) from error


def end_scan(context: ApiContext, token: str) -> None:
    """Lets the snapshot of the token's scan go, if it has one that is there. Raises InvalidInput."""
    _, _, _, snapshot, _, _ = _unpacked(token)
    context.service.rows.release_snapshot(snapshot)


async def opened(context: ApiContext, scan: Scan) -> Scan:
    """Returns `scan` with its snapshot, if it asks for one. Raises Overloaded."""
    if scan.snapshot != "":
        return scan
    return replace(scan, snapshot=await context.service.rows.open_snapshot(scan.stale is not None))


async def read_page(context: ApiContext, codec: RowCodec, scan: Scan) -> tuple[list[StoredRow], str | None]:
    """Returns (rows, the token of the next page or None at the end). The snapshot ends with the last page."""
    scan = await opened(context, scan)
    rows, token = await _read_page(context, codec, scan)
    if token is None and scan.snapshot:
        context.service.rows.release_snapshot(scan.snapshot)
    return rows, token


async def _read_page(context: ApiContext, codec: RowCodec, scan: Scan) -> tuple[list[StoredRow], str | None]:
    limit = min(scan.limit or PAGE_ROWS_DEFAULT, context.http.page_rows_max)
    found: list[StoredRow] = []
    size = examined = 0
    async for chunk in _chunks(context, codec, scan, limit + 1):
        examined += len(chunk.read)
        for row in chunk.matching:
            if len(found) == limit or size >= PAGE_BYTES:
                return found, page_token(scan, found[-1].key)
            found.append(row)
            size += len(row.key) + len(row.value)
        if examined >= EXAMINED_ROWS_MAX and chunk.more:
            return found, page_token(scan, chunk.read[-1].key)
    return found, None


async def read_stream(context: ApiContext, codec: RowCodec, scan: Scan) -> AsyncGenerator[list[StoredRow]]:
    """Yields all rows of the scan up to its limit, in chunks."""
    left = scan.limit
    scan = await opened(context, scan)
    try:
        async for chunk in _chunks(context, codec, scan, left):
            rows = chunk.matching if left is None else chunk.matching[:left]
            if rows:
                yield rows
            if left is not None:
                left -= len(rows)
                if left == 0:
                    return
    finally:
        if scan.snapshot:
            context.service.rows.release_snapshot(scan.snapshot)


@dataclass(frozen=True, slots=True)
class _Chunk:
    read: Sequence[StoredRow]
    matching: list[StoredRow]
    more: bool


async def _chunks(context: ApiContext, codec: RowCodec, scan: Scan, wanted: int | None) -> AsyncIterator[_Chunk]:
    """Yields the range in pieces, whose size follows that of the rows. `wanted`: no more rows than that are of use."""
    start, end = scan.start, scan.end
    rows_asked = FIRST_CHUNK_ROWS
    while True:
        if wanted is not None and scan.matches is None:
            rows_asked = min(rows_asked, wanted)
        rows = await context.service.rows.scan(
            codec.schema, start, end, reverse=scan.reverse, limit=rows_asked, as_of=scan.as_of,
            stale=scan.stale is not None, snapshot=scan.snapshot,
        )
        matching = list(rows) if scan.matches is None else await _matching(rows, scan.matches)
        more = len(rows) == rows_asked
        yield _Chunk(rows, matching, more)
        if not more:
            return
        if wanted is not None:
            wanted -= len(matching)
            if wanted <= 0:
                return
        last = rows[-1].key
        start, end = (start, last) if scan.reverse else (last + b"\0", end)
        row_bytes = sum(len(row.key) + len(row.value) for row in rows) // len(rows) + 1
        rows_asked = max(1, min(CHUNK_ROWS_MAX, CHUNK_BYTES // row_bytes))


async def _matching(rows: Sequence[StoredRow], matches: Predicate) -> list[StoredRow]:
    def select() -> list[StoredRow]:
        return [row for row in rows if matches(row)]

    return await asyncio.to_thread(select) if len(rows) > OFF_LOOP_ROWS else select()
