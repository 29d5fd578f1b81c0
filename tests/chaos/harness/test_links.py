"""A real Toxiproxy does what is done to a link, and undoes it: judged by what passes, not by what was asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chaos.harness.pair.links import Links
from chaos.servers import toxiproxy
from chaos.servers.ports import free_ports
from twinlog.errors import ConfigError, Unavailable

PATIENCE_S = 0.4  # how long a byte is waited for that must not come
ANSWER_S = 20.0


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@asynccontextmanager
async def a_link(folder: Path) -> AsyncIterator[tuple[Links, int]]:
    """A link to an echo, and the port at which its caller connects."""
    toxiproxy.fetch()
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    proxy = toxiproxy.Toxiproxy(folder)
    listen = free_ports(1)[0]
    proxy.start()
    try:
        upstream = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with Links(proxy, {"a>b": upstream}, {"a>b": f"127.0.0.1:{listen}"}).opened() as links:
            yield links, listen
    finally:
        proxy.stop()
        server.close()


async def passes(port: int, within_s: float = ANSWER_S) -> bool:
    """A byte goes there and comes back, in time, over a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"x")
        return await asyncio.wait_for(reader.readexactly(1), within_s) == b"x"
    except TimeoutError:
        return False
    finally:
        writer.transport.abort()


async def test_a_link_passes_and_a_latency_delays_it_both_ways(tmp_path: Path) -> None:
    async with a_link(tmp_path) as (links, port):
        assert await passes(port)
        for stream in ("upstream", "downstream"):
            await links.add("a>b", "latency", stream, {"latency": 60, "jitter": 0})
        begun_s = time.monotonic()
        assert await passes(port)
        assert time.monotonic() - begun_s >= 0.12
        await links.reset()
        assert await passes(port)


@pytest.mark.parametrize("stream", ["upstream", "downstream"])
async def test_nothing_passes_one_way_until_it_is_healed(tmp_path: Path, stream: str) -> None:
    async with a_link(tmp_path) as (links, port):
        await links.add("a>b", "timeout", stream, {"timeout": 0})
        assert not await passes(port, PATIENCE_S)
        await links.remove("a>b", "timeout", stream)
        assert await passes(port)


async def test_a_reset_reaches_the_caller(tmp_path: Path) -> None:
    async with a_link(tmp_path) as (links, port):
        await links.add("a>b", "reset_peer", "downstream", {"timeout": 0})
        with pytest.raises(ConnectionResetError):
            await passes(port)


async def test_a_link_that_is_down_refuses_and_comes_back(tmp_path: Path) -> None:
    async with a_link(tmp_path) as (links, port):
        await links.switch("a>b", on=False)
        with pytest.raises(ConnectionRefusedError):
            await passes(port)
        await links.switch("a>b", on=True)
        assert await passes(port)


async def test_a_server_that_was_killed_has_again_what_was_done_to_its_links(tmp_path: Path) -> None:
    async with a_link(tmp_path) as (links, port):
        server = links._server
        assert isinstance(server, toxiproxy.Toxiproxy)
        await links.add("a>b", "timeout", "upstream", {"timeout": 0})
        await links.add("a>b", "latency", "downstream", {"latency": 10})
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        await links.lose(server.kill)
        assert links.is_away
        assert await asyncio.wait_for(ended(reader), ANSWER_S), "a connection of before is cut"
        writer.transport.abort()
        with pytest.raises(ConnectionRefusedError):
            await passes(port)
        await links.remove("a>b", "latency", "downstream")
        assert await links.bring_back(server.start) == 1
        assert not await passes(port, PATIENCE_S), "the toxic that nobody has healed"
        await links.remove("a>b", "timeout", "upstream")
        assert await passes(port)


async def test_what_is_done_while_the_server_is_away_counts_when_it_is_back(tmp_path: Path) -> None:
    async with a_link(tmp_path) as (links, port):
        server = links._server
        assert isinstance(server, toxiproxy.Toxiproxy)
        await links.lose(server.stop)
        await links.switch("a>b", on=False)
        await links.add("a>b", "timeout", "upstream", {"timeout": 0})
        assert await links.bring_back(server.start) == 2
        with pytest.raises(ConnectionRefusedError):
            await passes(port)
        await links.switch("a>b", on=True)
        assert not await passes(port, PATIENCE_S)
        await links.reset()
        await links.lose(server.kill)
        assert await links.bring_back(server.start) == 0
        assert await passes(port)


async def ended(reader: asyncio.StreamReader) -> bool:
    """No byte comes any more, by an end or by a reset."""
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


async def test_what_the_package_does_not_raise_is_raised(tmp_path: Path) -> None:
    async with a_link(tmp_path) as (links, _):
        with pytest.raises(Unavailable, match="does not do what it was asked for"):
            await links.add("a>b", "no_such_toxic", "upstream", {})
        with pytest.raises(Unavailable, match="does not have the toxic"):
            await links.add("a>b", "latency", "upstream", {"no_such_attribute": 1})
        with pytest.raises(ConfigError, match="one server for each process"):
            links.open()
