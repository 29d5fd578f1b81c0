"""The HTTP door of a simulated site: bytes go into the product's protocol class and come out of it, with no socket between.

What always holds: parsing, pipelining, routing and the bytes of an answer are the product's own; here is only the wire. A
connection carries one request of a client, perhaps behind others, in pieces that are cut at drawn places. Breaking it, before
or behind the last piece, leaves the outcome unknown to the client. Everything runs in the process of the site.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import httptools
import uvicorn
from uvicorn.server import ServerState

from gateway.http.app import DoorApp
from gateway.http.hot_path import hot_protocol
from gateway.http.protocol import ConnectionLimits
from twinlog.wire.exchange import Reply, SiteRequest

AHEAD = (0, 0, 0, 1, 2)  # how many requests the same connection carries before
PIECES = (1, 1, 2, 3, 6)
BREAKS = 0.03  # share of the connections
BETWEEN_S = 0.004  # two pieces, at most


class ConnectionLost(Exception):
    """The connection ended before its answer: the site may have acted on the request, or not."""


class HttpDoor:
    """The door of one life of a site."""

    def __init__(self, app: DoorApp) -> None:
        self.context = app.context
        self._config = uvicorn.Config(
            app, http=hot_protocol(app, ConnectionLimits()), ws="none", lifespan="off", log_config=None, access_log=False,
            proxy_headers=False, server_header=False,
        )
        self._config.load()
        self._state = ServerState()

    async def exchange(self, request: SiteRequest, chance: Random, on_whole: Callable[[], None]) -> Reply:
        """Returns the reply, and raises ConnectionLost. `on_whole` is called right before the last piece: the site, and what it
        serves, may be another one than at the first."""
        before = chance.choice(AHEAD)
        sent = _bytes(request.url, "GET", {}, b"", "/v1/cluster") * before
        sent += _bytes(request.url, request.method, request.headers, request.content)
        cuts = sorted(chance.randrange(len(sent) + 1) for _ in range(chance.choice(PIECES) - 1))
        breaks_at = chance.randrange(len(sent) + 1) if chance.random() < BREAKS else None
        wire = _Wire()
        protocol: Any = self._config.http_protocol_class(self._config, self._state, {})  # type: ignore[call-arg]
        protocol.connection_made(wire)
        try:
            for begin, end in zip([0, *cuts], [*cuts, len(sent)], strict=True):
                await wire.can_read.wait()
                if breaks_at is not None and end >= breaks_at:
                    _feed(protocol, sent[begin:breaks_at])
                    await asyncio.sleep(BETWEEN_S * chance.random())
                    raise ConnectionLost("the connection broke")
                if end == len(sent):
                    on_whole()
                _feed(protocol, sent[begin:end])
                if end < len(sent):  # behind the last piece nothing waits: an answer counts from when it was written
                    await asyncio.sleep(BETWEEN_S * chance.random())
            return await wire.reply(before)
        finally:
            protocol.connection_lost(None)


def _feed(protocol: Any, piece: bytes) -> None:
    if piece:
        protocol.data_received(piece)


def _bytes(url: str, method: str, headers: Mapping[str, str], body: bytes, target: str = "") -> bytes:
    host, _, path = url.removeprefix("http://").partition("/")
    lines = [f"{method} {target or '/' + path} HTTP/1.1", f"Host: {host}", *(f"{name}: {headers[name]}" for name in headers)]
    if body or method != "GET":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


class _Answers:
    """The callbacks of the parser: complete answers, in the order of the wire."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.complete: list[Reply] = []
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self.complete.append(Reply(self.parser.get_status_code(), self._headers, b"".join(self._body)))
        self._headers, self._body = {}, []


class _Wire(asyncio.Transport):
    """The site's end of a connection, and the client's reader at the other one."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = _Answers()
        self._moved = asyncio.Event()  # something was written, or it was closed
        self.can_read = asyncio.Event()
        self.can_read.set()
        self._is_closed = False

    async def reply(self, number: int) -> Reply:
        """Returns the answer with that number, from 0. Raises ConnectionLost."""
        while len(self._answers.complete) <= number:
            if self._is_closed:
                raise ConnectionLost("the site closed the connection before the answer")
            self._moved.clear()
            await self._moved.wait()
        return self._answers.complete[number]

    # ---- what the protocol calls
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self._answers.parser.feed_data(data)
        self._moved.set()

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self.can_read.set()
        self._moved.set()

    def abort(self) -> None:
        self.close()

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.can_read.clear()

    def resume_reading(self) -> None:
        self.can_read.set()

    def is_reading(self) -> bool:
        return self.can_read.is_set()
