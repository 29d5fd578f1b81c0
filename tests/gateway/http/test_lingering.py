"""A client that still sends when its connection is closed reads the last answer, and the connection ends in time."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.http.protocol import ConnectionLimits, DoorProtocol
from gateway.service.http_settings import HttpSettings
from tests.gateway.door_client import ROWS, DoorClient, served_door
from tests.gateway.http.differential import answers

HEAD = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
PUT = f"PUT {ROWS}/UA,1 {HEAD}".encode()
POST = f"POST {ROWS}:mutate {HEAD}".encode()
LONG = b"content-length: 1000000\r\n\r\n"
REFUSED = {
    "no HTTP": (b"nonsense\r\n\r\n", 400),
    "a head that is too long": (PUT + b"x-long: " + b"x" * 60_000, 431),
    "hot": (PUT + b"connection: close\r\n" + LONG, 413),
    "plain": (POST + b"connection: close\r\n" + LONG, 413),
}


@asynccontextmanager
async def _connected(door: DoorClient) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _read_while_sending(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Returns the answer to its end. The client sends more after each part that it gets, as one that writes before it reads."""
    answer = await reader.read(10)
    while True:
        writer.write(b" " * 1000)
        await writer.drain()
        part = await asyncio.wait_for(reader.read(50), 30)
        answer += part
        if not part:
            return answer


@pytest.mark.parametrize("name", REFUSED)
async def test_what_is_sent_behind_a_refusal_costs_no_answer(name: str) -> None:
    data, status = REFUSED[name]
    limits = HttpSettings(body_bytes_max=100_000)
    heads = ConnectionLimits(head_bytes_max=32_768)
    async with served_door(limits, limits=heads) as door, _connected(door) as (reader, writer):
        writer.write(data)
        assert [found[0] for found in answers(await _read_while_sending(reader, writer), [b"PUT"])] == [status]


async def test_a_refused_connection_reads_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DoorProtocol, "waits_since", lambda self: None)  # each is being served
    async with served_door(limits=ConnectionLimits(connections_max=1)) as door:
        await door.put("UA,1", {})
        async with _connected(door) as (reader, writer):
            assert [found[0] for found in answers(await _read_while_sending(reader, writer), [b"GET"])] == [503]


async def test_a_client_that_never_ends_is_cut() -> None:
    """It has the time of one request, and then no more; no connection is left behind."""
    async with served_door(limits=ConnectionLimits(request_read_s=0.2)) as door:
        with socket.create_connection(("127.0.0.1", door.port)) as client:
            client.setblocking(False)
            with pytest.raises(ConnectionError):
                await _send_for_ever(client)


async def _send_for_ever(client: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, b"nonsense\r\n\r\n")
    while True:
        await loop.sock_sendall(client, b" ")
        await asyncio.sleep(0.01)


async def test_a_server_that_stops_does_not_wait_for_those_that_linger() -> None:
    """One that was refused in the middle of its body ends at once, though it may linger for an hour, as others may."""
    async with asyncio.timeout(60):
        async with served_door(limits=ConnectionLimits(request_read_s=3600), graceful_shutdown_s=3600) as door:
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            writer.write(POST + b"transfer-encoding: chunked\r\n\r\n2\r\n[")
            await writer.drain()
            writer.write(b"no chunk\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
        writer.transport.abort()


@pytest.mark.parametrize("head", [PUT, POST], ids=["hot", "plain"])
async def test_no_request_is_answered_twice(served: DoorClient, head: bytes) -> None:
    """A request that was answered before its body came, and whose body ends early, gets no second answer."""
    async with _connected(served) as (reader, writer):
        writer.write(head + b"content-length: 999999999999\r\n\r\n")
        answer = await reader.readuntil(b"}")
        writer.write(b"[")
        writer.write_eof()
        assert [found[0] for found in answers(answer + await reader.read(), [b"PUT"])] == [413]
