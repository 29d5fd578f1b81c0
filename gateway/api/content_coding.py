"""Content codings: bodies that come compressed, and answers that leave so, with gzip or zstd.

What always holds: a body is expanded piece by piece; room for all that its path takes is counted in the budget of bodies before
more than a small body is made, so that bodies wait for one another in order and never for the rest of each other's room; few
are expanded at once. An answer is compressed only where it is long and the request
accepts that; what was compressed has another ETag, and says that it depends on Accept-Encoding. Events are left alone.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from functools import lru_cache
from io import BytesIO
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from starlette.exceptions import HTTPException
from starlette.types import Message, Send

from gateway.api.body_budget import SMALL_BODY_BYTES, WAIT_S, BodyHold
from gateway.api.problems import Answer
from gateway.api.request import ARROW, NDJSON, accepted_weights, body_too_large
from storage.rows.arrow_out import MadeBytes
from twinlog.errors import MalformedBody, Overloaded, words

CODINGS = ("zstd", "gzip")  # the first is preferred
COMPRESSED_FROM_BYTES = 2048
VARY_CODING = (b"vary", b"Accept-Encoding")
_STEP_BYTES = 256 << 10
_EXPANDING_MAX = 4
_OFF_LOOP_BYTES = 64 << 10
_STREAMED = (NDJSON.encode(), ARROW.encode())
_LEVEL = 1


def content_coding(text: str) -> str:
    """Returns the coding that Content-Encoding names; none is an empty text. Raises 415 that names those that are taken."""
    name = text.strip().lower().removeprefix("x-")
    if name in ("", "identity"):
        return ""
    if name not in CODINGS:
        raise HTTPException(
            415, f"content coding {text[:80]!r} is not taken; send {' or '.join(CODINGS)}, or the body as it is",
            headers={"accept-encoding": ", ".join(CODINGS)},
        )
    return name


class Expander:
    """Expands bodies of one door."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(_EXPANDING_MAX)

    async def expanded(self, body: bytes, coding: str, bytes_max: int, hold: BodyHold) -> bytes:
        """Returns what `body` is without its coding.

        Raises TooLarge where it becomes more than `bytes_max`, Overloaded where `hold` gets no room, MalformedBody.
        """
        whole = BytesIO()
        try:
            with pa.CompressedInputStream(pa.BufferReader(body), coding) as stream:
                while whole.tell() < SMALL_BODY_BYTES and (part := stream.read(SMALL_BODY_BYTES - whole.tell())):
                    whole.write(part)
                if whole.tell() == SMALL_BODY_BYTES:
                    await self._expand(stream, whole, bytes_max, len(body), hold)
        except MemoryError:  # pyarrow's is an ArrowException, too
            raise
        except (OSError, pa.ArrowException) as error:
            what = f"the body cannot be expanded as {coding}: {words(error)}"
            raise MalformedBody(f"{what}; send it whole and well-formed") from error
        if whole.tell() > bytes_max:
            raise body_too_large(bytes_max)
        return whole.getvalue()

    async def _expand(self, stream: Any, whole: BytesIO, bytes_max: int, body_bytes: int, hold: BodyHold) -> None:
        """Appends the rest of `stream` to `whole`, up to a little more than `bytes_max`."""
        room = max(0, bytes_max - body_bytes)  # the body as it came is counted already
        await hold.take(room)
        try:
            async with asyncio.timeout(WAIT_S):
                await self._turns.acquire()
        except TimeoutError as error:
            raise Overloaded("too many compressed bodies at once: nothing was done, try again", retry_after_s=1) from error
        try:
            while whole.tell() <= bytes_max and (part := await asyncio.to_thread(stream.read, _STEP_BYTES)):
                whole.write(part)
        finally:
            self._turns.release()
        hold.give_back(max(0, room - whole.tell()))


@lru_cache(maxsize=256)
def accepted_coding(text: str) -> str:
    """Returns the coding that an answer gets by this Accept-Encoding; an empty text: none."""
    weights = {name.removeprefix("x-"): weight for name, weight in accepted_weights(text).items()}
    others = weights.get("*", 0.0)
    best = max(CODINGS, key=lambda coding: weights.get(coding, others))
    weight = weights.get(best, others)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else ""


