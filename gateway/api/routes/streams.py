"""Sends streams: pieces of a body, and server-sent events, which are documents or frames made for many streams at once.

What always holds: an error before the first piece is an ordinary problem, not a broken stream; the source of a stream is closed
when the stream ends, also where its client goes away. An idle stream of events carries a comment every `PING_S`, so that a dead
client is noticed and proxies keep the connection; it ends when the door closes; its connection says that it only waits for
events, and may give way to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from gateway.api.request import FOLLOW

PING = KEEPALIVE_COMMENT
PING_S = 15.0
_END = object()
Document = TypeVar("Document", bound=msgspec.Struct)


class ClosedStream(StreamingResponse):
    """A stream that closes its source. One that is left to the collector keeps what it holds, such as a snapshot, until that
    runs, which is seldom: an error of the sending refers to the frame that refers to the error."""

    def __init__(self, source: AsyncGenerator[bytes], media_type: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(source, media_type=media_type, headers=headers)
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._source.aclose()


def frame_of(name: str, document: bytes) -> bytes:
    """Returns the event of a document, which is JSON."""
    return format_sse_event(data_str=document.decode(), event=name)


async def event_stream(
    request: Request, name: str, source: AsyncIterator[Document], closing: asyncio.Event
) -> StreamingResponse:
    """Returns a stream of events called `name`. Raises the error that the source raises before its first document."""
    return await frame_stream(request, _frames(name, source, closing))


async def frame_stream(request: Request, frames: AsyncGenerator[bytes]) -> StreamingResponse:
    """Returns a stream of frames as they are. The source makes the comments of an idle stream, and ends when the door closes.

    Raises the error that the source raises before its first frame.
    """
    first = await anext(frames, b"")
    followed = _followed(first, frames, request.scope.get(FOLLOW, _nobody))
    return ClosedStream(followed, EventSourceResponse.media_type, {"cache-control": "no-store"})


def _nobody(is_followed: bool) -> None: ...


async def _followed(
    first: bytes, frames: AsyncGenerator[bytes], follow: Callable[[bool], None]
) -> AsyncGenerator[bytes]:
    follow(True)
    try:
        if first:
            yield first
        async for frame in frames:
            yield frame
    finally:
        follow(False)
        await frames.aclose()


async def _frames(name: str, source: AsyncIterator[Document], closing: asyncio.Event) -> AsyncGenerator[bytes]:
    coming: asyncio.Future[Any] | None = None
    closed: asyncio.Future[Any] | None = None
    try:
        document: Any = await anext(source, _END)
        closed = asyncio.ensure_future(closing.wait())
        while document is not _END:
            yield frame_of(name, msgspec.json.encode(document))
            coming = asyncio.ensure_future(anext(source, _END))
            while True:
                done, _ = await asyncio.wait((coming, closed), timeout=PING_S, return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    return
                if coming in done:
                    break
                yield PING
            document = coming.result()
    finally:
        if closed is not None:
            closed.cancel()
        if coming is not None and not coming.done():
            coming.cancel()
            await asyncio.wait((coming,))
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()
