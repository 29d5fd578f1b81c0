"""A fuzzer that compares the hot path with the plain routes: `make fuzz`, or `python -m tests.gateway.http.differential`.

It draws conversations, each of some requests on one connection, and holds them with five doors that have the same history:
hot and plain, each with the bytes in one piece and cut at drawn places or at every byte; and one that gets each request in its
plainest form, one after the other: with its length, without `Upgrade`, extensions and trailers. All five must give the same
answers and keep the same rows. No socket is involved, so that a piece is a piece and nothing depends on time.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import uvicorn
from uvicorn.server import ServerState

from gateway.http.app import build_app
from gateway.http.hot_path import hot_protocol
from gateway.http.protocol import ConnectionLimits, DoorProtocol
from gateway.service.http_settings import HttpSettings
from tests.gateway.dict_service import DictService
from tests.gateway.door_client import FLIGHTS

Header = tuple[bytes, bytes]
Answered = tuple[int, tuple[Header, ...], bytes]
TURNS_MAX = 1_000_000
PIECES_MAX = 3000  # bytes of a conversation that is cut at every byte
UPGRADES = [
    [(b"Upgrade", b"h2c"), (b"Connection", b"Upgrade, HTTP2-Settings"), (b"HTTP2-Settings", b"AAEAAEAAAAIAAAABAAMAAABk")],
    [(b"Connection", b"upgrade"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Version", b"13")],
    [(b"upgrade", b"TLS/1.0, x/2"), (b"connection", b"keep-alive, Upgrade")],
]
TRAILERS = [
    [(b"If-Match", b'"1"')], [(b"Idempotency-Key", b"trailer")], [(b"If-None-Match", b"*"), (b"Content-Type", b"text/html")],
    [(b"Accept", b"application/x-msgpack")], [(b"X-Other", b"y" * 300)],
]
HOSTS = [
    *[b"localhost"] * 12, b"LOCALHOST:1", b"a.localhost", b"127.0.0.1:8401", b"[::1]:8401", b"door.example", b"evil.example",
    b"", b"a b", b"localhost.", b"localhost:x", b"\xff",
]
SETTINGS = HttpSettings(allowed_hosts=("door.example",), cors_origins=("https://app.example",))
VALUES: dict[bytes, list[bytes]] = {
    b"Content-Type": [b"application/json", b"application/json; charset=utf-8", b"application/x-msgpack", b"text/plain", b""],
    b"Accept": [b"*/*", b"application/json", b"application/x-msgpack", b"text/html", b"text/html, application/x-msgpack;q=1"],
    b"Accept-Encoding": [b"gzip", b"zstd", b"gzip;q=0.5, zstd;q=0.1", b"br", b"*", b"identity", b""],
    b"Content-Encoding": [b"gzip", b"zstd", b"identity", b"br", b""],
    b"If-Match": [
        b"*", b'"1"', b'"1700000000000"', b'W/"1"', b'"x"', b'"1", "2"', b"", b'"111411200000000001"', b'"1.0123456789ab"',
    ],
    b"If-None-Match": [b"*", b'"1"', b'"111411200000000001"', b"nonsense", b'"1","2"', b'W/"111411200000000001"', b'"x"'],
    b"Idempotency-Key": [b"one", b"two", b"three", b"", b"with space", b"\xff", b"k" * 129],
    b"Twinlog-Deadline-S": [b"1", b"0", b"-1", b"nan", b"0.5", b"x", b"1e9"],
    b"Host": HOSTS,
    b"Origin": [b"http://localhost", b"https://app.example", b"https://evil.example", b"null", b""],
    b"X-Other": [b"y", b"\xc3\xa9", b"z" * 900],
}
OFTEN = [name for name in VALUES if name != b"Host"]
KEYS = [
    "UA,1", "UA,2", "UA,1", "%55A,1", "UA%2C1", "a%2Fb,1", "a/b,1", "UA,x", "UA", "UA,1,2", "", "UA,1/", "%,1", "%zz,1", "..,1",
    "%2e%2e,1", ".", "%C3%A9,1", "%ff,1", "UA,1:check", "UA,-2147483648", "UA,2147483648", "UA,1.0", "+,1", "%00,1", "UA,%31",
    "\u00e9,1", "UA;1", "UA,1%20", "a" * 1100 + ",1",
]
TABLES = ["flights"] * 12 + ["fl%69ghts", "nope", "FLIGHTS", "", "%2e%2e"]
QUERIES = [""] * 14 + [
    "?", "?columns=note", "?columns=nope", "?as_of=1", "?stale=true", "?versions=number", "?int64=string", "?x=1", "#part",
    "?columns=note#p",
]
BODIES: list[bytes] = [
    b"{}", b'{"note":"a"}', b'{"note":"b","delay":1.5}', b'{"carrier":"UA","flight":1}', b'{"carrier":"DL"}', b'{"nope":1}',
    b'{"delay":null,"at":"2013-01-01T05:00:00Z","raw":"AAE="}', b'{"note":null}', b'{"flight":"1"}', b"", b"[]", b"null", b"{",
    b'{"note":"\xff"}', b'{"more":{"a":[1,2,{"b":null}]}}', b'{"note":"' + b"x" * 9000 + b'"}', b"\x80",
    b'{"note":"\\ud800"}', b'{"delay":1e999}',
    gzip.compress(b'{"note":"packed"}', mtime=0), pa.Codec("zstd").compress(b'{"note":"packed"}', asbytes=True),
    gzip.compress(bytes(5 << 20), mtime=0), gzip.compress(b'{"note":"cut"}', mtime=0)[:-3],
    msgspec.msgpack.encode({"note": "m"}), msgspec.msgpack.encode({"raw": b"\0\1", "at": 5}), b"[" * 2000, b" {} ",
    b"DELETE /v1/tables/flights/rows/UA,1 HTTP/1.1\r\nhost: localhost\r\n\r\n",
]
MAGIC = {b"gzip": b"\x1f\x8b", b"zstd": b"\x28\xb5\x2f\xfd"}
LINES = [
    b"GET %b", b"PUT %b HTTP/2.0", b"P\xffT %b HTTP/1.1", b"PUT  %b HTTP/1.1", b"CONNECT x:1 HTTP/1.1", b"GET \xff HTTP/1.1",
]
FRAMES = [
    [(b"Content-Length", b"-1")], [(b"Content-Length", b"x")], [(b"Content-Length", b"1"), (b"Content-Length", b"2")],
    [(b"Content-Length", b"3"), (b"Transfer-Encoding", b"chunked")], [(b"Transfer-Encoding", b"gzip")], [(b"Bad Name", b"x")],
    [(b"X-Long", b"l" * 40_000)], [(b"X-%d" % number, b"m" * 400) for number in range(100)], [(b"Content-Length", b"9" * 30)],
]
CHUNKS = [
    b"x\r\n", b"2\r\nabc\r\n", b"1;" + b"e" * 50_000, b"0\r\nX: " + b"t" * 50_000, b"0\r\nContent-Length: 7\r\n\r\n", b"-1\r\n",
]


@dataclass
class Drawn:
    """One request, and how its bytes look. `broken`: it is no HTTP, or its frame is wrong: the connection ends there."""

    method: bytes
    target: bytes
    headers: list[Header]
    body: bytes | None
    version: bytes = b"HTTP/1.1"
    upgrade: list[Header] = field(default_factory=list)
    chunks: list[int] | None = None
    extension: bytes = b""
    trailers: list[Header] = field(default_factory=list)
    broken: bytes = b""

    def plainest(self) -> bytes:
        frame = [] if self.body is None else [(b"Content-Length", b"%d" % len(self.body))]
        return self._head(self.headers + frame) + (self.body or b"")

    def drawn(self) -> bytes:
        if self.broken or self.chunks is None or self.body is None:
            frame = [] if self.body is None else [(b"content-length", b"%d" % len(self.body))]
            return self.broken or self._head(frame + self.headers + self.upgrade) + (self.body or b"")
        parts = [self._head([*self.upgrade, (b"transfer-encoding", b"chunked"), *self.headers])]
        at = 0
        for size in [*self.chunks, len(self.body)]:
            if part := self.body[at : at + size]:
                parts.append(b"%x%b\r\n%b\r\n" % (len(part), self.extension, part))
            at += size
        parts += [b"0\r\n", *(b"%b: %b\r\n" % trailer for trailer in self.trailers), b"\r\n"]
        return b"".join(parts)

    def _head(self, headers: list[Header]) -> bytes:
        return b"%b %b %b\r\n%b\r\n" % (
            self.method, self.target, self.version, b"".join(b"%b: %b\r\n" % header for header in headers)
        )


def draw_request(rng: random.Random, *, last: bool) -> Drawn:
    method = rng.choice([b"PUT"] * 8 + [b"GET"] * 6 + [b"DELETE", b"PATCH", b"POST", b"HEAD", b"OPTIONS", b"put"])
    key = rng.choice(KEYS[:3] if rng.random() < 0.6 else KEYS)
    target = f"/v1/tables/{rng.choice(TABLES)}/rows/{key}{rng.choice(QUERIES)}".encode()
    if rng.random() < 0.02:
        target = rng.choice([b"http://localhost" + target, b"/" + target, target + b"/", b"*", b"/health/live"])
    names = [*[b"Host"] * rng.choice((0, 2, *[1] * 40)), *rng.choices(OFTEN, k=rng.choice((0, 0, 1, 1, 2, 3, 5)))]
    headers = [(rng.choice((name, name.lower(), name.upper())), rng.choice(VALUES[name])) for name in names]
    if rng.random() < 0.85 and method in (b"PUT", b"PATCH", b"POST"):
        headers.append((b"Content-Type", b"application/json"))
    if last and rng.random() < 0.2:
        headers.append((b"Connection", b"close"))
    if rng.random() < 0.03:
        headers.append((b"Expect", b"100-continue"))
    has_body = method not in (b"GET", b"HEAD", b"OPTIONS", b"DELETE") or rng.random() < 0.05
    request = Drawn(method, target, headers, rng.choice(BODIES[:3] if rng.random() < 0.5 else BODIES) if has_body else None)
    coding = next((name for name, magic in MAGIC.items() if request.body is not None and request.body.startswith(magic)), None)
    if coding is not None and rng.random() < 0.8:
        headers += [(b"Content-Encoding", coding), (b"Content-Type", b"application/json")]
    rng.shuffle(headers)
    if has_body and rng.random() < 0.02:
        request.body = None
    if rng.random() < 0.15:
        request.upgrade = rng.choice(UPGRADES)
    if request.body is not None and rng.random() < 0.25:
        request.chunks = [rng.choice((1, 2, 5, 50, 5000)) for _ in range(rng.randrange(4))]
        request.extension = rng.choice((b"", b"", b";a=b", b";" + b"e" * 200))
        request.trailers = rng.choice(TRAILERS) if rng.random() < 0.5 else []
    if last and rng.random() < 0.03:
        request.version = b"HTTP/1.0"
        request.chunks = None
    if last and rng.random() < 0.06:
        request.broken = _broken(rng, request)
    return request


def _broken(rng: random.Random, request: Drawn) -> bytes:
    whole = request.plainest()
    match rng.randrange(4):
        case 0:
            return whole[: rng.randrange(1, len(whole))] if len(whole) > 1 else whole
        case 1:
            line = rng.choice(LINES)
            return (line % request.target if b"%b" in line else line) + b"\r\nhost: localhost\r\n\r\n"
        case 2:
            return request._head(request.headers + rng.choice(FRAMES)) + (request.body or b"")
        case _:
            head = request._head([*request.headers, (b"Transfer-Encoding", b"chunked")])
            return head + rng.choice(CHUNKS)


class Wire:
    """A transport in memory: it keeps what is written, and says whether more may be read."""

    def __init__(self) -> None:
        self.written = bytearray()
        self.closed = self.paused = False

    def write(self, data: bytes) -> None:
        assert not self.closed, "something is written to a closed connection"
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return not self.paused

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Door:
    """A site's door over a service of its own, without a server."""

    def __init__(self, *, hot: bool, limits: ConnectionLimits | None = None) -> None:
        self.service, self._hot = DictService(), hot
        self._limits = limits or ConnectionLimits()

    async def open(self) -> None:
        await self.service.tables.create(FLIGHTS)
        app = build_app(self.service.ports, SETTINGS, now_s=time.perf_counter, new_id=lambda: "incident-1")
        plain = type("Plain", (DoorProtocol,), {"limits": self._limits, "addresses": Counter()})
        kind = hot_protocol(app, self._limits) if self._hot else plain
        self._config = uvicorn.Config(app, http=kind, ws="none", lifespan="off", log_config=None, access_log=False)
        self._config.load()
        self._kind, self._state = kind, ServerState()

    async def converse(self, pieces: Iterator[bytes], lost: Exception | None = None) -> bytes:
        """Returns all that a fresh connection answers to `pieces`; it is half-closed behind them, and lost with `lost`."""
        wire = Wire()
        protocol = self._kind(self._config, self._state, {})
        protocol.connection_made(wire)
        for piece in pieces:
            await self._settle(protocol, wire, reads=True)
            if protocol.transport.is_closing():
                break
            protocol.data_received(piece)
        await self._settle(protocol, wire, reads=False)
        if not protocol.transport.is_closing():
            protocol.eof_received()
        wire.closed = True
        protocol.connection_lost(lost)
        await self._settle(protocol, wire, reads=False)
        return bytes(wire.written)

    async def _settle(self, protocol: Any, wire: Wire, *, reads: bool) -> None:
        """Waits while the connection is not read, or until nothing is under way."""
        for _ in range(TURNS_MAX):
            under_way = self._state.tasks and not _is_waiting_for_more(protocol)
            if not (wire.paused if reads else under_way) or protocol.transport.is_closing():
                return
            await asyncio.sleep(0)  # each turn is looked at, also while a thread expands a body
        raise AssertionError("the connection does not come to rest")

    async def rows(self) -> list[Any]:
        table = self.service.tables.get("flights")
        found = await self.service.engine.scan(table.id, None, None, reverse=False, limit=1000)
        return [(row.key, row.value, row.version) for row in found]


