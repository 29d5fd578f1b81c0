"""The hot path: PUT and GET of one row, served inside the HTTP protocol, without ASGI.

What always holds: it calls the same functions as the plain routes (row_calls.py) and so answers the same; it takes only
`/v1/tables/{t}/rows/{key}` without a query or `Expect`, with a small body whose length is given, under a Host of this site
and from no page of a browser, on a connection with no request under way, of a caller whom the gate knows and lets through
(gate.py); everything else, a pipelined request too, goes the plain way, and is refused there. A request of this path stands
in uvicorn's bookkeeping where a plain one does (`cycle`), so that pipelining, shutdown and the bounds of protocol.py see no
difference. tests/gateway/http/differential.py compares the two. Measured on a busy machine, server CPU a request, row codec
included, beside a raw ASGI echo that does nothing in the same minutes (28 to 40 us): PUT 41 to 65 us, GET 32 to 40 us. As a
raw ASGI route it was 66 to 73 and 45 to 66 us.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from gateway.access.gate import Gate, LastProof
from gateway.access.limits import Budget
from gateway.api.api_context import ApiContext
from gateway.api.body_budget import SMALL_BODY_BYTES
from gateway.api.content_coding import coded
from gateway.api.request import Head, decoded_part, read_head
from gateway.api.row_calls import get_row, put_row
from gateway.http.app import DoorApp
from gateway.http.origins import Origins
from gateway.http.places import Places
from gateway.http.protocol import ConnectionLimits, DoorProtocol
from gateway.traces.requests import HOT_ROUTE, over

_PREFIX = b"/v1/tables/"
_PREFIX_LENGTH = len(_PREFIX)


class _NoEvent:
    """Nobody waits for the body of a hot request."""

    def set(self) -> None: ...


_NO_EVENT = _NoEvent()


class _HotCycle:
    """One hot request, with the names that uvicorn's protocol asks its request-response cycle for."""

    __slots__ = (
        "body", "budget", "disconnected", "head", "keep_alive", "key", "message_event", "response_complete", "response_started",
        "table",
    )

    def __init__(self, head: Head, table: str, key: str, keep_alive: bool, budget: Budget | None) -> None:
        self.head, self.table, self.key, self.keep_alive, self.budget = head, table, key, keep_alive, budget
        self.body: list[bytes] = []
        self.response_started = self.response_complete = self.disconnected = False
        self.message_event = _NO_EVENT


class HotProtocol(DoorProtocol):
    """A subclass with its `context` is made by `hot_protocol`."""

    context: ApiContext
    origins: Origins
    gate: Gate | None
    _last_proof: LastProof | None = None  # of this connection
    _body_bytes_max: int

    def on_headers_complete(self) -> None:
        cycle: Any = self.cycle
        url: bytes = self.url
        if url.startswith(_PREFIX) and (cycle is None or cycle.response_complete):
            method: bytes = self.parser.get_method()
            if (method == b"PUT" or method == b"GET") and b"?" not in url and b"#" not in url and not self.expect_100_continue:
                parts = url[_PREFIX_LENGTH:].split(b"/")
                if len(parts) == 3 and parts[1] == b"rows" and parts[0]:
                    head = read_head(method.decode(), url, self.headers)
                    is_odd = head.is_of_page or head.is_coded or head.twice
                    if not is_odd and self._is_hot_body(head) and self.origins.knows(head.host):
                        gate, budget = self.gate, None
                        if gate is None or (budget := self._granted(gate, head, parts[0])) is not None:
                            self._begin_hot(head, parts[0], parts[2], budget)
                            return
        super().on_headers_complete()

    def _is_hot_body(self, head: Head) -> bool:
        """True for a body as it is, whose length is given and allowed; a GET has none, and what is sent as one is ignored."""
        if head.method == "GET":
            return not head.content_length
        return head.content_length is not None and head.content_length <= self._body_bytes_max and not head.content_encoding

    def _granted(self, gate: Gate, head: Head, table: bytes) -> Budget | None:
        """The budget of a caller who may do this now."""
        last = self._last_proof
        if last is None:
            last = self._last_proof = LastProof()
        return gate.hot(head.authorization, self.client_certificates, head.method == "PUT", table, last)

    def _begin_hot(self, head: Head, table: bytes, key: bytes, budget: Budget | None) -> None:
        if not self._head_complete():
            return
        if self.context.traces is not None:
            head.span = self.context.traces.begun(head.method, HOT_ROUTE, self.headers)
        self._body_left = head.content_length or 0
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        cycle = _HotCycle(head, decoded_part(table.decode("latin-1")), key.decode("latin-1"), keep_alive, budget)
        self.cycle = cycle  # type: ignore[assignment]
        self._in_head = False

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if type(cycle) is not _HotCycle:
            super().on_body(body)
            return
        self._count(body)
        if cycle.head.content_length:
            cycle.body.append(body)

    def on_message_complete(self) -> None:
        cycle: Any = self.cycle
        if type(cycle) is not _HotCycle or cycle.response_complete or self.pipeline or self._is_upgrade:
            super().on_message_complete()
            return
        self._arriving = False
        if not cycle.disconnected:
            task = self.loop.create_task(self._serve_hot(cycle))
            self.tasks.add(task)
            budget = cycle.budget
            if budget is None:
                task.add_done_callback(self.tasks.discard)
            else:  # counted as what arrived whole until its task ends, however it ends; one callback costs less than two
                budget.count(cycle.head.content_length or 0)
                task.add_done_callback(partial(self._leave, budget))

    def _leave(self, budget: Budget, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        budget.leave()

    async def _serve_hot(self, cycle: _HotCycle) -> None:
        context, head = self.context, cycle.head
        is_write = head.method == "PUT"
        context.metrics.request(head.method)
        try:
            if is_write:
                body = cycle.body[0] if len(cycle.body) == 1 else b"".join(cycle.body)
                answer = await put_row(context, head, cycle.table, cycle.key, body)
            else:
                answer = await get_row(context, head, cycle.table, cycle.key)
                if cycle.budget is not None:
                    cycle.budget.spend(len(answer.body))  # before it is coded, as on the plain way
                answer = await coded(answer, head.accept_encoding)
        except Exception as error:
            answer = context.problem(error, is_write=is_write)
        except BaseException:
            self.transport.close()
            raise
        if head.span is not None:
            over(head.span, answer.status)
        if cycle.disconnected or self.transport.is_closing():
            return
        cycle.response_started = True
        self._write(answer, cycle.keep_alive)
        if self.flow.write_paused:
            await self.flow.drain()
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def _is_write(self) -> bool:
        cycle: Any = self.cycle
        is_hot = type(cycle) is _HotCycle and not self._in_head  # in a head the cycle is of the request before
        return cycle.head.method != "GET" if is_hot else super()._is_write()




def hot_protocol(app: DoorApp, limits: ConnectionLimits) -> type[HotProtocol]:
    """The protocol class for `uvicorn.Config(http=...)`, in front of `app`."""
    bound = {
        "context": app.context, "origins": app.origins, "gate": app.gate, "limits": limits,
        "places": Places(limits.connections_max, limits.per_address_max),
        "_body_bytes_max": min(SMALL_BODY_BYTES, app.context.http.row_body_bytes_max),
    }
    return type("BoundHotProtocol", (HotProtocol,), bound)
