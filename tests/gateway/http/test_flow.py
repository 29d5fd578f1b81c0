"""An answer that its client does not read ends the connection, one that is read slowly does not; a lost connection ends all."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from gateway.http.flow import Flow
from gateway.http.protocol import ConnectionLimits
from tests.gateway.door_client import ROWS, served_door
from tests.gateway.http import differential
from tests.gateway.tls.tls_rig import until

SCAN = f"GET {ROWS} HTTP/1.1\r\nhost: localhost\r\naccept-encoding: identity\r\n\r\n".encode()

STREAM = b"GET /v1/cluster/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
NEXT = b"GET /v1/tables HTTP/1.1\r\nhost: localhost\r\n\r\n"
TURNS = 1000  # long before the next comment of a stream, which a connection in memory refuses


class Wire:
    """A transport whose client takes bytes between two looks, or none. `left`: what each look finds unread."""

    def __init__(self, left: list[int]) -> None:
        self.left = left
        self.ended = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        return self.left.pop(0)

    def abort(self) -> None:
        self.ended.set()


async def test_only_a_client_that_takes_nothing_is_cut() -> None:
    wire = Wire([100, 99, 50, 50, 1])
    flow = Flow(wire, [], 0.001)  # type: ignore[arg-type]
    flow.pause_writing()
    assert flow.unread_since is not None
    await asyncio.wait_for(wire.ended.wait(), 30)
    assert wire.left == [1]


async def test_a_client_that_reads_in_the_end_is_not_looked_at_any_more() -> None:
    wire = Wire([100])
    flow = Flow(wire, [], 0.0)  # type: ignore[arg-type]
    flow.pause_writing()
    flow.resume_writing()
    assert flow.unread_since is None
    loop, later = asyncio.get_running_loop(), asyncio.Event()
    loop.call_later(0.0, later.set)  # behind the look, which would find no figure to read
    await later.wait()
    assert wire.left == []
    assert not wire.ended.is_set()


async def test_a_client_that_asks_for_much_and_reads_nothing_is_cut() -> None:
    """Otherwise it would hold the answer and its place for ever."""
    async with served_door(limits=ConnectionLimits(request_read_s=0.2)) as door:
        for number in range(8):
            await door.put(f"UA,{number}", {"note": "x" * 1_000_000})
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # so that the answer stays with the door
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", door.port))
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(SCAN)
        await reader.readline()
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        places = door.server._server.config.http_protocol_class.places  # type: ignore[union-attr]
        async with asyncio.timeout(60):
            while places.served == 2:  # noqa: ASYNC110 - and one is that of the client that wrote the rows
                await asyncio.sleep(0.01)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("behind", [0, 1, 3])
@pytest.mark.parametrize("error", [None, ConnectionResetError("reset")])
async def test_a_stream_ends_with_its_connection_whatever_waits_behind_it(behind: int, error: Exception | None) -> None:
    door = differential.Door(hot=True)
    await door.open()
    wire = differential.Wire()
    protocol = door.connect(wire)
    protocol.data_received(STREAM + NEXT * behind)
    await until(lambda: b"event: cluster" in wire.written)
    assert len(door.tasks) == 1
    wire.closed = True
    protocol.connection_lost(error)
    for _ in range(TURNS):
        await asyncio.sleep(0)
    assert not door.tasks
