"""The real Transport: kept-alive HTTP connections to the other site's gateway.

What always holds: a call ends by its time-out, and then its connection does; the peer's problem answer becomes the same error
class here; anything else is a PeerError, whose outcome is unknown; an answer is bounded, and counts only if it is whole: its
length is said, or it comes in chunks; a call that a traced step makes names its span in a `traceparent` and a `tracestate`;
bytes that belong to no call end their connection; a body is let go with its call. A client library took twenty to thirty times
the CPU of this, on the event loop of the writes (docs/performance.md).
Source: remote_log/replication/messages.py.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import quote, urlsplit

import httptools
import msgspec

from remote_log.replication.messages import decode_reply, reply_bytes_max
from storage.tracing import Span, current
from twinlog.errors import PeerError, words
from twinlog.problem_documents import error_from_problem
from twinlog.wire.tls import tls_words

CONTENT_TYPE = "application/x-msgpack"
_AROUND_BYTES_MAX = 1 << 20  # of an answer's head, chunk sizes and trailers
_KEPT_MAX = 2  # connections that wait for the next call
_KEPT_S = 5.0  # for less time than a server, or what stands before it, keeps them: none is closed while a call is on its way
_CALLS_MAX = 100  # at the same time, a connection each
_T = TypeVar("_T")


def _trace_headers(span: Span) -> bytes:
    state = f"\r\ntracestate: {span.tracestate}" if span.tracestate else ""
    return f"\r\ntraceparent: {span.traceparent}{state}".encode("ascii")


class PeerTls(Protocol):
    """Knows the other site by its certificate (gateway/tls/site_tls.py)."""

    def caller(self) -> ssl.SSLContext | None:
        """The context of a new connection; None: the other site is known by its host name alone."""

    def not_the_peer(self, certificate: dict[str, Any] | None) -> str:
        """Returns why a certificate is not the other site's; an empty text where it is."""


class HttpTransport:
    """Calls of the site at `url`, http or https, with the path that it is below. `tls`: of the site's own certificate."""

    def __init__(self, url: str, tls: PeerTls | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None  # as the configuration was checked
        self._url, self._host = url, parts.hostname
        self._is_secured, self._tls = parts.scheme == "https", tls
        self._by_name = ssl.create_default_context() if self._is_secured else None
        self._port = parts.port or (443 if self._is_secured else 80)
        path = quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=")
        self._path = f"POST {path}/internal/v1/peer/".encode()
        self._headers = b" HTTP/1.1\r\nhost: %s\r\ncontent-type: %s\r\naccept-encoding: identity\r\ncontent-length: " % (
            parts.netloc.encode("idna"), CONTENT_TYPE.encode(),
        )
        self._kept: list[_Connection] = []
        self._calls = asyncio.Semaphore(_CALLS_MAX)

    async def call(self, method: str, message: dict[str, Any], kind: type[_T], timeout_s: float) -> _T:
        body = msgspec.msgpack.encode(message)
        span = current()
        trace = b"" if span is None else _trace_headers(span)
        head = b"%s%s%s%d%s\r\n\r\n" % (self._path, method.encode(), self._headers, len(body), trace)
        try:
            async with asyncio.timeout(timeout_s), self._calls:
                connection = self._kept_one() or await self._connect()
                try:
                    status, answer = await connection.ask(head, body, reply_bytes_max(method))
                finally:
                    self._keep(connection)
        except ssl.SSLError as error:  # it does answer, and one of the two refuses the other
            raise PeerError(f"there is no TLS with the other site at {self._url} ({tls_words(error)})") from error
        except TimeoutError as error:
            raise PeerError(f"the other site at {self._url} does not answer in time") from error
        except OSError as error:
            raise PeerError(f"the other site at {self._url} does not answer ({words(error)})") from error
        if status != 200:
            problem = error_from_problem(status, answer)
            if status in (400, 403) and isinstance(problem, PeerError):
                raise PeerError(f"the other site at {self._url} refuses the call: {problem.message}", **problem.fields)
            raise problem
        return decode_reply(kind, method, answer)

    async def close(self) -> None:
        for connection in self._kept:
            connection.abort()
        self._kept.clear()

    def _kept_one(self) -> _Connection | None:
        """The one that answered last. What is too old, or was closed meanwhile, goes."""
        while self._kept:
            connection = self._kept.pop()
            if connection.is_fit(_KEPT_S):
                return connection
            connection.abort()
        return None

    def _keep(self, connection: _Connection) -> None:
        """Keeps it for the next call, if this one has its whole answer and nothing is left on the way."""
        if connection.is_fit(_KEPT_S) and len(self._kept) < _KEPT_MAX:
            self._kept.append(connection)
        else:
            connection.abort()

    async def _connect(self) -> _Connection:
        """Raises ConnectionAbortedError when who answers is not the other site: then nothing was sent."""
        loop = asyncio.get_running_loop()
        context = self._tls.caller() if self._is_secured and self._tls is not None else None
        transport, connection = await loop.create_connection(
            _Connection, self._host, self._port, ssl=context or self._by_name
        )
        if context is not None and self._tls is not None:
            wrong = self._tls.not_the_peer(transport.get_extra_info("peercert"))
            if wrong:
                connection.abort()
                raise ConnectionAbortedError(f"it is not the other site: {wrong}")
        return connection


class _Connection(asyncio.Protocol):
    """One connection: a call and its answer, then the next."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None  # None: closed
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None  # what the call under way waits for
        self._body = bytearray()
        self._taken = 0
        self._idle_s = self._loop.time()  # when the last call had its answer

    def is_fit(self, idle_max_s: float) -> bool:
        """False: it is closed, or something of a call is still under way, or it waits for too long already."""
        transport = self._transport
        return (
            transport is not None and not transport.is_closing() and self._answer is None
            and transport.get_write_buffer_size() == 0 and self._loop.time() - self._idle_s < idle_max_s
        )

    def ask(self, head: bytes, body: bytes, answer_bytes_max: int) -> asyncio.Future[tuple[int, bytes]]:
        """Send a request; the future has the answer's status and body. Raises ConnectionError."""
        if self._transport is None:
            raise ConnectionResetError("it was closed at once")
        self._parser = httptools.HttpResponseParser(self)
        self._body, self._taken, self._most = bytearray(), 0, answer_bytes_max + _AROUND_BYTES_MAX
        answer = self._answer = self._loop.create_future()
        self._transport.writelines((head, body))
        return answer

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(exc if isinstance(exc, OSError) else ConnectionResetError("the connection ended before its answer did"))

    def data_received(self, data: bytes) -> None:
        if self._answer is None:
            self.abort()
            return
        self._taken += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionAbortedError(f"its answer is no HTTP: {words(error)}"))
            self.abort()
        if self._taken > self._most:
            self._fail(ConnectionAbortedError("its answer is too long"))
            self.abort()

    # ---- called by the parser, inside of feed_data
    def on_message_begin(self) -> None:
        if self._answer is None:  # a second answer to one call
            self.abort()

    def on_body(self, part: bytes) -> None:
        self._body += part

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # the answer is still to come
            return
        self._end()
        if not self._parser.should_keep_alive():
            self.abort()

    def _end(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_result((self._parser.get_status_code(), bytes(self._body)))
        self._body, self._idle_s = bytearray(), self._loop.time()

    def _fail(self, error: OSError) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)
