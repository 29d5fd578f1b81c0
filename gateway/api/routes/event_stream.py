"""Sends documents as server-sent events.

What always holds: an error before the first document is an ordinary problem, not a broken stream; an idle stream carries a
comment every `PING_S`, so that a dead client is noticed and proxies keep the connection; every stream ends when the door
closes, and its source is closed with it; the connection says that it only waits for events, and may give way to another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import msgspec
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event
from starlette.requests import Request
from starlette.responses import StreamingResponse

from gateway.api.request import FOLLOW

PING_S = 15.0
_END = object()
Document = TypeVar("Document", bound=msgspec.Struct)


async def event_stream(
    request: Request, name: str, source: AsyncIterator[Document], closing: asyncio.Event
) -> StreamingResponse:
    """Returns a stream of events called `name`. Raises the error that the source raises before its first document."""
    first = await anext(source, _END)
    events = _events(name, first, source, closing, request.scope.get(FOLLOW, _nobody))
    return StreamingResponse(events, media_type=EventSourceResponse.media_type, headers={"cache-control": "no-store"})


def _nobody(is_followed: bool) -> None: ...


async def _events(
    name: str, first: Any, source: AsyncIterator[Document], closing: asyncio.Event, follow: Callable[[bool], None]
) -> AsyncIterator[bytes]:
    follow(True)
    closed = asyncio.ensure_future(closing.wait())
    coming: asyncio.Future[Any] | None = None
    document = first
    try:
        while document is not _END:
            yield format_sse_event(data_str=msgspec.json.encode(document).decode(), event=name)
            coming = asyncio.ensure_future(anext(source, _END))
            while True:
                done, _ = await asyncio.wait((coming, closed), timeout=PING_S, return_when=asyncio.FIRST_COMPLETED)
                if closed in done:
                    return
                if coming in done:
                    break
                yield KEEPALIVE_COMMENT
            document = coming.result()
    finally:
        follow(False)
        closed.cancel()
        if coming is not None and not coming.done():
            coming.cancel()
            await asyncio.wait((coming,))
        close = getattr(source, "aclose", None)
        if close is not None:
            await close()
