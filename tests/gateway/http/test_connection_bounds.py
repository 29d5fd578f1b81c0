"""One connection may bring and hold only so much: head, trailers, and requests behind each other."""

from __future__ import annotations

import asyncio

import pytest

from gateway.http.places import Places
from gateway.http.protocol import PIECE_BYTES, ConnectionLimits, DoorProtocol
from tests.gateway.door_client import ROWS, DoorClient, served_door
from tests.gateway.http.differential import Door, Wire, answers

HEAD = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
CHUNKED = f"PUT {ROWS}/UA,1? {HEAD}transfer-encoding: chunked\r\n\r\n".encode()
BODY = b"2\r\n{}\r\n0\r\n"


def _put(key: str, body: str = "{}", more: str = "") -> bytes:
    return f"PUT {ROWS}/{key} {HEAD}{more}content-length: {len(body)}\r\n\r\n{body}".encode()


async def _until(reader: asyncio.StreamReader, count: int, mark: bytes = b"HTTP/1.1 ") -> bytes:
    data = b""
    while data.count(mark) < count:
        part = await asyncio.wait_for(reader.read(1 << 16), 30)
        assert part, f"closed after {data.count(mark)} answers: {data[-300:]!r}"
        data += part
    return data


@pytest.mark.parametrize("query", ["", "?"], ids=["hot", "plain"])
async def test_a_long_body_does_not_count_as_the_next_head(served: DoorClient, query: str) -> None:
    """A body of 100 KB and the beginning of the next request, in one piece: both are answered on this connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    get = f"GET {ROWS}/UA,1 {HEAD}\r\n".encode()
    for _ in range(2):
        writer.write(_put(f"UA,1{query}", '{"note":"' + "x" * 100_000 + '"}') + get[:40])
        assert b" 200 " in await _until(reader, 1)
        writer.write(get[40:])
        assert b'"row"' in await _until(reader, 1)
    writer.close()


async def test_thousands_of_pipelined_writes_are_all_answered_in_order(served: DoorClient) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    count = 3000
    writer.write(b"".join(_put(f"UA,{number}", more="x-filler: " + "y" * 60 + "\r\n") for number in range(count)))
    data = await _until(reader, count, b'"version":')
    versions = [int(part.partition(b'"')[0]) for part in data.split(b'"version":"')[1:]]
    assert versions == sorted(versions)
    assert len(versions) == count
    writer.close()


async def test_few_pipelined_requests_are_held_as_such() -> None:
    """A client that sends 256 KiB of the shortest requests makes the site hold those of one piece, and bytes."""
    door = Door(hot=True)
    await door.open()
    most = 0

    class Watched(DoorProtocol):
        def on_headers_complete(self) -> None:
            nonlocal most
            super().on_headers_complete()
            most = max(most, len(self.pipeline))

    short = b"GET /x HTTP/1.1\r\nhost:[::]\r\n\r\n"
    count = (256 << 10) // len(short)
    door._kind = type("Bound", (Watched,), {"limits": ConnectionLimits(), "places": Places(100, 100)})
    found = answers(await door.converse(iter([short * count])), [b"GET"] * count)
    assert [status for status, _, _ in found] == [404] * count
    assert 100 < most <= PIECE_BYTES // len(short) + 1


@pytest.mark.parametrize("rest", [
    BODY + b"x-one: " + b"t" * 30_000 + b"\r\n\r\n",
    BODY + b"".join(b"x-%d: y\r\n" % number for number in range(4000)) + b"\r\n",
    b"2;" + b"e" * 30_000 + b"\r\n{}\r\n0\r\n\r\n",
], ids=["one trailer", "many trailers", "an extension"])
async def test_endless_trailers_are_refused(rest: bytes) -> None:
    async with served_door(limits=ConnectionLimits(head_bytes_max=4096)) as door:
        answer = await door.raw(CHUNKED + rest)
        assert answer.startswith(b"HTTP/1.1 431 "), answer
        assert b"trailers" in answer
        assert door.service.deadlines_s == []


@pytest.mark.parametrize("query", ["", "?"], ids=["hot", "plain"])
async def test_trailers_are_no_headers(served: DoorClient, query: str) -> None:
    put = CHUNKED.replace(b"? ", query.encode() + b" ")
    close = f"GET {ROWS}/UA,1 {HEAD}connection: close\r\n\r\n".encode()
    forged = (b'If-Match: "1"', b"If-None-Match: *", b"Idempotency-Key: a b", b"Content-Type: text/plain", b"Accept: x/y")
    for trailer in forged:
        answer = await served.raw(put + BODY + trailer + b"\r\n\r\n" + close)
        assert answer.count(b"HTTP/1.1 200 ") == 2, (trailer, answer)


async def test_a_body_in_many_small_chunks(served: DoorClient) -> None:
    """Its frames are longer than the bound of a head, and are none."""
    body = b'{"note":"' + b"x" * 20_000 + b'"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    close = f"GET {ROWS}/UA,1 {HEAD}connection: close\r\n\r\n".encode()
    assert (await served.raw(CHUNKED + chunks + b"0\r\n\r\n" + close)).count(b"HTTP/1.1 200 ") == 2


@pytest.mark.parametrize("size", [4000, 4200, 12_000])
async def test_a_head_at_its_bound(size: int) -> None:
    """Its length counts, not how it comes: behind other requests, whole, or in pieces."""
    door = Door(hot=True, limits=ConnectionLimits(head_bytes_max=4096))
    await door.open()
    long = f"GET {ROWS}/UA,1 {HEAD}x-long: ".encode() + b"l" * (size - 100) + b"\r\n\r\n"
    wanted = 404 if size < 4096 else 431
    for before in (0, 1, 30):
        data = f"GET {ROWS}/UA,1 {HEAD}\r\n".encode() * before + long
        for piece in (1, 100, 5000, len(data)):
            found = answers(
                await door.converse(data[at : at + piece] for at in range(0, len(data), piece)), [b"GET"] * (before + 1)
            )
            assert [status for status, _, _ in found] == [404] * before + [wanted]


async def test_what_was_sent_before_nonsense_is_answered() -> None:
    """Writes that were applied are not left without an answer because of what follows them."""
    door = Door(hot=True)
    await door.open()
    found = answers(await door.converse(iter([_put("UA,1") * 20 + b"nonsense\r\n\r\n"])), [b"PUT"] * 21)
    assert [status for status, _, _ in found] == [200] * 20 + [400]


async def test_a_delete_that_is_broken_behind_its_head_deletes_nothing() -> None:
    """It is refused, so it must not act, though it needs no body."""
    door = Door(hot=True)
    await door.open()
    delete = f"DELETE {ROWS}/UA,1 HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n".encode()
    found = answers(await door.converse(iter([_put("UA,1"), delete])), [b"PUT", b"DELETE"])
    assert [status for status, _, _ in found] == [200, 400]
    assert len(await door.rows()) == 1


def test_the_wire_of_the_tests_is_strict() -> None:
    wire = Wire()
    wire.close()
    with pytest.raises(AssertionError, match="closed"):
        wire.write(b"x")
