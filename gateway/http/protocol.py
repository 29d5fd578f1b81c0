"""One HTTP connection: uvicorn's httptools protocol, with the bounds that it lacks.

What always holds: a request that began has arrived whole within `request_read_s`, or is answered 408; its head is at most
`head_bytes_max` long, or is answered 431; a body that ends early is answered 400; what is no HTTP is answered 400; above
`connections_max` a connection is answered 503 and closed. All of these answers are problems. In none of these cases does
the application answer, and it sees at most a disconnect. A time-out costs a timer only for requests in several pieces.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.api.problems import Answer, answer_for, plain_problem
from gateway.api.request import is_write_method
from twinlog.errors import MalformedBody, Unavailable


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    request_read_s: float = 30.0
    head_bytes_max: int = 32 << 10
    connections_max: int = 10_000


class DoorProtocol(HttpToolsProtocol):
    """uvicorn makes one for each connection."""

    limits = ConnectionLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arriving = False  # a request began and has not arrived whole
        self._in_head = True
        self._head_bytes = 0
        if len(self.connections) > self.limits.connections_max:
            self._timer: asyncio.TimerHandle | None = None
            error = Unavailable("too many connections: try again, or use fewer", retry_after_s=1)
            self._refuse(answer_for(error, is_write=False))
        else:
            self._timer = self.loop.call_later(self.limits.request_read_s, self._read_deadline)

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        super().connection_lost(exc)

    def eof_received(self) -> None:
        if self._arriving:
            error = MalformedBody("the request ended before its length: nothing was done, send the whole request again")
            self._refuse(answer_for(error, is_write=self._is_write()))

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.limits.head_bytes_max:
                self._refuse(plain_problem(431))
        if self._arriving:
            if self._timer is None:
                self._timer = self.loop.call_later(self.limits.request_read_s, self._read_deadline)
        elif self._timer is not None:
            self._disarm()

    def on_message_begin(self) -> None:
        self._arriving = self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._arriving = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(plain_problem(400, msg))

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read_deadline(self) -> None:
        """The time for one request is over. While a pipelined one waits for the one before it, the client is not slow."""
        self._timer = None
        if self.transport.is_closing():
            return
        if self.pipeline or self.flow.read_paused:
            self._timer = self.loop.call_later(self.limits.request_read_s, self._read_deadline)
        elif not self._arriving:
            self.transport.close()  # a connection on which nothing ever came
        else:
            text = f"the request did not arrive within {self.limits.request_read_s:g} s: send it again without pauses"
            self._refuse(answer_for(HTTPException(408, text), is_write=self._is_write()))

    def _write(self, answer: Answer, keep_alive: bool) -> None:
        """The whole answer in one piece."""
        parts = [STATUS_LINE[answer.status]]
        for name, value in self.server_state.default_headers:
            parts += (name, b": ", value, b"\r\n")
        for name, value in answer.headers:
            parts += (name, b": ", value, b"\r\n")
        end = b"content-length: %d\r\n\r\n" if keep_alive else b"connection: close\r\ncontent-length: %d\r\n\r\n"
        parts += (end % len(answer.body), answer.body)
        self.transport.write(b"".join(parts))

    def _is_write(self) -> bool:
        return is_write_method(self.scope.get("method", "GET"))

    def _refuse(self, answer: Answer) -> None:
        """Answer in place of the application, if the client can only take it for the answer to this request, and close."""
        cycle: Any = self.cycle
        waiting = cycle is not None and not cycle.response_complete
        if self._arriving and not self._in_head:
            is_ours = waiting and not cycle.response_started and not self.pipeline
        else:  # the cycle, if there is one, belongs to the request before
            is_ours = not waiting
        self._arriving = False
        self._disarm()
        if self.transport.is_closing():
            return
        if is_ours:
            self._write(answer, keep_alive=False)
        if waiting:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()
