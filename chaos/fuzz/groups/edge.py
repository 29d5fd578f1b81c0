"""The HTTP edge: raw bytes into the product's protocol over a transport in memory, plain, before TLS, and inside of it.

What must hold: nothing but answers comes of any bytes. No error leaves the protocol, the answers are whole HTTP of documented
statuses, the connection comes to rest, and once it is lost the server holds nothing of it.
"""

from __future__ import annotations

import asyncio
import functools
import gzip
import ssl
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import httptools
import uvicorn
from uvicorn.server import ServerState

from chaos.fuzz.pair import Pair, write_token_file
from chaos.fuzz.target import Target
from chaos.fuzz.wire import Wire
from gateway.http.hot_path import hot_protocol
from gateway.http.protocol import ConnectionLimits
from gateway.tls.contexts import public_context
from gateway.tls.figures import TlsFigures
from gateway.tls.handshake import TlsGate, behind_tls
from gateway.tls.issuing import Issuer
from gateway.tls.rates import HandshakeRates
from gateway.tls.settings import HttpTlsSettings

REST_S = 45.0  # longer than the site waits for the rest of a request, virtual
PAIR_INPUTS = 5000  # then a fresh pair
STATUSES = {
    100,
    200,
    201,
    202,
    204,
    304,
    400,
    401,
    403,
    404,
    405,
    406,
    408,
    409,
    410,
    412,
    413,
    415,
    421,
    422,
    429,
    431,
    501,
    503,
    505,
}


def targets() -> list[Target]:
    edge = Edge()
    return [
        Target("HTTP", _conversation, edge.plain, end=edge.end),
        Target("HTTP with a token", _authorised, edge.guarded, end=edge.end),
        Target("a port that speaks TLS", _hello, edge.sniffed, end=edge.end),
        Target("HTTP inside TLS", _conversation, edge.inside_tls, end=edge.end),
    ]