def _is_waiting_for_more(protocol: Any) -> bool:
    """The only request under way waits for the rest of its body."""
    cycle = protocol.cycle
    if not protocol._arriving or protocol.pipeline:
        return False
    return cycle is None or cycle.response_complete or (not protocol._in_head and getattr(cycle, "more_body", True))


def answers(data: bytes, methods: list[bytes]) -> list[Answered]:
    """Returns the answers in `data`, to requests of these methods, without interim ones, dates and the way they are framed."""
    found: list[Answered] = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        line, *fields = head.split(b"\r\n")
        status = int(line.split(b" ")[1])
        if status == 100:
            continue
        headers = [(name.lower(), value) for name, _, value in (one.partition(b": ") for one in fields)]
        named = dict(headers)
        method = methods[len(found)] if len(found) < len(methods) else b""
        body = b""
        if named.get(b"transfer-encoding") == b"chunked":
            while (size := int(data.partition(b"\r\n")[0], 16)) > 0:
                start = data.index(b"\r\n") + 2
                body, data = body + data[start : start + size], data[start + size + 2 :]
            data = data[data.index(b"\r\n") + 4 :]
        elif method != b"HEAD" or data[:9] not in (b"HTTP/1.1 ", b""):  # a refusal has its body, whatever the method
            size = int(named.get(b"content-length", b"0"))
            body, data = data[:size], data[size:]
        kept = [header for header in headers if header[0] not in (b"date", b"transfer-encoding", b"content-length")]
        found.append((status, tuple(sorted(kept)), body))
    return found


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    if len(data) <= PIECES_MAX and rng.random() < 0.5:
        return [data[at : at + 1] for at in range(len(data))]
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 12)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True) if start < end]


