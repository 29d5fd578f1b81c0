"""The transport over a real socket keeps the contract of the port, and lets go of what it sent."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from gateway.http.app import build_app
from gateway.http.peer_transport import HttpTransport
from gateway.http.server import HttpServer, ServerSettings, listen
from gateway.service.http_settings import HttpSettings
from tests.gateway.dict_service import DictService
from tests.remote_log.replication.transport_contract import StubPeer, TransportContract
from twinlog.errors import PeerError

MIB = 1 << 20


class HttpWire:
    """A door whose service is the peer, and the transport to it. Cut: nothing listens at its port."""

    def __init__(self) -> None:
        self.peer = StubPeer()
        self._server = self._listen(0)
        self._port = self._server.port
        self.transport = HttpTransport(f"http://127.0.0.1:{self._port}")

    def _listen(self, port: int) -> HttpServer:
        service = DictService()
        service.peer_call = self.peer.call_bytes
        app = build_app(service.ports, HttpSettings(), now_s=time.perf_counter, new_id=lambda: "incident-1")
        return HttpServer(app, listen("127.0.0.1", port), ServerSettings(graceful_shutdown_s=1))

    async def cut(self) -> None:
        await self._server.stop()

    async def heal(self) -> None:
        self._server = self._listen(self._port)
        await self._server.start()

    async def start(self) -> None:
        await self._server.start()

    async def close(self) -> None:
        await self.transport.close()
        await self._server.stop()


class TestHttpTransport(TransportContract):
    @pytest.fixture
    async def wire(self) -> AsyncIterator[HttpWire]:
        wire = HttpWire()
        await wire.start()
        yield wire
        await wire.close()


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
        await transport.call("replicate", {"frames": bytes(MIB)}, dict, 5.0)
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            for _ in range(16):
                assert await transport.call("replicate", {"frames": bytes(MIB)}, dict, 5.0) == {"ok": True}
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gc.enable()
    assert len(lengths) == 17
    assert min(lengths) > MIB
    assert kept < 3 * MIB


async def test_an_answer_that_never_ends_ends_by_the_time_out() -> None:
    """Each byte comes in time, and the answer does not."""
    ended = asyncio.Event()

    async def dribble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        with suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"x")
                await writer.drain()
                with suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(1 << 16), 0.02)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.set()

    server = await asyncio.start_server(dribble, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with asyncio.timeout(120):  # each byte would begin the time anew
        with pytest.raises(PeerError):
            await transport.call("status", {}, dict, 0.3)
    await transport.close()
    await ended.wait()
    server.close()
    await server.wait_closed()
