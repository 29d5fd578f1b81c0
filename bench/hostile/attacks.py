"""One hostile client sends this: each attack is a coroutine that repeats itself against a local port until it is cancelled.

What always holds: an attack needs little memory itself, and counts in `Answers` by status what it was answered.
"""

from __future__ import annotations

import asyncio
import io
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from bench.requests import ARROW, JSON

MIB = 1 << 20
TABLE = "attacked"
Answers = Counter[str]
Attack = Callable[[int, Answers], Awaitable[None]]
_PATIENCE_S = 60.0
_BOMB_BATCHES, _BOMB_TEXT = 21, 100 * MIB


def _head(method: str, path: str, content_type: str, more: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n{more}\r\n".encode()


async def _send(port: int, parts: Iterable[bytes], answers: Answers) -> None:
    """Sends on a fresh connection, and counts the status that comes back, or how the connection ended."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        answers["no connection"] += 1
        await asyncio.sleep(0.1)
        return
    said = asyncio.ensure_future(_status(reader))
    try:
        async with asyncio.timeout(_PATIENCE_S):
            for part in parts:
                writer.write(part)
                await writer.drain()
                if said.done():
                    break
        answers[await said] += 1
    except (OSError, TimeoutError) as error:
        answers[await said if said.done() else type(error).__name__] += 1
    finally:
        said.cancel()
        writer.transport.abort()


async def _status(reader: asyncio.StreamReader) -> str:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            line = await reader.readline()
    except (OSError, TimeoutError) as error:
        return type(error).__name__
    return line[9:12].decode() or "closed"


async def _again(count: int, send: Callable[[], Awaitable[None]]) -> None:
    """`count` clients at once, each of them again and again."""

    async def one() -> None:
        while True:
            await send()

    async with asyncio.TaskGroup() as group:
        for _ in range(count):
            group.create_task(one())


def _pieces(head: bytes, body_bytes: int, begin: bytes = b"", end: bytes = b"") -> Iterable[bytes]:
    filler = b"x" * MIB
    yield head + begin
    left = body_bytes - len(begin) - len(end)
    while left > 0:
        yield filler[: min(left, MIB)]
        left -= MIB
    yield end


async def large_rows(port: int, answers: Answers) -> None:
    """20 PUTs of 26 MiB at once."""
    head = _head("PUT", f"/v1/tables/{TABLE}/rows/1", JSON, f"content-length: {26 * MIB}\r\n")
    await _again(20, lambda: _send(port, _pieces(head, 26 * MIB, b'{"note":"', b'"}'), answers))


async def refused_rows(port: int, answers: Answers) -> None:
    """60 PUTs of 16 MiB, ten at once, that name no column of the table."""
    head = _head("PUT", f"/v1/tables/{TABLE}/rows/1", JSON, f"content-length: {16 * MIB}\r\n")
    await _again(10, lambda: _send(port, _pieces(head, 16 * MIB, b'{"nope":"', b'"}'), answers))


async def refused_batches(port: int, answers: Answers) -> None:
    """Batches of 16 MiB, ten at once, whose only row has an unknown column."""
    head = _head("POST", f"/v1/tables/{TABLE}/rows:mutate", JSON, f"content-length: {16 * MIB}\r\n")
    begin = b'{"mutations":[{"op":"upsert","row":{"id":1,"nope":"'
    await _again(10, lambda: _send(port, _pieces(head, 16 * MIB, begin, b'"}}]}'), answers))


async def many_values(port: int, answers: Answers) -> None:
    """Batches of 30 MiB, four at once, each one row that is a great many empty lists: small bytes, many objects."""
    head = _head("POST", f"/v1/tables/{TABLE}/rows:mutate", "application/x-msgpack", f"content-length: {30 * MIB}\r\n")
    prefix = b"\x81\xa9mutations\x91\x82\xa2op\xa6upsert\xa3row\x82\xa2id\x01\xa4note\xdd"
    count = 30 * MIB - len(prefix) - 4
    body = prefix + count.to_bytes(4, "big") + b"\x90" * count
    await _again(4, lambda: _send(port, [head, body], answers))


def arrow_bomb() -> bytes:
    """About 165 KiB that become 2.1 GB: compressed texts of one letter."""
    sink = io.BytesIO()
    schema = pa.schema([("id", pa.int64()), ("place", pa.string()), ("note", pa.string())])
    batch = pa.record_batch([[1], ["x"], pa.array(["x" * _BOMB_TEXT])], schema)
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        for _ in range(_BOMB_BATCHES):
            writer.write_batch(batch)
    return sink.getvalue()


async def arrow_bombs(port: int, answers: Answers) -> None:
    """Compressed Arrow streams, four at once."""
    body = await asyncio.to_thread(arrow_bomb)
    head = _head("POST", f"/v1/tables/{TABLE}/rows:mutate", ARROW, f"content-length: {len(body)}\r\n")
    await _again(4, lambda: _send(port, [head, body], answers))


def coded_bomb(coding: str, body_bytes: int) -> bytes:
    """A batch of one row with an unknown column, `body_bytes` long once its coding is taken off; a thousandth with it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, coding) as stream:
        for piece in _pieces(b"", body_bytes, b'{"mutations":[{"op":"upsert","row":{"id":1,"nope":"', b'"}}]}'):
            stream.write(piece)
    return bytes(sink.getvalue())


