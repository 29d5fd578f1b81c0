"""Sends server-sent events: documents, or frames that their source has made for many streams at once.

What always holds: an error before the first event is an ordinary problem, not a broken stream; an idle stream carries a
comment every `PING_S`, so that a dead client is noticed and proxies keep the connection; every stream ends when the door
closes, and its source is closed with it; the connection says that it only waits for events, and may give way to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.requests import Request
from starlette.responses import StreamingResponse

from gateway.api.request import FOLLOW

PING = KEEPALIVE_COMMENT
PING_S = 15.0
_END = object()
Document = TypeVar("Document", bound=msgspec.Struct)


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
    return StreamingResponse(followed, media_type=EventSourceResponse.media_type, headers={"cache-control": "no-store"})


def _nobody(is_followed: bool) -> None: ...


async def _followed(
    first: bytes, frames: AsyncGenerator[bytes], follow: Callable[[bool], None]
) -> AsyncIterator[bytes]:
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
