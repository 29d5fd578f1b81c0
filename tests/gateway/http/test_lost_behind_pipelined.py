"""A connection that is lost while requests wait behind one: whatever is under way on it ends."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.http.differential import Door, Wire

STREAM = b"GET /v1/cluster/events HTTP/1.1\r\nhost: localhost\r\n\r\n"
NEXT = b"GET /v1/tables HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize("behind", [0, 1, 3])
@pytest.mark.parametrize("error", [None, ConnectionResetError("reset")])
async def test_a_stream_ends_with_its_connection_whatever_waits_behind_it(behind: int, error: Exception | None) -> None:
    door = Door(hot=True)
    await door.open()
    wire = Wire()
    protocol = door.connect(wire)
    protocol.data_received(STREAM + NEXT * behind)
    while b"event: cluster" not in wire.written:
        await asyncio.sleep(0)
    under_way = set(door.tasks)
    assert len(under_way) == 1
    wire.closed = True
    protocol.connection_lost(error)
    await asyncio.wait_for(asyncio.gather(*under_way), 30)
    assert not door.tasks
