"""Newcomers at a door get places, and connections that wait give theirs away: by drawn visits, and in each state."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import pytest
import uvicorn
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http.lingering import LINGERING_MAX
from gateway.http.places import Places
from gateway.http.protocol import ConnectionLimits, DoorProtocol
from gateway.service.http_settings import HttpSettings
from gateway.service.port import WriteRequest, WriteResult
from tests.gateway.door_client import ROWS, DoorClient, served_door

LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
PUT = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n"
SCAN = f"GET {ROWS} HTTP/1.1\r\nhost: localhost\r\naccept-encoding: identity\r\n\r\n".encode()
LARGE_BYTES = 8 << 20  # more than the buffer of the door's end of a connection takes


class Visitor:
    """A connection that is being served, or waits since a moment. `given_way`: what the others held at that time."""

    def __init__(self, places: Places, address: str) -> None:
        self.places, self.address = places, address
        self.since: float | None = None
        self.given_way: Counter[str] | None = None

    def waits_since(self) -> float | None:
        return self.since

    def give_way(self) -> None:
        assert self.since is not None, "it was being served"
        self.given_way = Counter(self.places.held())
        self.places.leave(self.address, self)


def _check_room_was_made(places: Places, left: Visitor, address: str, others: list[Visitor], per_address_max: int) -> None:
    """The one that gave way waited longest among those of its address, and no address that holds more has one that waits."""
    assert left.given_way is not None
    assert left.since is not None
    held, own = left.given_way, left.given_way[address]
    assert left.address == address or (held[left.address] > own and own < per_address_max)
    for other in others:
        if other.since is not None and other.address == left.address:
            assert other.since >= left.since
        if other.since is not None and own < per_address_max and held[other.address] > own:
            assert held[other.address] <= held[left.address]
            assert left.address != address


STEPS = st.tuples(st.sampled_from(["enter", "leave", "serve", "wait"]), st.integers(0, 5), st.integers(0, 40))


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.lists(STEPS, min_size=40, max_size=120))
def test_whoever_waits_gives_way_to_one_who_holds_less(
    connections_max: int, per_address_max: int, steps: list[tuple[str, int, int]]
) -> None:
    places = Places(connections_max, per_address_max)
    inside: list[Visitor] = []
    for moment, (step, where, which) in enumerate(steps):
        if step == "enter":
            new, before = Visitor(places, f"10.0.0.{where}"), Counter(places.held())
            entered = places.enter(new.address, new)
            left = [one for one in inside if one.given_way is not None]
            inside = [one for one in inside if one.given_way is None]
            own, free = before[new.address], connections_max - before.total()
            if own < min(per_address_max, free):
                assert entered
                assert not left
            elif entered:
                assert len(left) == 1
                _check_room_was_made(places, left[0], new.address, inside, per_address_max)
            else:
                larger = {address for address, held in before.items() if held > own and own < per_address_max}
                assert not left
                assert all(one.since is None for one in inside if one.address in larger | {new.address})
            inside += [new] * entered
        elif inside:
            one = inside[which % len(inside)]
            if step == "leave":
                places.leave(one.address, one)
                inside.remove(one)
            else:
                one.since = float(moment) if step == "wait" else None
        held = Counter(places.held())
        assert held == Counter(one.address for one in inside)
        assert places.served == held.total() <= connections_max
        assert all(count <= per_address_max for count in held.values())
    for one in inside:
        places.leave(one.address, one)
    assert (places.served, places.held()) == (0, {})


def test_a_few_addresses_never_take_all() -> None:
    """Also not with connections that are all being served: one address gets a half, two get three quarters."""
    places = Places(100, 100)
    for address in ("10.0.0.1", "10.0.0.2"):
        while places.enter(address, Visitor(places, address)):
            pass
    assert places.held() == {"10.0.0.1": 50, "10.0.0.2": 25}
    assert places.enter("10.0.0.3", Visitor(places, "10.0.0.3"))


async def _ended(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


def test_the_address_that_holds_most_gives_way_first() -> None:
    """Its connection waits for a shorter time than that of one who holds less."""
    places = Places(10, 10)
    visitors = [Visitor(places, f"10.0.0.{number}") for number in (1, 2, 2, 3, 3, 3, 4, 4, 5, 6)]
    for since, one in enumerate(visitors):
        assert places.enter(one.address, one)
        one.since = float(since)
    assert places.enter("10.0.0.9", Visitor(places, "10.0.0.9"))
    assert [one for one in visitors if one.given_way is not None] == [visitors[3]]


class Crowd:
    """Connections from many addresses to one door."""

    def __init__(self, door: DoorClient, stack: AsyncExitStack) -> None:
        self.door, self._stack = door, stack

    async def connect(self, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The client's buffer is small, so that a large answer stays with the door."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        client.bind((f"127.0.0.{number}", 0))
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", self.door.port))
        reader, writer = await asyncio.open_connection(sock=client)
        self._stack.push_async_callback(_ended, writer)
        return reader, writer

    @property
    def places(self) -> Places:
        return self._server().config.http_protocol_class.places  # type: ignore[no-any-return, union-attr]

    def open_connections(self) -> int:
        return len(self._server().server_state.connections)

    def _server(self) -> uvicorn.Server:
        assert self.door.server is not None
        return self.door.server._server

    async def asks(self, number: int) -> bytes:
        """The status that a fresh connection from this address gets; it stays open."""
        reader, writer = await self.connect(number)
        writer.write(LIVE)
        return (await reader.readline())[9:12]

    async def says(self, number: int, data: bytes, answer: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await self.connect(number)
        writer.write(data)
        if answer:
            assert (await reader.readline()).startswith(b"HTTP/1.1 " + answer)
        return reader


@asynccontextmanager
async def _crowd(limits: ConnectionLimits) -> AsyncIterator[Crowd]:
    async with served_door(HttpSettings(row_bytes_max=2 * LARGE_BYTES), limits) as door, AsyncExitStack() as stack:
        yield Crowd(door, stack)


async def _silent(crowd: Crowd, number: int) -> None:
    await crowd.connect(number)


async def _idle(crowd: Crowd, number: int) -> None:
    assert await crowd.asks(number) == b"200"


async def _half_a_head(crowd: Crowd, number: int) -> None:
    await crowd.says(number, LIVE + LIVE[:-2], b"200")


async def _half_a_body(crowd: Crowd, number: int) -> None:
    await crowd.says(number, LIVE + f"PUT {ROWS}/UA,{number} {PUT}{{".encode(), b"200")


async def _half_a_batch(crowd: Crowd, number: int) -> None:
    await crowd.says(number, LIVE + f"POST {ROWS}:mutate {PUT}[".encode(), b"200")


async def _refused(crowd: Crowd, number: int) -> None:
    await crowd.says(number, b"nonsense\r\n\r\n", b"400")


async def _unread(crowd: Crowd, number: int, question: bytes = SCAN) -> None:
    reader = await crowd.says(number, question, b"200")
    reader._transport.pause_reading()  # type: ignore[attr-defined]


async def _unread_row(crowd: Crowd, number: int) -> None:
    await _unread(crowd, number, SCAN.replace(b"/rows", b"/rows/UA,1"))


async def _stream(crowd: Crowd, number: int) -> None:
    await crowd.says(number, LIVE.replace(b"/health/live", b"/v1/cluster/events") + (b"", LIVE[:-2], LIVE)[number % 3], b"200")


STATES: dict[str, Callable[[Crowd, int], Awaitable[None]]] = {
    "silent": _silent, "idle": _idle, "half a head": _half_a_head, "half a body": _half_a_body, "half a batch": _half_a_batch,
    "refused, and kept open": _refused, "an answer that is not read": _unread,
    "a row that is not read": _unread_row, "a stream of events": _stream,
}


@pytest.mark.parametrize("state", STATES)
async def test_connections_that_only_wait_shut_nobody_out(state: str) -> None:
    """From as many addresses as there are places, and more: each newcomer is answered."""
    async with _crowd(ConnectionLimits(connections_max=12, per_address_max=12)) as crowd:
        if "not read" in state:
            crowd.door.http.timeout = httpx.Timeout(60)  # a busy machine takes long to read a large row
            await crowd.door.put("UA,1", {"note": "x" * LARGE_BYTES})
        for number in range(2, 20):
            await STATES[state](crowd, number)
        assert [await crowd.asks(number) for number in (100, 100, 101)] == [b"200"] * 3
        assert crowd.open_connections() == crowd.places.served + crowd.places.lingering


async def test_one_address_leaves_connections_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many it opens, and keeps open when they are refused: few of those may wait for their clients."""
    async with _crowd(ConnectionLimits(connections_max=10, per_address_max=3)) as crowd:
        places = crowd.places
        monkeypatch.setattr(DoorProtocol, "waits_since", lambda self: None)  # each is being served
        for refused in (2, 40, LINGERING_MAX + 20):
            assert b"503" in [await crowd.asks(1) for _ in range(refused + 3)][-refused:]
        assert [await crowd.asks(2) for _ in range(4)] == [b"200"] * 3 + [b"503"]
        assert (places.served, places.held()) == (6, {"127.0.0.1": 3, "127.0.0.2": 3})
        assert 0 < places.lingering <= LINGERING_MAX
    assert (places.served, places.lingering, places.held()) == (0, 0, {})


