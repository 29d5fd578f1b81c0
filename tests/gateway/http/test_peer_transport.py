"""The transport over a real socket keeps the contract of the port, and lets go of what it sent."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from gateway.http import peer_transport
from gateway.http.app import build_app
from gateway.http.peer_transport import HttpTransport
from gateway.http.server import HttpServer, ServerSettings, listen
from gateway.service.http_settings import HttpSettings
from tests.gateway.dict_service import DictService
from tests.remote_log.replication.transport_contract import StubPeer, TransportContract
from tests.suite.traced import Taken, run_in_own_process, traced
from twinlog.errors import PeerError

MIB = 1 << 20
CLOSES = b"<closes>"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x81\xa1n\x01"  # the map {"n": 1}
STALE = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n\x81\xa1n\x02"


@pytest.fixture(autouse=True)
def kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine halts between two calls, the second finds the connection of the first."""
    monkeypatch.setattr(peer_transport, "_KEPT_S", 3600.0)


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
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
    async with answers(head + answer, lengths=lengths) as (transport, _):
        yield transport, lengths


@asynccontextmanager
async def answers(*whole: bytes, lengths: list[int] | None = None) -> AsyncIterator[tuple[HttpTransport, list[int]]]:
    """A transport to a peer that sends these bytes to each call, the last ones again and again, and closes the
    connection where they end with CLOSES. Gives the number of calls on each connection."""
    serving: set[asyncio.Task[None] | None] = set()
    sendings = iter(whole)
    calls: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.current_task())
        number = len(calls)
        calls.append(0)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                calls[number] += 1
                if lengths is not None:
                    lengths.append(len(body))
                said = next(sendings, whole[-1])
                writer.write(said.removesuffix(CLOSES))
                if said.endswith(CLOSES):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):  # the transport was closed
            return
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield transport, calls
    finally:
        await transport.close()
        await asyncio.gather(*(task for task in serving if task is not None))
        server.close()
        await server.wait_closed()


async def _sixteen_calls() -> tuple[Taken, list[int]]:
    async with peer(msgspec.msgpack.encode({"ok": True})) as (transport, lengths):
        await transport.call("replicate", {"frames": bytes(MIB)}, dict, 5.0)
        with traced(collector=False) as taken:
            for _ in range(16):
                assert await transport.call("replicate", {"frames": bytes(MIB)}, dict, 5.0) == {"ok": True}
    return taken, lengths


def test_a_body_is_let_go_with_its_call() -> None:
    """Not when the garbage collector comes by: at full speed that was some hundred MiB later."""
    taken, lengths = run_in_own_process(_sixteen_calls)
    assert len(lengths) == 17
    assert min(lengths) > MIB
    assert taken.held_bytes < 3 * MIB


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
        with pytest.raises(PeerError, match=r"does not answer in time$"):
            await transport.call("status", {}, dict, 0.3)
    await transport.close()
    await ended.wait()
    server.close()
    await server.wait_closed()


async def _n(transport: HttpTransport) -> object:
    return (await transport.call("status", {}, dict, 120.0))["n"]


@pytest.mark.parametrize("before", [STALE, b"\r\nno HTTP at all\r\n\r\n"])
async def test_bytes_that_belong_to_no_call_answer_none(before: bytes) -> None:
    """They come with the answer before. The next call gets its own answer, over a connection of its own."""
    async with answers(OK + before, OK) as (transport, calls):
        assert [await _n(transport), await _n(transport)] == [1, 1]
        assert calls == [1, 1]


async def test_bytes_that_come_while_nothing_is_asked_end_their_connection() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(OK)
            await answered.wait()
            writer.write(STALE)
            while await reader.read(1 << 16):
                pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        gone.set()

    answered = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert await _n(transport) == 1
    answered.set()
    async with asyncio.timeout(120):
        await gone.wait()
    await transport.close()
    server.close()
    await server.wait_closed()