@dataclass
class Fuzzer:
    """Compares conversation after conversation. `requests`, `refused`: how many requests were sent, and answered with 4xx."""

    seed: int
    requests: int = 0
    refused: int = 0

    async def open(self) -> None:
        self._doors = {
            name: Door(hot=name.startswith("hot")) for name in ("hot", "hot in pieces", "plain", "plain in pieces", "plainest")
        }
        for door in self._doors.values():
            await door.open()

    async def converse(self, number: int) -> None:
        """Holds one conversation with every door. Raises AssertionError that shows it, and where they differ."""
        rng = random.Random(f"{self.seed} {number}")
        count = rng.choice((1, 1, 2, 3, 6, 30))
        drawn = [draw_request(rng, last=place == count - 1) for place in range(count)]
        methods = [request.method for request in drawn]
        whole = b"".join(request.drawn() for request in drawn)
        pieces = cut(rng, whole)
        sent = {"hot": [whole], "plain": [whole], "hot in pieces": pieces, "plain in pieces": pieces}
        got = {name: answers(await self._doors[name].converse(iter(data)), methods) for name, data in sent.items()}
        plainest = [request.plainest() for request in drawn if not request.broken]
        got["plainest"] = answers(await self._doors["plainest"].converse(iter(plainest)), methods)
        self.requests += count
        self.refused += sum(status >= 400 for status, _, _ in got["hot"])
        if drawn[-1].broken:
            got["plainest"] = got["plainest"] + got["hot"][len(got["plainest"]) :]
        for name, found in got.items():
            if found != got["hot"]:
                raise AssertionError(_difference(self.seed, number, whole, got["hot"], name, found))
        rows = [await door.rows() for door in self._doors.values()]
        if any(one != rows[0] for one in rows):
            raise AssertionError(f"seed {self.seed}, conversation {number}: other rows behind {whole[:3000]!r}")


