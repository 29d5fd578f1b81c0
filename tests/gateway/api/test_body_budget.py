"""Bodies take a bounded share of memory, whoever sends them and whatever becomes of them."""

from __future__ import annotations

import asyncio
import threading

import httpx
import msgspec
import pytest

from gateway.api import body_budget
from gateway.api.body_budget import SMALL_BODY_BYTES, BodyBudget, BodyHold
from gateway.service.http_settings import HttpSettings
from tests.gateway.door_client import ROWS, DoorClient, plain_door, problem, served_door
from tests.gateway.http.differential import Door
from tests.suite.traced import Taken, run_in_own_process, traced
from twinlog.errors import Overloaded

MIB = 1 << 20
BATCH = "/v1/tables/flights/rows:mutate"
JSON_BODY = {"content-type": "application/json"}
PACKED = {"content-type": "application/x-msgpack"}


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_budget, "WAIT_S", 0.2)
    monkeypatch.setattr(body_budget, "SLOW_S", 0.05)


# ---- the budget itself
async def test_clients_leave_a_third_to_the_other_site(short_waits: None) -> None:
    budget = BodyBudget(300)
    client, peer = budget.hold(), budget.hold()
    peer.of_peer = True
    await client.take(200)
    with pytest.raises(Overloaded, match="nothing was read"):
        await budget.hold().take(1)
    await peer.take(100)
    with pytest.raises(Overloaded):
        await peer.take(1)
    client.release()
    client.release()
    assert (budget.held_bytes, budget.refused) == (100, 2)


async def test_those_that_wait_are_let_in_by_turns() -> None:
    budget = BodyBudget(300)
    first = budget.hold()
    await first.take(200)
    order: list[int] = []

    async def wait(number: int, size: int) -> BodyHold:
        hold = budget.hold()
        await hold.take(size)
        order.append(number)
        return hold

    waiting = [asyncio.create_task(wait(number, size)) for number, size in enumerate((150, 100, 50))]
    await asyncio.sleep(0)
    first.release()
    await waiting[0]
    assert order == [0]
    (await waiting[0]).release()
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2]
    assert budget.held_bytes == 150


async def test_a_body_that_never_ends_loses_its_place_when_another_waits(short_waits: None) -> None:
    budget = BodyBudget(300)
    endless = budget.hold()

    async def arrive() -> None:
        await endless.take(200)
        try:
            async with endless:
                await asyncio.Event().wait()
        finally:
            endless.release()

    arriving = asyncio.create_task(arrive())
    await asyncio.sleep(0)
    await budget.hold().take(200)
    with pytest.raises(Overloaded, match="others waited"):
        await arriving
    assert budget.held_bytes == 200


async def test_a_request_that_is_cancelled_while_it_waits_takes_nothing() -> None:
    budget = BodyBudget(300)
    await budget.hold().take(200)
    waiting = asyncio.create_task(budget.hold().take(100))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    budget.count(-200)
    assert budget.held_bytes == 0


# ---- at the door
async def test_a_row_brings_little_more_than_a_row_may_have(door: DoorClient) -> None:
    """A batch may be longer."""
    longest = door.app.context.http.row_body_bytes_max
    assert longest < 3 * door.app.context.http.row_bytes_max
    for method in ("PUT", "PATCH"):
        answer = await door.http.request(method, f"{ROWS}/UA,1", content=b'{"note":"' + b"x" * longest + b'"}')
        problem(answer, 413, "too-large", body_bytes_max=longest)
    answer = await door.http.post("/v1/operations", content=b" " * (longest + 1), headers={"content-type": "application/json"})
    problem(answer, 413, "too-large", body_bytes_max=longest)


async def test_what_is_held_is_given_back(door: DoorClient) -> None:
    budget = door.app.context.bodies
    for key, body in (("UA,1", b'{"note":"' + b"x" * 100_000 + b'"}'), ("UA,x", b"{" + b" " * 100_000), ("UA,1", b"{}")):
        await door.http.put(f"{ROWS}/{key}", content=body)
        assert budget.held_bytes == 0


async def test_bodies_beyond_the_budget_are_refused_unread(short_waits: None) -> None:
    """Their client hears when to try again, and small requests are served all the while."""
    config = HttpSettings(body_bytes_max=MIB, bodies_bytes_max=2 * MIB)
    async with served_door(config) as door:
        held = door.app.context.bodies.hold()
        await held.take(MIB)
        body = msgspec.json.encode({"mutations": [{"op": "upsert", "row": {"carrier": "x" * 500_000, "flight": 1}}]})
        answer = await door.http.post(BATCH, content=body, headers=JSON_BODY)
        problem(answer, 429, "overloaded", outcome="not_applied")
        assert int(answer.headers["retry-after"]) >= 1
        await door.put("UA,1", {})
        held.release()
        answer = await door.http.post(BATCH, content=body, headers=JSON_BODY)
        problem(answer, 413, "too-large")  # read now: its key is too long


