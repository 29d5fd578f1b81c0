"""Reads what a request says besides its body: content type, idempotency key, deadline, time to read at.

What always holds: the hot path and the plain routes read requests with these functions and no others; whatever a header or
parameter says wrongly is an InvalidInput that names it and what would be right. Source: product.md section 2.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from io import BytesIO
from typing import Any
from urllib.parse import unquote

import msgspec
from starlette.exceptions import HTTPException

from gateway.api.body_budget import SMALL_BODY_BYTES, BodyHold
from gateway.service.http_settings import HttpSettings
from storage.log.frame import COUNTER_BITS
from storage.log.record import RequestMark
from storage.tracing import Span
from twinlog.decoding import decoded, or_none
from twinlog.errors import InvalidInput, MalformedBody, TooLarge

JSON = "application/json"
NDJSON = "application/x-ndjson"
MSGPACK = "application/x-msgpack"
ARROW = "application/vnd.apache.arrow.stream"
DEADLINE_HEADER = "twinlog-deadline-s"
IDEMPOTENCY_KEY_LENGTH_MAX = 128
FOLLOW = "twinlog.follow"  # in the scope of a request: called with True where a stream of events begins, False where it ends
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
VERSION_DIGITS_MAX = 20
VERSION_MAX = (1 << 63) - 1  # what a database's bigint holds: the year 6429
Canonical = Callable[[str, bytes], Iterable[bytes]]  # content type, body: the parts of what it says
_sorted = msgspec.msgpack.Encoder(order="sorted").encode
_BODY_STEP_BYTES = 256 << 10  # a body of unknown length is counted in such steps


class Head(msgspec.Struct):
    """One request without its body. `path` is as it stands in the request line, without the query."""

    method: str
    path: bytes
    content_type: str = ""  # none is sent
    content_encoding: str = ""
    accept: str = ""
    accept_encoding: str = ""
    if_match: str | None = None
    if_none_match: str | None = None
    idempotency_key: str | None = None
    deadline: str | None = None
    content_length: int | None = None
    host: bytes | None = None  # empty where it is sent twice
    authorization: bytes | None = None
    is_of_page: bool = False  # a browser names the page's origin
    is_coded: bool = False  # sent with a Transfer-Encoding
    twice: str = ""  # a header that has one value and is sent twice
    number_versions: bool = False  # ?versions=number
    int64_text: bool = False  # ?int64=string
    span: Span | None = None  # of a request that is traced


def read_head(method: str, path: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Head:
    """Reads the headers, whose names are in lower case. Of repeated ones, Accept, encodings and conditions are joined; one that
    has a single value is named by `twice`."""
    head = Head(method, path)
    for name, value in headers:
        if name == b"content-type":
            if head.content_type:
                head.twice = "Content-Type"
            head.content_type = value.decode("latin-1").partition(";")[0].strip().lower()
        elif name == b"content-length":
            head.content_length = int(value)
        elif name == b"host":
            head.host = value if head.host is None else b""
        elif name == b"authorization":
            if head.authorization is not None:
                head.twice = "Authorization"
            head.authorization = value
        elif name == b"origin":
            head.is_of_page = True
        elif name == b"accept":
            head.accept = _joined(head.accept or None, value)
        elif name == b"accept-encoding":
            head.accept_encoding = _joined(head.accept_encoding or None, value)
        elif name == b"content-encoding":
            head.content_encoding = _joined(head.content_encoding or None, value)
        elif name == b"transfer-encoding":
            head.is_coded = True
        elif name == b"idempotency-key":
            if head.idempotency_key is not None:
                head.twice = "Idempotency-Key"
            head.idempotency_key = value.decode("latin-1")
        elif name == b"if-match":
            head.if_match = _joined(head.if_match, value)
        elif name == b"if-none-match":
            head.if_none_match = _joined(head.if_none_match, value)
        elif name == b"twinlog-deadline-s":
            if head.deadline is not None:
                head.twice = "Twinlog-Deadline-S"
            head.deadline = value.decode("latin-1")
    return head


def is_write_method(method: str) -> bool:
    return method not in ("GET", "HEAD", "OPTIONS")


def decoded_part(text: str) -> str:
    """Returns one part of a path, percent-decoded."""
    return unquote(text) if "%" in text else text


def _joined(before: str | None, value: bytes) -> str:
    text = value.decode("latin-1")
    return text if before is None else f"{before},{text}"


async def read_body(receive: Any, length: int | None, bytes_max: int, hold: BodyHold) -> bytes:
    """Returns the whole body. Raises TooLarge (before it reads, where the length is given), MalformedBody when it ends early,
    Overloaded when `hold` gets no room for it: nothing is read then.

    The server's protocol ends a slow body.
    """
    if length is not None and length > bytes_max:
        raise body_too_large(bytes_max)
    counted = SMALL_BODY_BYTES
    if length is not None and length > counted:
        await hold.take(length)
        counted = length
    body, size = BytesIO(), 0
    async with hold:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise MalformedBody("the body ended before its length: send the whole request again")
            part: bytes = message.get("body", b"")
            size += len(part)
            if size > bytes_max:
                raise body_too_large(bytes_max)
            if size > counted:
                step = max(size - counted, _BODY_STEP_BYTES)
                await hold.take(step)
                counted += step
            more = message.get("more_body", False)
            if not more and size == len(part):
                return part
            body.write(part)
            if not more:
                return body.getvalue()


def body_too_large(bytes_max: int) -> TooLarge:
    return TooLarge(
        f"the body is longer than {bytes_max} bytes, the limit here: send less in one request", body_bytes_max=bytes_max
    )


def deadline_s(head: Head, config: HttpSettings) -> float:
    """Returns how long this request may take, in seconds: its header, at most the site's limit, or the site's default."""
    if head.deadline is None:
        return config.request_deadline_s
    try:
        given_s = float(head.deadline)
    except ValueError:
        given_s = math.nan
    if not 0 < given_s < math.inf:
        raise InvalidInput(f"Twinlog-Deadline-S is {head.deadline[:40]!r}: it must be a number of seconds above 0")
    return min(given_s, config.request_deadline_max_s)


def canonical_document(content_type: str, body: bytes) -> Iterable[bytes]:
    """Yields what a body says, whatever the order of its members. What cannot be read, or is no JSON or msgpack, is its
    bytes."""
    decode = msgspec.msgpack.decode if content_type == MSGPACK else msgspec.json.decode
    said = or_none(lambda sent: _sorted(decode(sent)), body)
    yield body if said is None else said


def idempotency(head: Head, body: bytes, canonical: Canonical = canonical_document) -> tuple[str | None, bytes]:
    """Returns (the idempotency key, a digest of method, path, conditions and what the body says); without a key (None, b"")."""
    key = head.idempotency_key
    if key is None:
        return None, b""
    if not 1 <= len(key) <= IDEMPOTENCY_KEY_LENGTH_MAX or not _is_visible_ascii(key):
        raise InvalidInput(
            f"Idempotency-Key must be 1 to {IDEMPOTENCY_KEY_LENGTH_MAX} visible ASCII characters; a random UUID serves well"
        )
    digest = hashlib.blake2b(b"%b %b\n" % (head.method.encode(), head.path), digest_size=16)
    if head.if_match is not None or head.if_none_match is not None:
        digest.update(_sorted((head.if_match, head.if_none_match)))
    for part in canonical(head.content_type, body):
        digest.update(part)
    return key, digest.digest()


def _is_visible_ascii(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def request_mark(head: Head, body: bytes) -> RequestMark | None:
    """Returns what the idempotency key of a request that makes one record leaves in the log."""
    key, digest = idempotency(head, body)
    return None if key is None else RequestMark(key, digest, 1)


def expect_type(head: Head, allowed: Sequence[str]) -> str:
    """Returns the content type, one of `allowed`. Raises 415 that names them."""
    if head.content_type not in allowed:
        sent = f"content type {head.content_type[:80]!r} is not taken here" if head.content_type else "Content-Type is missing"
        raise HTTPException(
            415, f"{sent}; send {' or '.join(allowed)}",
            headers={"accept": ", ".join(allowed)},
        )
    return head.content_type


def wanted_type(head: Head, offered: Sequence[str]) -> str:
    """Returns the type to answer in: of those offered the one that Accept weighs most, the one named first among equals.

    Raises 406 that names them.
    """
    if not head.accept or head.accept in ("*/*", offered[0]):
        return offered[0]
    best = _weighed_type(head.accept, tuple(offered))
    if best is None:
        raise HTTPException(406, f"Accept is {head.accept[:80]!r}; this path answers with {' or '.join(offered)}")
    return best


@lru_cache(maxsize=256)
def _weighed_type(accept: str, offered: tuple[str, ...]) -> str | None:
    """None: Accept takes none of them. A type weighs what the narrowest range that fits it says (RFC 9110, 12.5.1)."""
    weights = accepted_weights(accept)
    places = list(weights)
    ranks = []
    for kind in offered:
        fitting = next((name for name in (kind, "application/*", "*/*") if name in weights), None)
        if fitting is not None and weights[fitting] > 0:
            ranks.append((-weights[fitting], places.index(fitting), kind))
    return min(ranks, key=lambda rank: rank[:2])[2] if ranks else None


def accepted_weights(text: str) -> dict[str, float]:
    """Returns what an Accept or Accept-Encoding names, in lower case and in its order, with its weight; 0 where that is no
    number."""
    weights: dict[str, float] = {}
    for item in text.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weights[name] = _weight(parameters)
    return weights


def _weight(parameters: list[str]) -> float:
    text = next((one.removeprefix("q=") for one in parameters if one.startswith("q=")), "1")
    try:
        return float(text)
    except ValueError:
        return 0.0


def point_in_time(text: str | None) -> int | None:
    """Returns `as_of` as a version: a version itself, or an RFC 3339 time, which includes all of its millisecond."""
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) <= VERSION_DIGITS_MAX:
        return _checked_version(text, int(text))
    moment = decoded(partial(msgspec.convert, type=datetime), text, lambda _: InvalidInput(
        f"as_of is {text[:60]!r}: it must be a version, or a time such as 2013-01-01T05:00:00Z"
    ))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = (moment - _EPOCH) // (datetime.resolution * 1000)
    if milliseconds < 0:
        raise InvalidInput(f"as_of is {text[:60]!r}: nothing was written before 1970")
    return _checked_version(text, ((milliseconds + 1) << COUNTER_BITS) - 1)


def _checked_version(text: str, version: int) -> int:
    if version > VERSION_MAX:
        raise InvalidInput(f"as_of is {text[:60]!r}: no row is ever so late; leave as_of out to read what is there now")
    return version


def column_list(text: str | None) -> list[str] | None:
    """Returns `columns` as names, in the order given; None: all."""
    if text is None:
        return None
    names = text.split(",")
    if not all(names):
        raise InvalidInput("columns must be names joined by commas, without an empty one", parameter="columns")
    return names
