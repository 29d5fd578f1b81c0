"""The blocking HTTP client of the API, over http.client of the standard library. async_http.py is its asynchronous form.

What always holds: an attempt ends by its time-out, also where a site sends byte by byte, with a `Reply` or with a `Broken`
that says whether the request may have reached the site; a stream of events yields the data of each event, and raises only
errors of errors.py; a path with a segment `..` is an InvalidInput, and nothing is sent: folded on the way it would name
something else.
It is not httpx because that takes 120 ms of CPU to import where click and rich are installed, http.client 20 ms: a command in
the middle of a failover waits for it.
"""

from __future__ import annotations

import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

from twinlog.errors import InvalidInput, PeerError, words
from twinlog.problem_documents import error_from_problem
from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.tls import Tls, client_context, tls_words
from twinlog.wire.token import Token

CONNECT_TIMEOUT_S = 3.0
STREAM_BYTES = 256 << 10
EVENT_HEADERS = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
_LEFT_MIN_S = 0.001  # 0 would make a socket non-blocking
_IN_A_TARGET = "%/:?&=,;@!$'()*+~"


class Http:
    """Keeps connections alive. Safe to use from several threads. `tls`: for https addresses. `token`: who asks."""

    def __init__(self, tls: Tls | None = None, token: Token | None = None) -> None:
        self._tls, self._token = tls or Tls(), token
        self._context: ssl.SSLContext | None = None  # made when it is first needed: to read the system's CAs takes a while
        self._idle: dict[tuple[str, str], list[HTTPConnection]] = {}
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes what is idle now, and every other connection after its exchange."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, {}
        for connection in (one for some in idle.values() for one in some):
            connection.close()

    def send(self, request: SiteRequest) -> Reply | Broken:
        """One exchange. Raises InvalidInput where the request cannot be put on the wire: then nothing was sent."""
        url, deadline = urlsplit(unfolded(request.url)), time.monotonic() + request.timeout_s

        def left() -> float:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            return remaining

        headers = {**request.headers, **self._identity(request.url)}
        try:
            connection = self._take(url) or self._connected(url, min(request.timeout_s, CONNECT_TIMEOUT_S))
        except OSError as error:
            return Broken(False, _detail(error, "no connection in time"))
        whole = False
        try:
            response = _ask(connection, request.method, url, headers, request.content, left)
            content = response.read()
            whole = not response.will_close
        except (OSError, HTTPException) as error:
            return Broken(True, _detail(error, "no answer in time"))
        finally:
            self._give_back(url, connection, whole)
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def events(self, url: str, silence_s: float) -> Iterator[str]:
        """The data of each event until the site ends the stream. Raises PeerError when it breaks or is silent for so long."""
        parts, lines = urlsplit(unfolded(url)), EventLines()
        connection, headers = None, {**EVENT_HEADERS, **self._identity(url)}
        try:
            connection = self._connected(parts, min(silence_s, CONNECT_TIMEOUT_S))
            response = _ask(connection, "GET", parts, headers, b"", lambda: silence_s)
            if response.status != 200:
                raise error_from_problem(response.status, response.read())
            while line := response.readline():
                if (data := lines.take(line.decode("utf-8", "replace").rstrip("\r\n"))) is not None:
                    yield data
            response.check_end()
        except (OSError, HTTPException) as error:
            raise PeerError(f"{url}: the stream of events broke: {_detail(error, 'no answer in time')}", sent=True) from error
        finally:
            if connection is not None:
                connection.close()

    def stream(self, request: SiteRequest) -> Generator[bytes, None, None]:
        """The pieces of a long answer; `timeout_s` is for the silence between two of them. Raises PeerError when it breaks, and
        the error that the site answers with before the first piece."""
        parts = urlsplit(unfolded(request.url))
        connection, headers = None, {**request.headers, **self._identity(request.url)}
        try:
            connection = self._connected(parts, min(request.timeout_s, CONNECT_TIMEOUT_S))
            response = _ask(connection, request.method, parts, headers, request.content, lambda: request.timeout_s)
            if response.status != 200:
                raise error_from_problem(response.status, response.read())
            while piece := response.read1(STREAM_BYTES):
                yield piece
            response.check_end()
        except (OSError, HTTPException) as error:
            raise PeerError(f"{request.url}: the answer broke: {_detail(error, 'no answer in time')}", sent=True) from error
        finally:
            if connection is not None:
                connection.close()

    def _identity(self, url: str) -> Mapping[str, str]:
        return {} if self._token is None else self._token.headers(url)

    def _connected(self, url: SplitResult, timeout_s: float) -> HTTPConnection:
        """Raises OSError; ConfigError where a file of TLS is wrong."""
        if url.scheme == "https" and self._context is None:
            self._context = client_context(self._tls)
        return _connected(url, timeout_s, self._context)

    def _take(self, url: SplitResult) -> HTTPConnection | None:
        """An idle connection that the site has not closed meanwhile."""
        while True:
            with self._lock:
                idle = self._idle.get((url.scheme, url.netloc))
                if not idle:
                    return None
                connection = idle.pop()
            watched = select.poll()
            watched.register(connection.sock, select.POLLIN)
            if not watched.poll(0):
                return connection
            connection.close()  # an end, or bytes that nobody asked for

    def _give_back(self, url: SplitResult, connection: HTTPConnection, whole: bool) -> None:
        with self._lock:
            if whole and not self._closed and connection.sock is not None:
                self._idle.setdefault((url.scheme, url.netloc), []).append(connection)
                return
        connection.close()