async def test_an_address_at_its_bound_closes_what_was_idle_longest() -> None:
    async with _crowd(ConnectionLimits(connections_max=10, per_address_max=3)) as crowd:
        reader, _ = first = await crowd.connect(1)
        first[1].write(LIVE)
        await reader.readuntil(b"}")
        assert [await crowd.asks(1) for _ in range(2)] == [b"200"] * 2
        assert not reader.at_eof()
        assert await crowd.asks(1) == b"200"
        assert await reader.read() == b""


async def test_a_request_that_is_being_served_never_gives_way() -> None:
    """Its head or its body may have come long ago, and others wait behind it."""
    async with _crowd(ConnectionLimits(connections_max=8, per_address_max=8)) as crowd:
        write, arrived, go = crowd.door.service.write, asyncio.Queue[None](), asyncio.Event()

        async def held(request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
            arrived.put_nowait(None)
            await go.wait()
            return await write(request, deadline_s)

        crowd.door.service.write = held  # type: ignore[method-assign]
        whole = f"{PUT}{{}}".replace("100", "2")
        readers = []
        for number, behind in enumerate((b"", LIVE, LIVE[:-2], f"PUT {ROWS}/UA,9 {PUT}".encode()), start=1):
            reader, writer = await crowd.connect(1)
            writer.write(f"PUT {ROWS}/UA,{number} {whole}".encode() + behind)
            await arrived.get()
            readers.append(reader)
        assert [await crowd.asks(number) for number in range(2, 60)] == [b"200"] * 58
        assert crowd.places.held()["127.0.0.1"] == 4
        go.set()
        assert [(await reader.readline())[9:12] for reader in readers] == [b"200"] * 4
