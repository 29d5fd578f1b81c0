"""The server: its port, its end, and connections that carry several requests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import httpx
import pytest

from gateway.api.problems import Answer
from gateway.http.hot_path import HotProtocol
from gateway.http.server import listen
from gateway.service.port import WriteRequest, WriteResult
from tests.gateway.door_client import ROWS, DoorClient, served_door
from twinlog.errors import ConfigError

HEAD = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def _put(key: str, body: str = "{}", more: str = "") -> bytes:
    return f"PUT {ROWS}/{key} {HEAD}{more}content-length: {len(body)}\r\n\r\n{body}".encode()


def _get(key: str, query: str = "", more: str = "") -> bytes:
    return f"GET {ROWS}/{key}{query} {HEAD}{more}\r\n".encode()


def test_a_port_in_use_is_named() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port}.*stop what uses port {port}"):
            listen("127.0.0.1", port)


def test_a_host_that_is_none_is_named() -> None:
    with pytest.raises(ConfigError, match="no such host"):
        listen("no such host", 0)


async def test_requests_in_one_piece_are_answered_in_order(served: DoorClient) -> None:
    """Pipelined: hot and plain ones behind each other."""
    await served.put("UA,1", {"note": "1"})
    wanted = [
        _get("UA,1"), _put("UA,2", '{"note":"2"}'), _get("UA,2", "?columns=note"), _get("UA,2"), _get("UA,3"), _get("UA,1"),
        _put("UA,1"), _get("UA,1", more="connection: close\r\n"),
    ]
    answer = (await served.raw(b"".join(wanted))).decode()
    statuses = [part[:3] for part in answer.split("HTTP/1.1 ")[1:]]
    assert statuses == ["200", "200", "200", "200", "404", "200", "200", "200"]
    assert answer.count('"note":"2"') == 2
    assert answer.rindex('"note":"none"') > answer.rindex('"note":"1"')


async def test_a_request_in_any_pieces(served: DoorClient) -> None:
    data = _put("UA,1", '{"note":"' + "x" * 50 + '"}', "connection: close\r\n")
    for size in (1, 7, 64):
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            await asyncio.sleep(0)
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
    assert (await served.get("UA,1"))["row"]["note"] == "x" * 50


async def test_a_chunked_body_on_the_hot_path(served: DoorClient) -> None:
    body = b'5\r\n{"not\r\n8\r\ne": "xy"\r\n1\r\n}\r\n0\r\n\r\n'
    head = f"PUT {ROWS}/UA,1 {HEAD}connection: close\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    assert (await served.raw(head + body)).startswith(b"HTTP/1.1 200")
    assert (await served.get("UA,1"))["row"]["note"] == "xy"


@pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])
@pytest.mark.parametrize(("name", "first", "second"), [
    ("Content-Type", "application/json", "application/x-msgpack"), ("Idempotency-Key", "k1", "k2"),
    ("Twinlog-Deadline-S", "1", "1"),
])
async def test_a_header_with_one_value_is_sent_once(
    served: DoorClient, query: str, name: str, first: str, second: str
) -> None:
    """Before, the last one counted, and another one before it was for whoever stands between."""
    head = f"PUT {ROWS}/UA,9{query} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{name}: {first}\r\n{name}: {second}\r\n"
    if name != "Content-Type":
        head += "content-type: application/json\r\n"
    answer = (await served.raw(f"{head}content-length: 2\r\n\r\n{{}}".encode())).decode()
    assert answer.startswith("HTTP/1.1 422")
    assert f"{name} is there twice: send it once" in answer
    assert (await served.http.get(f"{ROWS}/UA,9")).status_code == 404


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "identity, chunked", "chunked, chunked"])
@pytest.mark.parametrize("method", ["PUT", "GET"])
async def test_a_transfer_encoding_that_is_not_known_is_not_read_as_another_one(
    served: DoorClient, method: str, coding: str
) -> None:
    head = f"{method} {ROWS}/UA,1 {HEAD}transfer-encoding: {coding}\r\n\r\n".encode()
    answer = (await served.raw(head + b"2\r\n{}\r\n0\r\n\r\n")).decode()
    assert answer.startswith(("HTTP/1.1 501", "HTTP/1.1 400"))
    assert answer.count("HTTP/1.1") == 1
    assert (await served.http.get(f"{ROWS}/UA,1")).status_code == 404


async def test_expect_continue(served: DoorClient) -> None:
    answer = await served.raw(_put("UA,1", more="expect: 100-continue\r\nconnection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200")


async def test_http_1_0_closes(served: DoorClient) -> None:
    await served.put("UA,1", {})
    answer = await served.raw(_get("UA,1").replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert b"connection: close" in answer


async def _held(door: DoorClient) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold the next writes in the service: (one has arrived, let them go)."""
    arrived, go = asyncio.Event(), asyncio.Event()
    write = door.service.write

    async def held(request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        arrived.set()
        await go.wait()
        return await write(request, deadline_s)

    door.service.write = held  # type: ignore[method-assign]
    return arrived, go


@pytest.mark.parametrize("rest", [
    b"PUT /v1/tab", b"nonsense\r\n\r\n", _put("UA,2")[:-1], _get("UA,2", "?columns=note")[:-2],
    f"PUT {ROWS}/UA,2 {HEAD}transfer-encoding: chunked\r\n\r\nno number\r\n".encode(),
])
async def test_a_broken_second_request_never_looks_like_the_answer_to_the_first(served: DoorClient, rest: bytes) -> None:
    """The first is under way: its client must learn nothing, rather than that it was refused."""
    arrived, go = await _held(served)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(_put("UA,1") + rest)
    await arrived.wait()
    writer.write_eof()
    for _ in range(20):
        await asyncio.sleep(0)
    go.set()
    answer = await reader.read()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 200")
    writer.close()


async def test_a_client_that_left_harms_nobody(served: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to its connection: some transports raise then, others go on to buffer."""
    arrived, go = await _held(served)
    answered_open: list[bool] = []
    write = HotProtocol._write

    def watched(self: HotProtocol, answer: Answer, keep_alive: bool) -> None:
        answered_open.append(not self.transport.is_closing())
        write(self, answer, keep_alive)

    monkeypatch.setattr(HotProtocol, "_write", watched)
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(_put("UA,1", '{"note":"left"}'))
    await arrived.wait()
    writer.transport.abort()
    for _ in range(3):
        await served.http.get("/health/live")  # by then the server has seen that the client is gone
    go.set()
    await served.put("UA,2", {})
    assert (await served.get("UA,1"))["row"]["note"] == "left"
    assert answered_open == [True, True]


async def test_a_client_that_never_reads_is_held_back(served: DoorClient) -> None:
    """It may ask as it likes: what waits for it in memory stays bounded."""
    await served.put("UA,1", {"note": "x" * 500_000})
    reads = 0
    read = served.service.read

    async def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return await read(*args)

    served.service.read = counted  # type: ignore[method-assign, assignment]
    _, writer = await asyncio.open_connection("127.0.0.1", served.port, limit=1024)
    for _ in range(100):
        writer.write(_get("UA,1"))
        await served.http.get("/health/live")
    assert 0 < reads < 60
    writer.transport.abort()


async def test_the_end_waits_for_requests_under_way() -> None:
    async with served_door(graceful_shutdown_s=5) as door:
        assert door.server is not None
        arrived, go = await _held(door)
        writing = asyncio.create_task(door.put("UA,1", {}))
        await arrived.wait()
        stopping = asyncio.create_task(door.server.stop())
        await door.app.context.closing.wait()
        go.set()
        assert (await writing)["mode"] == "sync"
        await stopping


async def test_the_end_does_not_wait_for_ever() -> None:
    async with served_door(graceful_shutdown_s=0) as door:
        assert door.server is not None
        arrived, _ = await _held(door)
        writing = asyncio.create_task(door.put("UA,1", {}))
        await arrived.wait()
        await asyncio.wait_for(door.server.stop(), 120)
        with pytest.raises(httpx.HTTPError):
            await writing


async def _answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes = _get("UA,1")) -> None:
    """One request on this connection, and its whole answer."""
    writer.write(request)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:"))
    await asyncio.wait_for(reader.readexactly(length), 60)


async def _kept(served: DoorClient) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, Any]:
    """A connection with one answered request, and its protocol."""
    assert served.server is not None
    known = served.server._server.server_state.connections
    before = set(known)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    await _answered(reader, writer)
    return reader, writer, next(iter(known - before))


async def test_one_timer_serves_all_requests_of_a_connection_and_closes_it_when_it_is_idle(served: DoorClient) -> None:
    reader, writer, protocol = await _kept(served)
    timer = protocol.timeout_keep_alive_task
    for _ in range(3):
        await _answered(reader, writer)
    assert protocol.timeout_keep_alive_task is timer
    protocol.timeout_keep_alive_handler()  # it was idle for a moment only
    assert not protocol.transport.is_closing()
    assert protocol.timeout_keep_alive_task not in (timer, None)
    timer.cancel()
    protocol._idle_s -= protocol.timeout_keep_alive
    protocol.timeout_keep_alive_handler()
    assert await asyncio.wait_for(reader.read(), 60) == b""
    writer.close()


async def test_a_request_under_way_outlives_the_time_of_an_idle_connection(served: DoorClient) -> None:
    reader, writer, protocol = await _kept(served)
    protocol._idle_s -= protocol.timeout_keep_alive
    arrived, go = await _held(served)
    answer = asyncio.create_task(_answered(reader, writer, _put("UA,1")))
    await asyncio.wait_for(arrived.wait(), 60)
    protocol.timeout_keep_alive_handler()
    assert not protocol.transport.is_closing()
    go.set()
    await answer
    writer.close()


async def test_an_idle_connection_is_closed_after_its_time() -> None:
    async with served_door(keep_alive_s=1) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        await _answered(reader, writer)
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