class EventLines:
    """Collects the data of a server-sent event line by line; comments and other fields are left out."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def take(self, line: str) -> str | None:
        """The data of the event that an empty line ends; None until then."""
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            return data
        return None


def unfolded(url: str) -> str:
    """Returns `url`. Raises InvalidInput where a segment of its path is `.` or `..`, percent-encoded or not."""
    if "/." in url or "/%2" in url:
        path = urlsplit(url).path
        if any(unquote(segment) in (".", "..") for segment in path.split("/")):
            raise InvalidInput(
                f"{path[:200]!r} has a segment `.` or `..`, which is folded on the way and would name something else: nothing "
                "was sent; give a name (docs/api.md says how a key is written)"
            )
    return url


class _Timed(io.RawIOBase):
    """Reads a socket, each time for no longer than is left then. `ended`: the site has closed it, and that was read."""

    ended = False

    def __init__(self, sock: socket.socket, left: Callable[[], float]) -> None:
        self._sock, self._left = sock, left
        self._raw = sock.makefile("rb", buffering=0)  # keeps the socket open after the connection has let go of it

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(max(self._left(), _LEFT_MIN_S))
        count = self._raw.readinto(buffer) or 0
        self.ended = self.ended or not count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Answer(HTTPResponse):
    """A response over such a reader. Of the standard library's own, an end in the head, and in a chunk that is read by lines,
    look like the end of the answer."""

    def __init__(self, sock: socket.socket, left: Callable[[], float], *rest: Any, **more: Any) -> None:
        super().__init__(sock, *rest, **more)
        self.fp.close()
        self._timed = _Timed(sock, left)
        self.fp = io.BufferedReader(self._timed)

    def begin(self) -> None:
        super().begin()
        if self._timed.ended:
            raise HTTPException("the connection ended in the head of the answer")

    def check_end(self) -> None:
        """Raises IncompleteRead where an answer in chunks has no end, or one with a length is shorter."""
        if self._timed.ended and (self.chunked or self.length):
            raise IncompleteRead(b"")


def _connected(url: SplitResult, timeout_s: float, context: ssl.SSLContext | None) -> HTTPConnection:
    host = url.hostname or ""
    if url.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(host, url.port, timeout=timeout_s, context=context)
        connection.connect()
        return connection
    connection = HTTPConnection(host, url.port)
    address = host.encode() if host.isascii() else host  # the codec of other names takes 10 ms of CPU to import
    connection.sock = socket.create_connection((address, connection.port), timeout_s)  # type: ignore[arg-type]
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _ask(
    connection: HTTPConnection, method: str, url: SplitResult, headers: dict[str, str], content: bytes,
    left: Callable[[], float],
) -> _Answer:
    """The answer, read as far as its headers. `left`: seconds for the next wait; raises TimeoutError when there are none."""
    target = quote(url.path or "/", safe=_IN_A_TARGET) + (f"?{quote(url.query, safe=_IN_A_TARGET)}" if url.query else "")
    connection.sock.settimeout(left())
    connection.response_class = lambda sock, *rest, **more: _Answer(sock, left, *rest, **more)  # type: ignore[assignment]
    try:
        connection.request(method, target, content or None, headers)
    except ValueError as error:  # before the first byte: all headers are sent together
        raise InvalidInput(f"the request cannot be sent: {words(error)}") from None
    return connection.getresponse()  # type: ignore[return-value]


def _detail(error: Exception, late: str) -> str:
    return late if isinstance(error, TimeoutError) else tls_words(error)