class Edge:
    """The doors of a pair, which is made anew now and then. A pair silences the process: so it must not outlive `end`."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._pair: Pair | None = None
        self._inputs = 0

    def end(self) -> None:
        self._pair = None
        self._held.close()

    def plain(self, data: bytes) -> list[int]:
        return self._converse(data, "open", lambda kind: kind)

    def guarded(self, data: bytes) -> list[int]:
        return self._converse(data, "guarded", lambda kind: kind)

    def sniffed(self, data: bytes) -> int:
        """Reads what a TLS port answers to bytes that are no TLS, or half of it: a problem, an alert, or nothing yet."""
        written, state = self._sent(data, "open", _behind_tls)
        assert not state.connections, "the server still holds the connection"
        return len(answers(written)) if written[:5] == b"HTTP/" else len(written)

    def inside_tls(self, data: bytes) -> list[int]:
        return self._converse(data, "open", _behind_tls, tls=True)

    # ---- a connection
    def _converse(self, data: bytes, door: str, shaped: Callable[[Any], Any], *, tls: bool = False) -> list[int]:
        written, _ = self._sent(data, door, shaped, tls=tls)
        statuses = answers(written)
        assert STATUSES.issuperset(statuses), f"a status that is not documented: {statuses}"
        return statuses

    def _sent(self, data: bytes, door: str, shaped: Callable[[Any], Any], *, tls: bool = False) -> tuple[bytes, ServerState]:
        pair = self._open_pair()
        app = pair.door(door)
        kind: Any = hot_protocol(app, ConnectionLimits())
        config, state = _config(app), ServerState()
        written = pair.run(_conversed(shaped(kind), config, state, data, tls))
        assert not state.tasks, "a request is still under way behind a lost connection"
        assert not state.connections, "the server still holds the connection"
        assert kind.places.served == 0, "its place is still taken"
        assert app.context.bodies.held_bytes == 0, "its body still has room"
        assert not pair.internal, f"an error that the product does not know: {pair.internal}"
        return written, state

    def _open_pair(self) -> Pair:
        self._inputs += 1
        if self._pair is None or self._inputs % PAIR_INPUTS == 0 or not self._pair.is_serving or self._pair.internal:
            self.end()
            folder = Path(self._held.enter_context(tempfile.TemporaryDirectory(prefix="twinlog-fuzz-")))
            write_token_file(folder / "tokens.json")
            self._pair = self._held.enter_context(Pair(self._inputs, folder))
        return self._pair


@functools.lru_cache(maxsize=8)
def _config(app: Any) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
    )
    config.load()
    return config


async def _conversed(kind: Any, config: uvicorn.Config, state: ServerState, data: bytes, tls: bool) -> bytes:
    """All that a fresh connection answers to `data`, in pieces that depend on it alone; it is half-closed, then lost."""
    chance = Random(data)
    wire = Wire()
    wire.protocol = kind(config=config, server_state=state, app_state={})
    wire.protocol.connection_made(wire)
    client = _TlsClient(wire) if tls else None
    for piece in _pieces(chance, data):
        await _until(lambda: not wire.paused or wire.closed or _waits(state))
        if wire.closed or wire.paused:  # a stream of events never ends, and what comes behind it is not read
            break
        for part in [piece] if client is None else client.sealed(piece, chance):
            if not wire.closed:
                wire.protocol.data_received(part)
        if chance.random() < 0.5:
            await asyncio.sleep(0)
    await _until(lambda: wire.closed or not state.tasks or _waits(state))
    if not wire.closed:
        wire.protocol.eof_received()
    await _until(lambda: wire.closed or not state.tasks or _waits(state))
    wire.closed = True
    wire.protocol.connection_lost(None if chance.random() < 0.5 else ConnectionResetError("reset"))
    await _until(lambda: not state.tasks)
    return client.read() if client is not None else bytes(wire.written)


def _waits(state: ServerState) -> bool:
    """The requests under way wait for the client: for the rest of a body, or with a stream of events that never ends."""
    for connection in state.connections:
        protocol: Any = connection
        cycle = getattr(protocol, "cycle", None)
        is_followed = getattr(protocol, "_followed_since", None) is not None
        if cycle is not None and not cycle.response_complete and not is_followed and not getattr(cycle, "more_body", False):
            return False
    return True


async def _until(holds: Callable[[], bool]) -> None:
    for turn in range(300):
        if holds():
            return
        await asyncio.sleep(0 if turn < 100 else REST_S / 200)
    raise AssertionError("the connection does not come to rest")


def _pieces(chance: Random, data: bytes) -> list[bytes]:
    if chance.random() < 0.1:
        return [data[at : at + 1] for at in range(min(len(data), 400))] + [data[400:]] * (len(data) > 400)
    places = sorted(chance.randrange(len(data) + 1) for _ in range(chance.choice((0, 0, 1, 2, 5))))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True) if start < end]


def answers(data: bytes) -> list[int]:
    """The statuses of the answers; what is no whole HTTP raises AssertionError. The last one may have been cut off by us."""
    found: list[int] = []

    class Reader:
        def on_headers_complete(self) -> None:
            found.append(parser.get_status_code())

    parser = httptools.HttpResponseParser(Reader())
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        status = int(head[9:12])
        assert head.startswith(b"HTTP/1.1 "), f"this is no answer: {data[:80]!r}"
        found.append(status)
        lower = head.lower()
        if b"\r\ntransfer-encoding: chunked" in lower:
            while rest:
                size = int(rest.partition(b"\r\n")[0], 16)
                rest = rest[rest.index(b"\r\n") + 2 + size + 2 :]
                if size == 0:
                    break
        elif b"\r\ncontent-length: " in lower and not rest.startswith(b"HTTP/1.1 "):
            rest = rest[int(lower.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]) :]
        data = rest
    return found


# ---- TLS
@functools.cache
def _gate() -> tuple[TlsGate, str]:
    folder = Path(tempfile.mkdtemp(prefix="twinlog-fuzz-"))
    issuer = Issuer(folder)
    issuer.make_ca("sim", 30)
    issued = issuer.make_site("sim", "a", ["localhost"], 30)
    context = public_context(HttpTlsSettings(certificate=issued.certificate, key=issued.key), datetime.now(UTC))
    figures, rates = TlsFigures(lambda: 0.0), HandshakeRates(1e9)
    return TlsGate("http", lambda: context, lambda certificate: "", figures, rates), str(folder / "ca.pem")


def _behind_tls(kind: Any) -> Any:
    return behind_tls(kind, _gate()[0])


class _TlsClient:
    """The client's end: its handshake is made by the first piece."""

    def __init__(self, wire: Wire) -> None:
        self._wire, self._in, self._out = wire, ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=_gate()[1])
        self._secured = context.wrap_bio(self._in, self._out, server_hostname="localhost")
        for _ in range(8):
            try:
                self._secured.do_handshake()
            except ssl.SSLWantReadError:
                self._exchange()
            else:
                break
        self._exchange()

    def _exchange(self) -> None:
        if out := self._out.read():
            self._wire.protocol.data_received(out)
        self._take()

    def _take(self) -> None:
        self._in.write(bytes(self._wire.written))
        self._wire.written.clear()

    def sealed(self, piece: bytes, chance: Random) -> list[bytes]:
        """The records of a piece; one in fifty is damaged on its way."""
        self._secured.write(piece)
        data = self._out.read()
        if chance.random() < 0.02:
            at = chance.randrange(len(data))
            data = data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :]
        middle = chance.randrange(len(data) + 1)
        return [part for part in (data[:middle], data[middle:]) if part]

    def read(self) -> bytes:
        self._take()
        parts = []
        try:
            while part := self._secured.read(1 << 16):
                parts.append(part)
        except ssl.SSLError:  # nothing more, or the alert to a damaged record
            pass
        return b"".join(parts)


