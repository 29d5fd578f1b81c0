"""The outermost ASGI layer: single-row PUT and GET by the short way, everything else to FastAPI, and every error a problem.

What always holds: the short way calls the same functions as the plain routes beside it (row_calls.py) and so answers the
same; it takes only `/v1/tables/{t}/rows/{key}` without a query. Paths are matched as they stand in the request line, still
percent-encoded, so that a `/` or `,` inside a key is not taken for a separator. Measured: 26 us a request for HTTP itself;
a FastAPI route costs four times that.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.door import Door
from gateway.http_request import read_body, read_head
from gateway.problems import Answer, answer_for
from gateway.row_calls import get_row, put_row

_PREFIX = b"/v1/tables/"
_PREFIX_LENGTH = len(_PREFIX)


class DoorApp:
    """The ASGI application of one site. `plain` is the FastAPI app."""

    def __init__(self, door: Door, plain: ASGIApp) -> None:
        self.door = door
        self.plain = plain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        raw: bytes = scope["raw_path"]
        method = scope["method"]
        if (method == "PUT" or method == "GET") and raw.startswith(_PREFIX) and not scope["query_string"]:
            parts = raw[_PREFIX_LENGTH:].split(b"/")
            if len(parts) == 3 and parts[1] == b"rows":
                await self._row(scope, receive, send, _text(parts[0]), parts[2].decode("latin-1"))
                return
        await self._plain(scope, receive, send)

    async def _row(self, scope: Scope, receive: Receive, send: Send, table: str, key: str) -> None:
        is_write = scope["method"] == "PUT"
        try:
            head = read_head(scope)
            if is_write:
                body = await read_body(receive, head.content_length, self.door.config.body_bytes_max)
                answer = await put_row(self.door, head, table, key, body)
            else:
                answer = await get_row(self.door, head, table, key)
        except Exception as error:
            answer = self.problem(error, is_write)
        await send_answer(send, answer)

    async def _plain(self, scope: Scope, receive: Receive, send: Send) -> None:
        """FastAPI. Its last resort answers an unexpected error and raises it again: by then nothing is left to do.

        An error in the middle of an answer goes on to the server, which breaks the connection.
        """
        finished = False

        async def watched(message: Any) -> None:
            nonlocal finished
            finished = message["type"] == "http.response.body" and not message.get("more_body", False)
            await send(message)

        scope["path"] = scope["raw_path"].decode("latin-1")
        try:
            await self.plain(scope, receive, watched)
        except Exception:
            if not finished:
                raise

    def problem(self, error: Exception, is_write: bool) -> Answer:
        """The answer to an error, counted."""
        answer = answer_for(error, is_write=is_write)
        self.door.metrics.problem(answer.status)
        return answer


def _text(part: bytes) -> str:
    text = part.decode("latin-1")
    return unquote(text) if "%" in text else text


def is_write_method(method: str) -> bool:
    return method not in ("GET", "HEAD", "OPTIONS")


async def send_answer(send: Send, answer: Answer) -> None:
    """One whole answer over ASGI."""
    headers = [*answer.headers, (b"content-length", b"%d" % len(answer.body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
