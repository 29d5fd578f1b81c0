"""Draws requests for the fuzzer of the HTTP door (differential.py): ordinary ones, odd forms of them, and what is none.

This module is pure. An odd form says the same as its plainest one by RFC 9112, so that both must be answered alike. What is
broken must be refused, and ends its connection: what stands behind it is no request.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

Header = tuple[bytes, bytes]
PIECES_MAX = 3000  # bytes of a conversation that is cut at every byte
UPGRADES = [
    [(b"Upgrade", b"h2c"), (b"Connection", b"Upgrade, HTTP2-Settings"), (b"HTTP2-Settings", b"AAEAAEAAAAIAAAABAAMAAABk")],
    [(b"Connection", b"upgrade"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Version", b"13")],
    [(b"upgrade", b"TLS/1.0, x/2"), (b"connection", b"keep-alive, Upgrade")],
]
TRAILERS = [
    [(b"Authorization", b"Bearer twinlog_nobody")],
    [(b"If-Match", b'"1"')], [(b"Idempotency-Key", b"trailer")], [(b"If-None-Match", b"*"), (b"Content-Type", b"text/html")],
    [(b"Accept", b"application/x-msgpack")], [(b"X-Other", b"y" * 300)],
]
HOSTS = [
    *[b"localhost"] * 12, b"LOCALHOST:1", b"a.localhost", b"127.0.0.1:8401", b"[::1]:8401", b"door.example", b"evil.example",
    b"", b"a b", b"localhost.", b"localhost:x", b"\xff",
]
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
    "\u00e9,1", "UA;1", "UA,1%20", "a" * 1100 + ",1", "../rows/UA,1", "%2e%2e/rows/UA,1", "%2E./UA,1", "/UA,1", "%2fUA,1",
    "UA,1%2f..", "UA,1?x", "UA,1\\", "%252e%252e",
]
TABLES = ["flights"] * 16 + [
    "fl%69ghts", "nope", "FLIGHTS", "", "%2e%2e", "%2566lights", "flights/", "x/../flights", "fli%00ghts",
]
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
    b"GET %b", b"PUT %b HTTP/2.0", b"P\xffT %b HTTP/1.1", b"CONNECT x:1 HTTP/1.1", b"GET \xff HTTP/1.1", b"PUT %b HTTP/0.9",
    b"PUT %b HTTP/1.2", b"PUT %b http/1.1", b"PUT\t%b HTTP/1.1", b"PUT %b HTTP/1.1 ", b" PUT %b HTTP/1.1",
    b"PUT %b HTTP/1.1\nX: y", b"PUT %b HTTP/1.1\r\n folded: y", b"PUT %b RTSP/1.0", b"GET localhost:80 HTTP/1.1",
    b"PUT x%b HTTP/1.1", b"GET * HTTP/1.1",
    b"PUT ftp://localhost%b HTTP/1.1", b"PUT http://u@localhost%b HTTP/1.1", b"GET http:///x HTTP/1.1", b"\x16\x03\x01",
]
AUTHORITIES = [b"localhost"] * 4 + [b"LOCALHOST:1", b"127.0.0.1:8401", b"door.example", b"evil.example", b"[::1]:8401"]
SPACES = [(b"", b""), (b"\t", b""), (b"   ", b"  "), (b" ", b"\t"), (b"\t \t", b" \t ")]  # around a value: no part of it
EXTENSIONS = [b";a=b", b";a", b';a="b;c";d', b";" + b"e" * 200]
SMUGGLED = b"DELETE /v1/tables/flights/rows/UA,1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = (b"Transfer-Encoding", b"chunked")
FRAMES = [
    *([(b"Content-Length", value)] for value in (
        b"-1", b"x", b"9" * 30, b"+5", b"5, 5", b"5 5", b"0x5", b"1_0", b"", b"1\r\n 0", b"18446744073709551621", b"\xd9\xa5",
    )),
    *([(b"Transfer-Encoding", value)] for value in (
        b"gzip", b"identity", b"gzip, chunked", b"chunked, chunked", b"chunked, gzip", b"chunked,", b",chunked", b"chunked\t",
        b"", b"chunked;q=1", b'"chunked"', b"\x0bchunked", b"xchunked", b"\r\n chunked", b"gzip,\r\n chunked",
    )),
    [(b"Content-Length", b"1"), (b"Content-Length", b"2")], [(b"Content-Length", b"5"), (b"Content-Length", b"5")],
    [(b"Content-Length", b"3"), CHUNKED], [CHUNKED, (b"Content-Length", b"3")], [(b"Content-Length", b"0"), CHUNKED],
    [CHUNKED, CHUNKED],
    [CHUNKED, (b"Transfer-Encoding", b"identity")], [(b"Transfer-Encoding", b"identity"), CHUNKED],
    [(b"Bad Name", b"x")], [(b"Content-Length ", b"5")], [(b"Transfer-Encoding ", b"chunked")], [(b"", b"x")], [(b"X\0", b"x")],
    [(b"X-Fold", b"a\r\n b")], [(b"X-Fold", b"a\r\n\tb")], [(b"X", b"a\nX-B: c")], [(b"X", b"a\rX-B: c")], [(b"X", b"a\r")],
    [(b"X", b"a\0b")], [(b"X-Long", b"l" * 40_000)], [(b"X-%d" % number, b"m" * 400) for number in range(100)],
]
CHUNKS = [
    b"x\r\n", b"2\r\nabc\r\n", b"1;" + b"e" * 50_000, b"0\r\nX: " + b"t" * 50_000, b"-1\r\n",
    b"2\n{}\r\n0\r\n\r\n", b"2\r\n{}\n0\r\n\r\n", b"2\r\n{}\r\n0\n\r\n", b"2\r\n{}0\r\n\r\n", b"\r\n{}\r\n0\r\n\r\n",
    *(size + b"\r\n{}\r\n0\r\n\r\n" for size in (
        b"0x2", b"+2", b"2 ", b" 2", b"2\t", b"2;a\rb", b"2;a\n", b'2;a="', b"10000000000000002", b"ffffffffffffffff",
        b"7FFFFFFFFFFFFFFF",
    )),
    *(b"2\r\n{}\r\n0\r\n" + trailer + b"\r\n\r\n" for trailer in (
        b"X: a\r\n b", b"Transfer-Encoding: chunked", b"Content-Length: 7", b"Bad Name: x", b"Connection: close",
        b"Upgrade: h2c\r\nConnection: Upgrade",
    )),
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
    size_form: bytes = b"%x"
    extension: bytes = b""
    trailers: list[Header] = field(default_factory=list)
    authority: bytes = b""  # the target is a whole address, whose host counts
    blank: bytes = b""  # lines before the request
    gap: bytes = b" "  # in the request line
    space: Header = (b" ", b"")  # before and behind each value
    coding: bytes = b"chunked"
    broken: bytes = b""

    def plainest(self) -> bytes:
        frame = [] if self.body is None else [(b"Content-Length", b"%d" % len(self.body))]
        headers = [
            (name, self.authority if self.authority and name.lower() == b"host" else value) for name, value in self.headers
        ]
        return _head([self.method, self.target, self.version], headers + frame) + (self.body or b"")

    def drawn(self) -> bytes:
        if self.broken:
            return self.broken
        line = [self.method, b"http://" + self.authority + self.target if self.authority else self.target, self.version]
        if self.chunks is None or self.body is None:
            frame = [] if self.body is None else [(b"content-length", b"%d" % len(self.body))]
            headers = frame + self.headers + self.upgrade
            return self.blank + _head(line, headers, self.gap, self.space) + (self.body or b"")
        framed = b"transfer-encoding:%b%b\r\n" % (self.space[0], self.coding)  # the parser knows no tab behind it
        head = _head(line, [*self.upgrade, *self.headers], self.gap, self.space)[:-2]
        parts = [self.blank, head, framed, b"\r\n"]
        at = 0
        for size in [*self.chunks, len(self.body)]:
            if part := self.body[at : at + size]:
                parts.append(b"%b%b\r\n%b\r\n" % (self.size_form % len(part), self.extension, part))
            at += size
        trailers = (b"%b: %b\r\n" % trailer for trailer in self.trailers)
        return b"".join([*parts, self.size_form % 0, self.extension, b"\r\n", *trailers, b"\r\n"])


def _head(line: list[bytes], headers: list[Header], gap: bytes = b" ", space: Header = (b" ", b"")) -> bytes:
    fields = (b"%b:%b%b%b\r\n" % (name, space[0], value, space[1]) for name, value in headers)
    return b"%b\r\n%b\r\n" % (gap.join(line), b"".join(fields))


def draw_authorization(rng: random.Random, tokens: Mapping[str, str]) -> list[Header]:
    """Returns the headers by which a request says who asks: mostly one good one, or none, or what is none."""
    if rng.random() < 0.1:
        return []
    values = [token.encode() for token in tokens.values()]
    good = tokens[rng.choice(("reader", "writer"))].encode() if rng.random() < 0.5 else rng.choice(values)
    forms = [b"Bearer " + good] * 50 + [
        b"bearer " + good, b"BEARER " + good, b"Bearer  " + good, b"Bearer\t" + good, b"Bearer" + good, b"Bearer", b"Bearer ",
        b"",
        good, b"Basic YTpi", b"Bearer " + good[:-1], b"Bearer " + good + b"x", b"Bearer " + good + b" " + good, b"Bearer \xff",
        b"Bearer " + good + b"\xc3\xa9", b"Bearer " + good.upper(), b"Bearer twinlog_nobody", b"Bearer a.b.c", b"Bearer .." ,
        b"Bearer " + b"t" * 17_000, b"Bearer " + good + b", Bearer " + good, b"Bearer, " + good, b'Bearer "' + good + b'"',
    ]
    headers = [(rng.choice((b"Authorization", b"authorization", b"AUTHORIZATION")), rng.choice(forms))]
    if rng.random() < 0.06:
        headers.append((b"Authorization", rng.choice((headers[0][1], b"Bearer " + rng.choice(values), b""))))
    return headers


def draw_request(rng: random.Random, *, last: bool) -> Drawn:
    method = rng.choice([b"PUT"] * 8 + [b"GET"] * 6 + [b"DELETE", b"PATCH", b"POST", b"HEAD", b"OPTIONS", b"put"])
    key = rng.choice(KEYS[:3] if rng.random() < 0.6 else KEYS)
    target = f"/v1/tables/{rng.choice(TABLES)}/rows/{key}{rng.choice(QUERIES)}".encode()
    if rng.random() < 0.02:
        target = rng.choice([
            b"/" + target, target + b"/", b"/health/live", b"/", b"/?x=1", target.replace(b"/rows", b"//rows"),
            target.replace(b"/rows", b"%2Frows"), target.replace(b"v1", b"v%31"), target.replace(b"/", b"\\"),
        ])
    names = [*[b"Host"] * rng.choice((0, 2, *[1] * 40)), *rng.choices(OFTEN, k=rng.choice((0, 0, 1, 1, 2, 3, 5)))]
    headers = [(rng.choice((name, name.lower(), name.upper())), rng.choice(VALUES[name])) for name in names]
    if rng.random() < 0.85 and method in (b"PUT", b"PATCH", b"POST"):
        headers.append((b"Content-Type", b"application/json"))
    if last and rng.random() < 0.2:
        headers.append((b"Connection", b"close"))
    if rng.random() < 0.03:
        headers.append((b"Expect", rng.choice((b"100-continue", b"100-Continue", b"100-continue, x", b"other"))))
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
        request.extension = rng.choice([b"", b"", b"", b"", *EXTENSIONS])
        request.size_form = rng.choice((b"%x", b"%x", b"%X", b"%03x", b"%030X"))
        request.coding = rng.choice((b"chunked", b"chunked", b"Chunked", b"CHUNKED"))
        request.trailers = rng.choice(TRAILERS) if rng.random() < 0.5 else []
    _make_odd(rng, request)
    if last and rng.random() < 0.03:
        request.version = b"HTTP/1.0"
        request.chunks = None
        if rng.random() < 0.5:
            headers.append((b"Connection", b"keep-alive"))
    if last and rng.random() < 0.06:
        request.broken = _broken(rng, request)
    return request


def _make_odd(rng: random.Random, request: Drawn) -> None:
    """Gives a request a form that says the same."""
    if rng.random() < 0.1:
        request.space = rng.choice(SPACES)
    if rng.random() < 0.05:
        request.gap = rng.choice((b"  ", b"    "))
    if rng.random() < 0.08:
        request.blank = rng.choice((b"\r\n", b"\r\n\r\n", b"\n", b"\n\r\n" * 200))
    hosts = sum(name.lower() == b"host" for name, _ in request.headers)
    if rng.random() < 0.05 and request.target.startswith(b"/") and hosts == 1:
        request.authority = rng.choice(AUTHORITIES)


def _broken(rng: random.Random, request: Drawn) -> bytes:
    """Returns what must be refused, and behind it a request that nobody may see."""
    whole = request.plainest()
    match rng.randrange(5):
        case 0:
            return whole[: rng.randrange(1, len(whole))] if len(whole) > 1 else whole
        case 1:
            line = rng.choice(LINES)
            return (line % request.target if b"%b" in line else line) + b"\r\nhost: localhost\r\n\r\n" + SMUGGLED
        case 2:
            line_parts = [request.method, request.target, request.version]
            return _head(line_parts, request.headers + rng.choice(FRAMES)) + (request.body or b"") + SMUGGLED
        case 3:
            line_parts = [request.method, request.target, b"HTTP/1.0"]
            return _head(line_parts, [*request.headers, CHUNKED]) + b"2\r\n{}\r\n0\r\n\r\n" + SMUGGLED
        case _:
            head = _head([request.method, request.target, b"HTTP/1.1"], [*request.headers, CHUNKED])
            return head + rng.choice(CHUNKS) + SMUGGLED


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    if len(data) <= PIECES_MAX and rng.random() < 0.5:
        return [data[at : at + 1] for at in range(len(data))]
    if rng.random() < 0.2:
        return data.replace(b"\r", b"\r\0cut").split(b"\0cut")  # between the two bytes of each line's end
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(1, 12)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True) if start < end]