# ---- what is sent
_TARGETS = (
    "/v1/tables/flights/rows/UA,1",
    "/v1/tables/flights/rows/UA,1",
    "/v1/tables/flights/rows/UA,99",
    "/v1/tables",
    "/v1/cluster",
    "/v1/tables/flights/rows?limit=3",
    "/health/ready",
    "/v1/tables/flights/rows/=VUE,3",
    "/v1/cluster/events",
    "/openapi.json",
    "/",
    "http://a/v1/tables/flights/rows/UA,2",
)
_BODY = b'{"note":"fuzzed","delay":1.5}'


def _conversation(chance: Random, *more: bytes) -> bytes:
    return b"".join(_request(chance, *more) for _ in range(chance.choice((1, 1, 2, 3, 6))))


def _authorised(chance: Random) -> bytes:
    token = chance.choice((b"twinlog_all", b"twinlog_reader", b"twinlog_writer", b"twinlog_nobody", b"a.b.c"))
    line = chance.choice((b"Authorization: Bearer %b", b"authorization: bearer %b", b"Authorization:  Bearer  %b "))
    return _conversation(chance, line % token)


def _request(chance: Random, *more: bytes) -> bytes:
    method = chance.choice((b"GET", b"GET", b"PUT", b"PUT", b"POST", b"DELETE", b"HEAD", b"OPTIONS", b"PATCH"))
    lines = [
        method + b" " + chance.choice(_TARGETS).encode() + b" HTTP/1." + chance.choice((b"1", b"1", b"1", b"0")),
        b"Host: a",
        *more,
    ]
    lines += chance.sample(
        (
            b"Accept: application/x-msgpack",
            b"Accept-Encoding: zstd, gzip;q=0.5",
            b"If-Match: *",
            b'If-None-Match: "1"',
            b"Expect: 100-continue",
            b"Idempotency-Key: one",
            b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABk",
            b"Connection: close",
            b"Upgrade: websocket\r\nConnection: upgrade",
            b"Twinlog-Deadline-S: 2",
            b"Origin: http://a",
            b"X-Long: " + b"x" * 3000,
        ),
        chance.choice((0, 0, 1, 2)),
    )
    if method in (b"GET", b"HEAD", b"OPTIONS", b"DELETE"):
        return b"\r\n".join([*lines, b"", b""])
    body, kind = chance.choice(
        ((_BODY, b""), (gzip.compress(_BODY, mtime=0), b"Content-Encoding: gzip\r\n"), (b"{}", b""), (b"[1", b""))
    )
    lines.append(kind + b"Content-Type: application/json")
    if chance.random() < 0.4:
        parts = [body[:7], body[7:]]
        chunks = b"".join(b"%x%b\r\n%b\r\n" % (len(part), chance.choice((b"", b";a=b")), part) for part in parts if part)
        trailer = chance.choice((b"", b"X-Trailer: y\r\n"))
        return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b""]) + chunks + b"0\r\n" + trailer + b"\r\n"
    return b"\r\n".join([*lines, b"Content-Length: %d" % len(body), b"", b""]) + body


def _hello(chance: Random) -> bytes:
    """The first message of a TLS client, or plain HTTP to the wrong port."""
    if chance.random() < 0.3:
        return _request(chance)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = chance.choice((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        secured.do_handshake()
    return outgoing.read()