async def test_who_is_not_there_is_named_with_the_reason_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    transport = HttpTransport("http://127.0.0.1:1")
    with pytest.raises(PeerError, match=r"^the other site at http://127\.0\.0\.1:1 does not answer \(connection refused\)$"):
        await transport.call("status", {}, dict, 30.0)

    async def no_name(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", no_name)
    with pytest.raises(PeerError, match=r"does not answer \(name or service not known\)$"):
        await transport.call("status", {}, dict, 30.0)
    await transport.close()


@pytest.mark.parametrize("cut", [
    b"", b"HTTP/1.1 200", OK[:-1], b"HTTP/1.1 200 OK\r\n\r\n\x81\xa1n\x01",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n\x81\xa1n\x01\r\n",
])
async def test_an_answer_that_is_not_whole_is_none(cut: bytes) -> None:
    """The one without a length ends with its connection, and nobody knows whether it was cut."""
    async with answers(cut + CLOSES, OK) as (transport, calls):
        with pytest.raises(PeerError):
            await _n(transport)
        assert await _n(transport) == 1
        assert calls == [1, 1]


@pytest.mark.parametrize("said", [
    b"\x15\x03\x01\x00\x02\x02", b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
])
async def test_an_answer_that_is_no_http_is_a_peer_error(said: bytes) -> None:
    async with answers(said, OK) as (transport, calls):
        with pytest.raises(PeerError, match="its answer is no HTTP"):
            await _n(transport)
        assert await _n(transport) == 1
        assert calls == [1, 1]


async def test_an_answer_in_chunks_and_one_behind_a_continue_are_whole() -> None:
    chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n\x81\r\n3\r\n\xa1n\x01\r\n0\r\n\r\n"
    async with answers(chunks, b"HTTP/1.1 100 Continue\r\n\r\n" + OK, OK) as (transport, calls):
        assert [await _n(transport) for _ in range(3)] == [1, 1, 1]
        assert calls == [3]


async def test_an_answer_that_ends_its_connection_is_followed_by_a_new_one() -> None:
    ending = OK.replace(b"content", b"connection: close\r\ncontent")
    async with answers(ending + CLOSES, ending, OK) as (transport, calls):
        assert [await _n(transport) for _ in range(4)] == [1, 1, 1, 1]
        assert calls == [1, 1, 2]


async def test_a_head_that_never_ends_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_transport, "reply_bytes_max", lambda method: 1000)
    monkeypatch.setattr(peer_transport, "_AROUND_BYTES_MAX", 1000)
    async with answers(b"HTTP/1.1 200 OK\r\n" + b"x-more: 1\r\n" * 300, OK) as (transport, calls):
        with pytest.raises(PeerError, match="its answer is too long"):
            await _n(transport)
        assert await _n(transport) == 1
        assert calls == [1, 1]


async def test_a_connection_that_waited_for_long_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other side may be closing it at this moment."""
    async with answers(OK) as (transport, calls):
        assert [await _n(transport), await _n(transport)] == [1, 1]
        assert calls == [2]
        monkeypatch.setattr(peer_transport, "_KEPT_S", 0.0)
        assert await _n(transport) == 1
        assert calls == [2, 1]


async def test_few_connections_are_kept() -> None:
    async with answers(OK) as (transport, calls):
        assert await asyncio.gather(*(_n(transport) for _ in range(8))) == [1] * 8
        assert len(calls) == 8
        assert await asyncio.gather(*(_n(transport) for _ in range(8))) == [1] * 8
        assert len(calls) == 14


async def test_calls_at_the_same_time_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_transport, "_CALLS_MAX", 2)
    async with answers(OK) as (transport, calls):
        assert await asyncio.gather(*(_n(transport) for _ in range(8))) == [1] * 8
        assert len(calls) <= 2


async def test_a_connection_on_which_a_body_is_still_under_way_is_not_used() -> None:
    """The peer answers before it has read the body, and never reads the rest."""
    opened: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    transport = HttpTransport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert await transport.call("replicate", {"frames": bytes(64 * MIB)}, dict, 120.0) == {"n": 1}
    assert await _n(transport) == 1
    assert len(opened) == 2
    await transport.close()
    for writer in opened:
        writer.transport.abort()
    server.close()
    await server.wait_closed()