async def _coded(port: int, answers: Answers, count: int, sizes: Iterable[int]) -> None:
    """`count` clients at once for each coding and size."""
    async with asyncio.TaskGroup() as group:
        for coding in ("gzip", "zstd"):
            for size in sizes:
                body = await asyncio.to_thread(coded_bomb, coding, size)
                more = f"content-encoding: {coding}\r\ncontent-length: {len(body)}\r\n"
                parts = [_head("POST", f"/v1/tables/{TABLE}/rows:mutate", JSON, more), body]
                group.create_task(_again(count, partial(_send, port, parts, answers)))


async def coded_bombs(port: int, answers: Answers) -> None:
    """Batches with a content coding, forty at once: gzip and zstd, of 256 MiB, and of 30 MiB, which one alone may have."""
    await _coded(port, answers, 10, (30 * MIB, 256 * MIB))


async def few_coded_bombs(port: int, answers: Answers) -> None:
    """One of 30 MiB in each coding at a time: both find room in the budget, so that they are expanded without a pause."""
    await _coded(port, answers, 1, (30 * MIB,))


async def endless_bodies(port: int, answers: Answers) -> None:
    """40 batches whose last byte never comes: half of them of a given length, half in chunks."""
    path, size = f"/v1/tables/{TABLE}/rows:mutate", 30 * MIB
    known = _head("POST", path, JSON, f"content-length: {size + 1}\r\n")
    chunked = _head("POST", path, JSON, "transfer-encoding: chunked\r\n") + b"%x\r\n" % (2 * size)

    def send(head: bytes) -> Awaitable[None]:
        return _send(port, _pieces(head, size), answers)

    async with asyncio.TaskGroup() as group:
        for head in (known, chunked):
            group.create_task(_again(20, partial(send, head)))


async def endless_trailers(port: int, answers: Answers) -> None:
    """A row of two bytes and 300 MiB of trailers, four at once."""
    head = _head("PUT", f"/v1/tables/{TABLE}/rows/1", JSON, "transfer-encoding: chunked\r\n") + b"2\r\n{}\r\n0\r\n"
    trailers = b"x-one: " + b"t" * 1000 + b"\r\n"

    def parts() -> Iterable[bytes]:
        yield head
        for _ in range(300):
            yield trailers * 1024
        yield b"\r\n"

    await _again(4, lambda: _send(port, parts(), answers))


async def idle_connections(port: int, answers: Answers) -> None:
    """1,300 connections that say nothing; each that is closed is opened again."""

    async def idle() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\nGET ")
                answers[(await reader.readline())[9:12].decode() or "closed"] += 1
                while await reader.read(1 << 16):
                    pass
                writer.transport.abort()
            except OSError as error:
                answers[type(error).__name__] += 1
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as group:
        for number in range(1300):
            group.create_task(idle())
            if number % 50 == 0:
                await asyncio.sleep(0.02)


async def idle_crowd(port: int, answers: Answers) -> None:
    """1,300 connections of 60 addresses that wait in each way: silent, idle, in half a head or body, or behind a refusal."""
    live = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
    half_a_body = _head("PUT", f"/v1/tables/{TABLE}/rows/1", JSON, "content-length: 99\r\n")
    await _crowd(port, answers, (b"", live, live[:-2], half_a_body, b"nonsense\r\n\r\n"))


async def event_streams(port: int, answers: Answers) -> None:
    """1,300 followers of the cluster document, of 60 addresses, that read what they are sent."""
    head = b"GET /v1/cluster/events HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
    await _crowd(port, answers, (head,))


async def _crowd(port: int, answers: Answers, says: Sequence[bytes]) -> None:
    """1,300 connections of 60 addresses: each says one of these texts, reads what comes, and begins anew when it ends."""
    async def talk(number: int) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(f"127.0.1.{1 + number % 60}", 0))
                writer.write(says[number % len(says)])
                line = await reader.readline()
                answers[line[9:12].decode() or "closed"] += 1
                while await reader.read(1 << 16):
                    pass
                writer.transport.abort()
            except OSError as error:
                answers[type(error).__name__] += 1
            await asyncio.sleep(0.5)

    async with asyncio.TaskGroup() as group:
        for number in range(1300):
            group.create_task(talk(number))
            if number % 50 == 0:
                await asyncio.sleep(0.02)


async def dry_runs(port: int, answers: Answers) -> None:
    """1,500 dry runs of a change of mode, four at once."""
    body = msgspec.json.encode({"kind": "degrade", "dry_run": True})
    head = _head("POST", "/v1/operations", JSON, f"content-length: {len(body)}\r\n")
    left = iter(range(1500))

    async def send() -> None:
        if next(left, None) is None:
            await asyncio.sleep(1)
        else:
            await _send(port, [head + body], answers)

    await _again(4, send)


async def handshakes(port: int, answers: Answers) -> None:
    """Whole TLS handshakes of one address as quickly as 16 clients can make them; each closes its connection behind it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def shake() -> None:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, local_addr=(_ELSEWHERE, 0))
        except OSError as error:
            answers[type(error).__name__] += 1
            return
        answers["handshakes"] += 1
        writer.transport.abort()

    await _again(16, shake)


_ELSEWHERE = "127.0.0.3"  # an address of its own: that of the bench asks the site, too
OF_TLS = ("handshakes",)  # attacks on a pair that speaks it
ATTACKS: dict[str, Attack] = {
    "large rows": large_rows, "refused rows": refused_rows, "refused batches": refused_batches, "many values": many_values,
    "arrow bombs": arrow_bombs, "coded bombs": coded_bombs, "few coded bombs": few_coded_bombs,
    "endless bodies": endless_bodies, "endless trailers": endless_trailers, "idle connections": idle_connections,
    "idle crowd": idle_crowd, "event streams": event_streams,
    "dry runs": dry_runs, "handshakes": handshakes,
}