async def coded(answer: Answer, accept_encoding: str) -> Answer:
    """Returns a whole answer as the request accepts it. Its headers have no Content-Length."""
    status, headers, body = answer
    if len(body) < COMPRESSED_FROM_BYTES:
        return answer
    coding = accepted_coding(accept_encoding)
    short = await _off_loop(len(body), lambda: _encoder(coding).piece(body, more=False)) if coding else body
    if len(short) >= len(body):
        return Answer(status, [*headers, VARY_CODING], body)
    return Answer(status, _coded_headers(headers, coding), short)


def coded_tag(tag: bytes, coding: str) -> bytes:
    """Returns the entity tag of a representation in this coding."""
    return b'%b-%b"' % (tag[:-1], coding.encode())


def _coded_headers(headers: list[tuple[bytes, bytes]], coding: str) -> list[tuple[bytes, bytes]]:
    kept = [(name, coded_tag(value, coding) if name == b"etag" else value) for name, value in headers]
    return [*kept, (b"content-encoding", coding.encode()), VARY_CODING]


async def _off_loop(size: int, work: Callable[[], bytes]) -> bytes:
    return await asyncio.to_thread(work) if size > _OFF_LOOP_BYTES else work()


class _Gzip:
    """One answer, piece by piece: from what came so far, all that went in can be read."""

    def __init__(self) -> None:
        self._made = zlib.compressobj(_LEVEL, wbits=16 + zlib.MAX_WBITS)

    def piece(self, data: bytes, more: bool) -> bytes:
        return self._made.compress(data) + self._made.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)


class _Zstd:
    """The same."""

    def __init__(self) -> None:
        self._made = MadeBytes()
        self._stream = pa.CompressedOutputStream(pa.PythonFile(self._made, "w"), "zstd")

    def piece(self, data: bytes, more: bool) -> bytes:
        self._stream.write(data)
        if more:
            self._stream.flush()
        else:
            self._stream.close()
        return self._made.taken()


def _encoder(coding: str) -> _Gzip | _Zstd:
    return _Gzip() if coding == "gzip" else _Zstd()


class CodedSend:
    """Codes what an ASGI application sends, on its way to `send`."""

    def __init__(self, send: Send, accept_encoding: str) -> None:
        self._send, self._accept_encoding = send, accept_encoding
        self._coding = accepted_coding(accept_encoding)
        self._start: Message | None = None
        self._encoder: _Gzip | _Zstd | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._start is not None:
            await self._send_whole(self._start, message)
        elif self._encoder is not None and message["type"] == "http.response.body":
            body, more = message.get("body", b""), message.get("more_body", False)
            encoder = self._encoder
            piece = await _off_loop(len(body), lambda: encoder.piece(body, more))
            await self._send({**message, "body": piece})
        else:
            await self._send(message)

    async def _begin(self, start: Message) -> None:
        headers = dict(start["headers"])
        if int(headers.get(b"content-length", 0)) >= COMPRESSED_FROM_BYTES:
            self._start = start
            return
        streamed = b"content-length" not in headers and headers.get(b"content-type", b"").partition(b";")[0] in _STREAMED
        if streamed and self._coding:
            self._encoder = _encoder(self._coding)
            start = {**start, "headers": _coded_headers(list(start["headers"]), self._coding)}
        elif streamed:
            start = {**start, "headers": [*start["headers"], VARY_CODING]}
        await self._send(start)

    async def _send_whole(self, start: Message, message: Message) -> None:
        self._start = None
        if not message.get("more_body", False):
            headers = [header for header in start["headers"] if header[0] != b"content-length"]
            answer = await coded(Answer(start["status"], headers, message.get("body", b"")), self._accept_encoding)
            length = (b"content-length", b"%d" % len(answer.body))
            if answer.body:  # else it is the answer to a HEAD, which names the length that a GET would have
                start = {**start, "headers": [*answer.headers, length]}
                message = {**message, "body": answer.body}
        await self._send(start)
        await self._send(message)
