"""Forms of a request that HTTP allows, or forbids: each has one reading (RFC 9112), whichever path serves it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.http.protocol import ConnectionLimits
from tests.gateway.door_client import ROWS, DoorClient, served_door
from tests.gateway.http.differential import Answered, Door, answers, is_last

BODY = b'{"note":"a"}'
LINE = f"PUT {ROWS}/UA,1".encode()
FIELDS = b"Host: localhost\r\nContent-Type: application/json\r\n"
PUT = LINE + b" HTTP/1.1\r\n" + FIELDS + b"Content-Length: 12\r\n\r\n" + BODY
CHUNKS = b"c\r\n" + BODY + b"\r\n0\r\n"
GET = f"GET {ROWS}/UA,1".encode()
LAST = GET + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
DELETE = f"DELETE {ROWS}/UA,1 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
paths = pytest.mark.parametrize("query", [b"", b"?"], ids=["hot", "plain"])


async def _converse(data: bytes) -> tuple[list[Answered], int]:
    """Returns the answers of a fresh door, whole and in bytes alike, and how many rows it has then."""
    found = []
    for size in (len(data), 1):
        door = Door(hot=True)
        await door.open()
        said = await door.converse(data[at : at + size] for at in range(0, len(data), size))
        found.append((answers(said, [b"PUT"] * 30), len(await door.rows())))
    assert found[0] == found[1]
    return found[0]


def _statuses(found: list[Answered]) -> list[int]:
    return [status for status, _, _ in found]


@paths
@pytest.mark.parametrize("space", [b" ", b"\t", b" \t \t"])
async def test_white_space_behind_a_value_is_no_part_of_it(query: bytes, space: bytes) -> None:
    """A proxy that takes it away, and one that leaves it, send the same key: the second write repeats the first."""
    line = LINE + query + b" HTTP/1.1\r\n"
    bare = b"Host: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: one\r\nContent-Length: 12\r\n"
    spaced = bare.replace(b"\r", space + b"\r")
    found, _ = await _converse(b"".join(line + fields + b"\r\n" + BODY for fields in (bare, spaced)))
    assert _statuses(found) == [200, 200], found
    assert found[0][2] == found[1][2]


@pytest.mark.parametrize(("target", "status"), [
    (b"http://localhost" + GET[4:], 404), (b"HTTPS://127.0.0.1:8401" + GET[4:], 404), (b"http://evil.example" + GET[4:], 403),
    (b"http://localhost", 200), (b"http://localhost?", 200), (b"http://evil.example", 403), (b"http://a b/", 400),
    (b"http://user@localhost/", 400), (b"ftp://localhost/", 400), (b"http:///x", 400), (b"localhost:80", 400), (b"*", 400),
])
async def test_the_host_of_a_whole_address_counts(target: bytes, status: int) -> None:
    """Not what Host says, so that no proxy and this site see two sites in one request."""
    for host in (b"localhost", b"evil.example"):
        found, _ = await _converse(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert _statuses(found) == [status], found


async def test_options_of_a_whole_address_without_a_path() -> None:
    found, _ = await _converse(b"OPTIONS http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert _statuses(found) == [204]


@pytest.mark.parametrize("target", [b"http://user@localhost", b"ftp://localhost/", b"http://"])
@pytest.mark.parametrize("before", [0, 1, 2, 5])
async def test_a_refused_head_takes_no_answer_from_those_before_it(target: bytes, before: int) -> None:
    """The writes before it are under way or wait, and are applied: each gets its own answer."""
    found, rows = await _converse(PUT * before + b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n" + DELETE)
    assert _statuses(found) == [200] * before + [400]
    assert rows == min(before, 1)


@paths
@pytest.mark.parametrize("trailer", [b"Connection: close", b"connection: Upgrade\r\nUpgrade: h2c", b"PROXY-CONNECTION: close"])
async def test_a_trailer_does_not_end_the_connection_unsaid(query: bytes, trailer: bytes) -> None:
    """An answer that leaves the connection open, and then no other answer, would let a client wait for ever."""
    put = LINE + query + b" HTTP/1.1\r\n" + FIELDS + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + trailer + b"\r\n\r\n"
    found, rows = await _converse(put + DELETE)
    assert _statuses(found) == [400]
    assert is_last(found[0])
    assert b"trailer" in found[0][2]
    assert rows == 0


async def test_http_1_0_knows_no_chunks() -> None:
    """A proxy in HTTP/1.0 does not know where such a request ends."""
    old = LINE + b" HTTP/1.0\r\n" + FIELDS + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS + b"\r\n"
    found, rows = await _converse(old + DELETE)
    assert _statuses(found) == [400]
    assert rows == 0


@pytest.mark.parametrize("keep", [b"", b"Connection: keep-alive\r\n"])
async def test_http_1_0_gets_one_answer_and_no_interim_one(keep: bytes) -> None:
    door = Door(hot=True)
    await door.open()
    old = LINE + b" HTTP/1.0\r\n" + FIELDS + keep + b"Expect: 100-continue\r\nContent-Length: 12\r\n\r\n" + BODY
    said = await door.converse(iter([old + DELETE]))
    assert said.startswith(b"HTTP/1.1 200 ")
    assert said.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in said
    assert len(await door.rows()) == 1


@paths
@pytest.mark.parametrize(("version", "status"), [(b"2.0", 505), (b"0.9", 505), (b"1.2", 400), (b"3.0", 400)])
async def test_other_versions_are_refused(query: bytes, version: bytes, status: int) -> None:
    found, rows = await _converse(PUT.replace(b"1.1", version).replace(b"UA,1", b"UA,1" + query) + DELETE)
    assert _statuses(found) == [status]
    assert rows == 0


@pytest.mark.parametrize(("fields", "words"), [
    (b"X: a\r\n b\r\n", b"whitespace"), (b"Content-Length: +5\r\n", b"Content-Length"), (b"Content-Length : 5\r\n", b"header"),
    (b"Content-Length: 5\r\nContent-Length: 5\r\n", b"Content-Length"),
    (b"Transfer-Encoding: chunked\r\n" * 2, b"Transfer-Encoding"),
    (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", b"Content-Length"), (b"X: a\n", b"CR"),
])
async def test_a_refusal_says_what_is_wrong(fields: bytes, words: bytes) -> None:
    found, _ = await _converse(LINE + b" HTTP/1.1\r\n" + FIELDS + fields + b"\r\n" + DELETE)
    assert _statuses(found) == [400]
    assert words in found[0][2], found


@pytest.mark.parametrize("first", [b"", LAST.replace(b"Connection: close\r\n", b"")], ids=["at once", "behind a request"])
async def test_empty_lines_do_not_hold_a_connection(first: bytes) -> None:
    """They may stand before a request, and begin none: the connection ends as one on which nothing comes."""
    async with served_door(limits=ConnectionLimits(request_read_s=0.2), keep_alive_s=1) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(first + b"\r\n")
        async with asyncio.timeout(60):
            assert (await reader.read()).count(b"HTTP/1.1 ") == bool(first)
        writer.close()


async def test_empty_lines_before_a_request(served: DoorClient) -> None:
    assert (await served.raw(b"\r\n\n\r\n" * 5000 + PUT + b"\r\n" + LAST)).count(b"HTTP/1.1 200 ") == 2
