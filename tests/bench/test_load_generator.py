"""The load generator counts what happened: against uvicorn, and against servers that answer in pieces, badly or not at all."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import uvicorn

from bench.load_generator import LoadPlan, Result, generate
from bench.requests import Workload

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
PUT = Workload("put", "t", keys=50)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[int]:
    """A port behind which `answer` gets the head of each request and the writer. It knows no pipelining."""
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                _, told, length = head.partition(b"content-length: ")
                await reader.readexactly(int(length.split(b"\r\n")[0]) if told else 0)
                await answer(head, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    opened = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with opened:
        yield opened.sockets[0].getsockname()[1]


def plan(port: int, requests_max: int = 40, connections: int = 4, workload: Workload = PUT) -> LoadPlan:
    return LoadPlan("127.0.0.1", port, connections, workload, requests_max=requests_max)


async def test_against_uvicorn_every_request_arrives_whole() -> None:
    seen: list[tuple[str, str, int]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        seen.append((scope["method"], scope["path"], len(msgspec.json.decode(body)["mutations"])))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    listening = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="error"))
    task = asyncio.create_task(running.serve(sockets=[listening]))
    result = await generate(plan(listening.getsockname()[1], 12, 3, Workload("batch", "t", first_key=0)))
    running.should_exit = True
    await task
    assert (result.count, result.rows, result.failures) == (12, 12_000, {})
    assert seen == [("POST", "/v1/tables/t/rows:mutate", 1000)] * 12


async def test_an_answer_in_single_bytes_is_one_answer() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        for at in range(len(OK)):
            writer.write(OK[at : at + 1])
            await writer.drain()

    async with server(answer) as port:
        result = await generate(plan(port))
    assert (result.count, result.failures) == (40, {})
    assert result.late_p99_ms is None  # a closed loop sends when it is answered
    assert result.p50_ms is not None
    assert result.p99_ms is not None
    assert 0 < result.p50_ms <= result.p99_ms <= 1000 * result.seconds


async def test_statuses_are_told_apart() -> None:
    statuses = iter([200, 503, 201, 429] * 10)

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % next(statuses))

    async with server(answer) as port:
        result = await generate(plan(port))
    assert (result.count, result.failures) == (20, {"503": 10, "429": 10})


async def test_a_lost_connection_is_a_failure_and_ends_only_itself() -> None:
    answered = 0

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal answered
        answered += 1
        if answered == 10:
            raise ConnectionResetError
        writer.write(OK)

    async with server(answer) as port:
        result = await generate(plan(port))
    assert (result.count, result.failures) == (39, {"connection lost": 1})


async def test_an_answer_without_a_length_is_a_failure() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")

    async with server(answer) as port:
        result = await generate(plan(port, 4, 2))
    assert (result.count, result.failures) == (0, {"an answer without Content-Length": 2})


async def test_a_timed_run_ends_although_the_server_hangs() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        """Never."""

    async with server(answer) as port:
        result = await generate(LoadPlan("127.0.0.1", port, 2, PUT, seconds=0.05, warm_up_s=0.01))
    assert result.count == 0
    assert result.p50_ms is None
    assert result.seconds > 0.04


async def test_as_a_process_of_its_own_it_speaks_json() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    async with server(answer) as port:
        timed = LoadPlan("127.0.0.1", port, 2, PUT, seconds=0.2, warm_up_s=0.05)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.load_generator", stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        said, _ = await process.communicate(msgspec.json.encode(timed))
    result = msgspec.json.decode(said, type=Result)
    assert process.returncode == 0
    assert result.count > 10
    assert result.per_second == pytest.approx(result.count / result.seconds)


def open_plan(port: int, per_second: float, seconds: float = 0.3, connections: int = 2) -> LoadPlan:
    return LoadPlan("127.0.0.1", port, connections, PUT, seconds=seconds, warm_up_s=0.05, arrivals_per_second=per_second)


async def test_in_an_open_loop_requests_arrive_at_their_rate() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    async with server(answer) as port:
        result = await generate(open_plan(port, 500.0, seconds=1.0))
    assert result.failures == {}
    assert result.count == pytest.approx(500, rel=0.25)  # five deviations of a Poisson count, and drawn from a fixed seed
    assert result.per_second == result.count
    assert result.late_p99_ms is not None


async def test_an_open_loop_charges_a_halt_with_all_that_it_kept_waiting() -> None:
    """One answer is held until far more requests were due than there are connections: all of them are late, not only two."""
    halted = False
    halt_s = 0.2

    def halt() -> None:
        time.sleep(halt_s)  # by the clock: a halt is nothing but time

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal halted
        if not halted:
            halted = True
            halt()  # the generator shares this event loop: nothing at all happens meanwhile
        writer.write(OK)

    async with server(answer) as port:
        result = await generate(
            LoadPlan("127.0.0.1", port, 2, PUT, seconds=0.3, warm_up_s=0.0, arrivals_per_second=1000.0)
        )
    assert result.failures == {}
    assert result.p50_ms is not None
    assert result.p50_ms > 1000 * halt_s / 8  # two thirds of what is due in 0.3 s are due in the halt
    assert result.late_p50_ms is not None
    assert 1000 * halt_s / 8 < result.late_p50_ms <= result.p50_ms  # the generator halted as well, and says so
    assert result.max_ms is not None
    assert result.max_ms > 900 * halt_s


async def test_what_an_open_loop_is_never_answered_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.load_generator._LAST_ANSWERS_S", 0.05)

    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        """Never."""

    async with server(answer) as port:
        result = await generate(open_plan(port, 500.0))
    assert result.count == 0
    assert list(result.failures) == ["never answered"]
    assert result.failures["never answered"] > 50


async def test_an_open_loop_that_loses_its_connections_ends() -> None:
    async def answer(head: bytes, writer: asyncio.StreamWriter) -> None:
        raise ConnectionResetError

    async with server(answer) as port:
        result = await generate(
            LoadPlan("127.0.0.1", port, 2, PUT, seconds=30.0, warm_up_s=0.0, arrivals_per_second=500.0)
        )
    assert result.count == 0
    assert result.failures["connection lost"] == 2


async def test_an_open_loop_takes_no_number_of_requests() -> None:
    plan = LoadPlan("127.0.0.1", 1, 1, PUT, requests_max=5, arrivals_per_second=5.0)
    with pytest.raises(ValueError, match="requests_max"):
        await generate(plan)