async def test_a_chunked_body_is_counted_as_it_comes(short_waits: None) -> None:
    async with served_door(HttpSettings(body_bytes_max=4 * MIB, bodies_bytes_max=6 * MIB)) as door:
        budget = door.app.context.bodies
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(f"POST {BATCH} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n{4 * MIB:x}\r\n".encode())
        writer.write(b" " * (3 * MIB))
        await writer.drain()
        async with asyncio.timeout(120):
            while budget.held_bytes < 3 * MIB - (320 << 10):
                await door.http.get("/health/live")
        await budget.hold().take(2 * MIB)  # waits, and the endless one loses its place
        assert b" 429 " in await reader.readline()
        writer.close()


async def _refused(body: bytes, lost: Exception | None) -> tuple[Taken, set[bytes]]:
    """Returns what 12 MiB of refused bodies leave, and the beginnings of the answers."""
    door = Door(hot=True)
    await door.open()
    head = f"PUT {ROWS}/UA,1 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    await door.converse(iter([request]))
    answers = set()
    with traced(collector=False) as taken:
        for _ in range(12 * MIB // len(body)):
            answers.add((await door.converse(iter([request]), lost))[:12])
    return taken, answers


async def _answered(path: str, content_type: str, body: bytes) -> tuple[Taken, httpx.Response]:
    async with plain_door() as door:
        with traced() as taken:
            answer = await door.http.post(path, content=body, headers={"content-type": content_type})
        return taken, answer


@pytest.mark.parametrize("body", [
    b"{" + b" " * MIB, b'{"nope":"' + b"x" * MIB + b'"}', b'{"note":"' + b"x" * (MIB + (MIB >> 1)) + b'"}',
    b'{"nope":"' + b"x" * 30_000 + b'"}',
], ids=["malformed", "invalid", "too large", "invalid, on the hot path"])
@pytest.mark.parametrize("lost", [None, ConnectionResetError()], ids=["closed", "reset"])
def test_a_refused_body_is_let_go_at_once(body: bytes, lost: Exception | None) -> None:
    """Not when the collector comes by: an error, its traceback and the frames refer to each other. Nor when the time of an idle
    connection is over, for one that its client resets."""
    taken, answers = run_in_own_process(_refused, body, lost)
    assert answers <= {b"HTTP/1.1 400", b"HTTP/1.1 413", b"HTTP/1.1 422"}
    assert taken.held_bytes < 4 * MIB


# ---- what bodies become
def _lists(count: int, before: bytes) -> bytes:
    """msgpack: `before`, then a list of `count` empty lists, a byte each that becomes sixty."""
    return before + b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count


@pytest.mark.parametrize("before", [
    b"\x81\xa9mutations\x91\x82\xa2op\xa6upsert\xa3row\x83\xa7carrier\xa2UA\xa6flight\x01\xa4more",
    b"\x82\xaaconditions\x92\x81\xa7version",
], ids=["batch", "check"])
def test_what_a_row_of_a_batch_becomes_is_bounded(before: bytes) -> None:
    body = _lists(12 * MIB, before) + (b"\x80\xa9mutations\x90" if b"conditions" in before else b"")
    path = f"{ROWS}/UA,1:check" if b"conditions" in before else BATCH
    taken, answer = run_in_own_process(_answered, path, "application/x-msgpack", body)
    problem(answer, 413, "too-large")
    assert taken.peak_bytes < 4 * len(body)


async def test_large_bodies_are_decoded_beside_the_loop_one_at_a_time(plain: DoorClient) -> None:
    context, here = plain.app.context, threading.get_ident()
    assert await context.convert(b"x" * SMALL_BODY_BYTES, threading.get_ident) == here, "the way to a thread takes longer"
    two_work = threading.Barrier(2)

    def work() -> tuple[bool, bool]:
        try:
            two_work.wait(0.5)
        except threading.BrokenBarrierError:
            return threading.get_ident() != here, True
        return threading.get_ident() != here, False

    large = [context.convert(b"x" * (SMALL_BODY_BYTES + 1), work) for _ in range(2)]
    assert await asyncio.gather(*large) == [(True, True)] * 2


def test_the_line_of_a_fault_is_found_without_all_lines() -> None:
    body = b"\n" * (2 * MIB) + b"nonsense\n"
    taken, answer = run_in_own_process(_answered, BATCH, "application/x-ndjson", body)
    problem(answer, 400, "malformed-body", line=2 * MIB + 1)
    assert taken.peak_bytes < 5 * len(body)


async def test_a_batch_of_defaults_is_bounded_too() -> None:
    """Rows of few bytes become long ones by the defaults of columns that they leave out."""
    async with plain_door(HttpSettings(body_bytes_max=MIB, row_bytes_max=MIB)) as door:
        columns = [{"name": "id", "type": "int64"}, {"name": "text", "type": "string", "default": "x" * 100_000}]
        table = {"name": "long", "primary_key": ["id"], "columns": columns}
        assert (await door.http.post("/v1/tables", json=table)).status_code == 201
        for count, status in ((5, 200), (100, 413)):
            rows = [{"op": "upsert", "row": {"id": number}} for number in range(count)]
            assert (await door.http.post("/v1/tables/long/rows:mutate", json={"mutations": rows})).status_code == status
