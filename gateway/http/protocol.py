"""One HTTP connection: uvicorn's httptools protocol, with the bounds that it lacks.

What always holds: a request that began has arrived whole within `request_read_s`, or is answered 408; its head is at most
`head_bytes_max` long, or is answered 431, and so are trailers and chunk extensions, which are never read as headers; a body
that ends early is answered 400; what is no HTTP is answered 400; above `connections_max`, or `per_address_max` from one
address, a connection is answered 503 and closed. All of these answers are problems. In none of these cases does the
application answer, and it sees at most a disconnect. A client that still sends when the connection is closed reads its answer
all the same (lingering.py), and no request gets two. A time-out costs a timer only for requests in several pieces.
Three more: `Upgrade` is ignored, as HTTP allows, and the request is an ordinary one; while pipelined requests wait, what came
behind them stays unparsed and the connection is not read, so that a client holds few requests in memory, however short; what
RFC 9112 lets a proxy read in another way (lengths, encodings, Host, trailers, HTTP/1.0) has one reading here, or is refused.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from typing import Any, NoReturn

import httptools
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gateway.api.problems import Answer, answer_for, plain_problem
from gateway.api.request import FOLLOW, is_write_method
from gateway.http.flow import Flow
from gateway.http.lingering import LingeringTransport
from gateway.http.places import Front, Places
from gateway.http.target import read_target
from gateway.logs import BoundedWarnings
from twinlog.errors import MalformedBody, Unavailable, words

PIECE_BYTES = 4096  # fed to the parser at once, outside of a body whose length is known
_CHUNK_FRAME_BYTES = 32  # length, line ends and a short extension of one chunk
_TLS_BEGINS = b"\x16\x03"
_warnings = BoundedWarnings("gateway.http", lambda: asyncio.get_running_loop().time())
_CONNECTIONS_OWN = (b"connection", b"proxy-connection", b"upgrade")


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    request_read_s: float = 30.0
    head_bytes_max: int = 32 << 10
    connections_max: int = 2000
    per_address_max: int = 500


class DoorProtocol(HttpToolsProtocol):
    """uvicorn makes one for each connection."""

    limits = ConnectionLimits()
    places: Places  # of all protocols of one door
    flow: Flow
    front: Front | None = None  # held this connection's place while it came in
    client_certificates: tuple[str, ...] = ()  # PEM, that of the client first; empty: it showed none, or there is no TLS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        wire = LingeringTransport(transport, self._is_sending, self.limits.request_read_s)
        super().connection_made(wire)
        self._wire = wire
        self.flow = Flow(wire, self.pipeline, self.limits.request_read_s)
        self._is_refused = False  # the client may still send, and nobody reads it
        self._lingers = False  # it was refused on arrival, and its client may read why
        self._arriving = False  # a request began and has not arrived whole
        self._in_head = True  # and `cycle` is of the request before
        self._begun = 0  # requests that began in the piece that is being parsed
        self._head_bytes = 0  # of the head that arrives, without a piece that began with another request
        self._piece_bytes = 0  # of the piece that is being parsed
        self._body_left = 0  # of a body whose length is known
        self._frame_bytes = 0  # of a chunked body: what came, less the body and a frame for each chunk
        self._explained = 0  # of the piece that is being parsed: its body, and these frames
        self._is_upgrade = False  # the parser stops behind this head
        self._running: Any = None  # the request that the application has; `cycle` is the last one that came
        self._held = b""  # came behind pipelined requests, and waits for them
        self._followed_since: float | None = None  # since this moment the answer is a stream of events
        self._idle_s: float | None = None  # since this moment nothing is asked; None: a request is under way
        self._last_answer: Answer | None = None  # of a refusal, when those under way are answered; nothing is parsed any more
        self._address = self.front.address if self.front else self.client[0] if self.client else ""
        self._timer: asyncio.TimerHandle | None = None
        secured: ssl.SSLObject | None = wire.get_extra_info("ssl_object")
        if secured is not None and (shown := secured.getpeercert(binary_form=True)):
            self.client_certificates = (ssl.DER_cert_to_PEM_cert(shown),)
        self._is_served = self.places.enter(self._address, self, self.front)
        self.front = None
        if self._is_served:
            self._timer = self.loop.call_later(self.limits.request_read_s, self._read_deadline)
        else:
            self._refuse_a_place()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        running, self._running = self._running, None
        if running is not None and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        self._unset_keepalive_if_required()  # uvicorn leaves it when a client resets, and it holds the last body for its time
        self._wire.let_go()
        self._held = b""
        if self._is_served:
            self.places.leave(self._address, self)
        elif self._lingers:
            self.places.end_lingering()
        super().connection_lost(exc)
        self.pipeline.clear()
        self.cycle, self.scope = None, {}  # type: ignore[assignment, typeddict-item]  # both refer to this: no collector is needed

    def eof_received(self) -> None:
        if self._arriving and not self.transport.is_closing():
            error = MalformedBody("the request ended before its length: nothing was done, send the whole request again")
            self._refuse(answer_for(error, is_write=self._is_write()))

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing() or self._last_answer is not None:
            return
        idle_s, self._idle_s = self._idle_s, None
        if self.pipeline:
            self._hold(data)
        elif len(data) <= PIECE_BYTES:
            self._feed(data)
        else:
            self._feed_pieces(data)
        cycle = self.cycle
        if not self._arriving and (cycle is None or cycle.response_complete):
            self._idle_s = idle_s  # empty lines are no request, and its time runs on
        elif self._arriving or self._timer is not None:
            self._watch()

    # ---- parsing
    def _feed_pieces(self, data: bytes | memoryview) -> None:
        """Parses until the data ends or requests wait: a piece holds few, and a body of known length is one piece."""
        view, at = memoryview(data), 0
        while at < len(view) and self._last_answer is None and not self.transport.is_closing():
            if self.pipeline:
                self._hold(bytes(view[at:]))
                return
            end = at + max(PIECE_BYTES, self._body_left)
            self._feed(view[at:end])
            at = end

    def _hold(self, data: bytes) -> None:
        self._held = self._held + data if self._held else data
        self.flow.pause_reading()

    def _feed(self, piece: bytes | memoryview) -> None:
        self._begun = 0
        self._piece_bytes = len(piece)
        self._explained = 0
        was_arriving = self._arriving
        in_body = was_arriving and not self._in_head
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_without_upgrade(memoryview(piece)[upgrade.args[0] :])
            return
        except httptools.HttpParserError as error:
            self._refuse(plain_problem(400, self._no_request(piece, words(error))))
            return
        if not self._arriving or self._begun > (not was_arriving):
            self._head_bytes = 0
        elif self._in_head:
            self._head_bytes += len(piece)
            if self._head_bytes > self.limits.head_bytes_max:
                self._refuse(plain_problem(431))
        elif in_body and not self._body_left:
            self._frame_bytes = max(0, self._frame_bytes + len(piece) - self._explained)
            if self._frame_bytes > self.limits.head_bytes_max:
                self._refuse(plain_problem(431, "the trailers or chunk extensions are too long: send none"))

    def _no_request(self, piece: bytes | memoryview, why: str) -> str:
        if bytes(piece[:2]) != _TLS_BEGINS:
            return f"this is no HTTP request: {why}"
        _warnings.warn("a client speaks TLS to a plain port", address=self._address)
        return "TLS came, and this port speaks plain HTTP: write http:// in the address, or set up TLS at this site"

    def _feed_without_upgrade(self, rest: memoryview) -> None:
        """Parses a request that asks for another protocol as what it is without that wish.

        The library stops behind such a head, as if there were no body, and has no switch for that. So a fresh parser gets
        the same head without `Upgrade`, and then the rest.
        """
        self._is_upgrade = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(plain_problem(400, "a site is no proxy: CONNECT is not taken"))
            return
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
        self._feed(b"\r\n".join(lines) + b"\r\n\r\n")
        self._feed_pieces(rest)

    def on_message_begin(self) -> None:
        self._arriving = self._in_head = True
        self._begun += 1
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """As uvicorn's, for what stands in the head, without the white space behind a value. What comes later is a trailer.

        The parser takes to heart what a trailer says about the connection, though the answer has said something else by then:
        such a trailer is refused.
        """
        name = name.lower()
        if self._in_head:
            value = value.rstrip(b" \t")
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))
        elif name in _CONNECTIONS_OWN:
            self._refuse_and_stop(400, f"{name.decode()} is no trailer: send it as a header")

    def on_headers_complete(self) -> None:
        if not self._head_complete():
            return
        is_old = self.parser.get_http_version() == "1.0"
        self._body_left = 0
        for name, value in self.headers:
            if name == b"content-length":
                self._body_left = int(value)
            elif name == b"transfer-encoding":
                if is_old:
                    self._refuse_and_stop(400, "HTTP/1.0 knows no Transfer-Encoding: send a Content-Length, or use HTTP/1.1")
                if value.lower() != b"chunked":
                    self._refuse_and_stop(501, "of transfer encodings, chunked alone is taken: say gzip as Content-Encoding")
        if is_old:
            self.expect_100_continue = False
        self._read_target()
        self.scope[FOLLOW] = self._follow  # type: ignore[literal-required]
        if self.client_certificates:
            self.scope["extensions"] = {"tls": {"client_cert_chain": list(self.client_certificates)}}
        super().on_headers_complete()
        self._in_head = False

    def _read_target(self) -> None:
        """The host of an address in the request line counts, and takes the place of Host, as HTTP asks."""
        try:
            self.url, host = read_target(self.parser.get_method(), self.url)
        except ValueError as error:
            self._refuse_and_stop(400, words(error))
        if host is not None:
            places = [place for place, (name, _) in enumerate(self.headers) if name == b"host"]
            if len(places) == 1:
                self.headers[places[0]] = (b"host", host)
            elif not places and self.parser.get_http_version() == "1.0":
                self.headers.append((b"host", host))

    def _head_complete(self) -> bool:
        """False: the head is parsed again without `Upgrade`. Raises when it is too long, or in another version of HTTP; the
        connection is closed then."""
        self._frame_bytes = 0
        if self.parser.get_http_version() not in ("1.1", "1.0"):
            self._refuse_and_stop(505, "a site speaks HTTP/1.1")
        if self._head_bytes + self._piece_bytes + PIECE_BYTES > self.limits.head_bytes_max:
            fields = sum(len(name) + len(value) + 4 for name, value in self.headers)
            if len(self.url) + fields > self.limits.head_bytes_max:
                self._refuse_and_stop(431)
        self._is_upgrade = self.parser.should_upgrade()
        return not self._is_upgrade

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        """As uvicorn's, where a lost connection ends the last request alone: a stream with a request behind it would stay."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._count(body)
        super().on_body(body)

    def _count(self, body: bytes) -> None:
        size = len(body)
        self._explained += size + _CHUNK_FRAME_BYTES
        self._body_left = max(0, self._body_left - size)

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._arriving = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As uvicorn's, but the connection is read again only when nothing waits any more."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            if self.pipeline:
                return
        elif self._last_answer is not None:
            self._write(self._last_answer, keep_alive=False)
            self.transport.close()
            return
        elif not self._held and not self._arriving:
            self._idle_s = self.loop.time()
            if self.timeout_keep_alive_task is None:
                self._look_when_idle_for(self.timeout_keep_alive)
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self._held:
            held, self._held = self._held, b""
            self._feed_pieces(held)
            self._watch()

    # ---- places
    def waits_since(self) -> float | None:
        """As Guest's. One that is closing is the first to go: its client has its answer, or does not read it. A stream of
        events waits since it began."""
        if self.transport.is_closing():
            return 0.0
        if self.flow.unread_since is not None or self._idle_s is not None:
            return self._idle_s if self.flow.unread_since is None else self.flow.unread_since
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete and (self._in_head or not self._arriving):
            return self._followed_since
        if self._timer is None or self.flow.read_paused:
            return None
        return self._timer.when() - self.limits.request_read_s

    def give_way(self) -> None:
        """As Guest's. Half a request is answered, an idle connection is closed as if its time was over, and a stream of
        events is cut: its client asks again."""
        self.places.leave(self._address, self)
        self._is_served = False
        if self.transport.is_closing() or self.flow.unread_since is not None or self._followed_since is not None:
            self.transport.abort()
        elif self._idle_s is not None:
            self.transport.close()
        else:
            self._refuse_a_place()

    def _follow(self, is_followed: bool) -> None:
        """The answer is a stream of events from here on, or was one."""
        self._followed_since = self.loop.time() if is_followed else None

    def _refuse_a_place(self) -> None:
        self._lingers = self.places.linger()
        error = Unavailable("too many connections: try again, or use fewer", retry_after_s=1)
        self._refuse(answer_for(error, is_write=self._arriving and self._is_write()))

    # ---- limits
    def _look_when_idle_for(self, left_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that was idle for its time. The timer runs on across requests: to set one for each of them would
        cost every request what only an idle connection needs."""
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        idle_s = 0.0 if self._idle_s is None else self.loop.time() - self._idle_s
        if idle_s < self.timeout_keep_alive:
            self._look_when_idle_for(self.timeout_keep_alive - idle_s)
        else:
            self.transport.close()

    def _watch(self) -> None:
        """Holds a request that has not arrived whole to its time."""
        if self._arriving:
            if self._timer is None:
                self._timer = self.loop.call_later(self.limits.request_read_s, self._read_deadline)
        elif self._timer is not None:
            self._disarm()

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

    def _is_sending(self) -> bool:
        """True while the client may have more on the way: a request that has not arrived whole, or what follows a refusal."""
        return self._arriving or self._is_refused

    def shutdown(self) -> None:
        """As uvicorn's; a connection that lingers ends."""
        if self.transport.is_closing():
            self.transport.close()
        else:
            super().shutdown()

    def _is_write(self) -> bool:
        return is_write_method(self.scope.get("method", "GET"))

    def _refuse_and_stop(self, status: int, detail: str = "") -> NoReturn:
        """Refuses what is being parsed, from inside of the parser. Raises, and so ends it."""
        self._refuse(plain_problem(status, detail))
        raise ValueError("refused")

    def _refuse(self, answer: Answer) -> None:
        """Answers in place of the application and closes. Requests before this one are answered first."""
        cycle: Any = self.cycle
        waiting = cycle is not None and not cycle.response_complete
        has_cycle = self._arriving and not self._in_head
        self._arriving = False
        self._disarm()
        if self.transport.is_closing() or self._last_answer is not None:
            return
        self._is_refused = self._is_served or self._lingers
        if has_cycle and self.pipeline:
            self.pipeline.popleft()  # it was queued last, and never begins
            self._last_answer = answer
        elif waiting and not has_cycle:
            self._last_answer = answer
        else:
            is_answered = has_cycle and (not waiting or cycle.response_started)
            if not is_answered:
                self._write(answer, keep_alive=False)
            if waiting:
                cycle.disconnected = True
                cycle.message_event.set()
            self.transport.close()


def door_protocol(limits: ConnectionLimits) -> type[DoorProtocol]:
    """The protocol class for `uvicorn.Config(http=...)` of a door without rows, which has places of its own."""
    bound = {"limits": limits, "places": Places(limits.connections_max, limits.per_address_max)}
    return type("BoundDoorProtocol", (DoorProtocol,), bound)
