"""The transport over a real socket: what it keeps of a call, and how it says that the other side is no good."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from gateway.http.peer_transport import HttpTransport
from twinlog.errors import PeerError

MIB = 1 << 20


@asynccontextmanager
async def peer(answer: bytes) -> AsyncIterator[tuple[HttpTransport, list[int]]]:
    """A transport to a peer that gives this answer to everything, and the lengths of the bodies that it read."""
    lengths: list[int] = []
    serving: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                lengths.append(len(await reader.readexactly(length)))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)
        except (asyncio.IncompleteReadError, ConnectionError):  # the transport was closed
            return
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield transport, lengths
    finally:
        await transport.close()
        await asyncio.gather(*(task for task in serving if task is not None))
        server.close()
        await server.wait_closed()


async def test_a_body_is_let_go_once_it_was_sent() -> None:
    """Not when the garbage collector comes by: at full speed that was some hundred MiB later."""
    async with peer(msgspec.msgpack.encode({"ok": True})) as (transport, lengths):
        await transport.call("replicate", {"frames": bytes(MIB)}, 5.0)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(16):
                assert await transport.call("replicate", {"frames": bytes(MIB)}, 5.0) == {"ok": True}
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert len(lengths) == 17
    assert min(lengths) > MIB
    assert kept < 3 * MIB


@pytest.mark.parametrize("answer", [b"", b"\xc1", msgspec.msgpack.encode([1])])
async def test_an_answer_that_is_no_map(answer: bytes) -> None:
    async with peer(answer) as (transport, _):
        with pytest.raises(PeerError, match=r"nonsense|no map"):
            await transport.call("status", {}, 5.0)