def _difference(seed: int, number: int, sent: bytes, hot: list[Answered], name: str, other: list[Answered]) -> str:
    pairs = enumerate(zip(hot, other, strict=False))
    place = next((at for at, (one, two) in pairs if one != two), min(len(hot), len(other)))
    shown = [repr(found[place : place + 1]) for found in (hot, other)]
    return (
        f"seed {seed}, conversation {number}: answer {place} of hot ({len(hot)} answers) and {name} ({len(other)}) differ\n"
        f"hot: {shown[0]}\n{name}: {shown[1]}\nsent: {sent[:6000]!r}"
    )


async def run(requests: int, seed: int) -> Fuzzer:
    """Compares until so many requests were sent. Raises AssertionError."""
    fuzzer = Fuzzer(seed)
    await fuzzer.open()
    number = 0
    while fuzzer.requests < requests:
        await fuzzer.converse(number)
        number += 1
    return fuzzer


def main() -> int:
    parser = argparse.ArgumentParser(prog="differential", description=__doc__)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    chosen = parser.parse_args()
    try:
        fuzzer = asyncio.run(run(chosen.requests, chosen.seed))
    except AssertionError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    counts = f"{fuzzer.requests:,} requests, {fuzzer.refused:,} refused, seed {chosen.seed}"
    sys.stdout.write(f"{counts}: hot and plain answer the same\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
