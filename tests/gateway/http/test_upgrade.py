"""A request that asks for another protocol is served as what it is: its body is its body, and nothing else is."""

from __future__ import annotations

import pytest

from tests.gateway.door_client import ROWS, DoorClient

JAVA = "Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\nUpgrade: h2c\r\n"
CURL = "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
BROWSER = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n"
DROP = "DELETE /v1/tables/flights HTTP/1.1\r\nhost: localhost\r\n\r\n"
HEAD = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
LAST = f"GET {ROWS}/UA,1 {HEAD}connection: close\r\n\r\n"
asks = pytest.mark.parametrize("upgrade", [JAVA, CURL, BROWSER], ids=["java", "curl", "websocket"])
paths = pytest.mark.parametrize("query", ["", "?"], ids=["hot", "plain"])


def _statuses(answer: bytes) -> list[str]:
    return [part[:3] for part in answer.decode().split("HTTP/1.1 ")[1:]]


@asks
@paths
async def test_the_body_is_the_row(served: DoorClient, upgrade: str, query: str) -> None:
    body = '{"note":"here"}'
    put = f"PUT {ROWS}/UA,1{query} {HEAD}{upgrade}content-length: {len(body)}\r\n\r\n{body}"
    answer = await served.raw((put + LAST).encode())
    assert _statuses(answer) == ["200", "200"]
    assert b'"note":"here"' in answer


@asks
@paths
async def test_a_body_that_looks_like_a_request_is_none(served: DoorClient, upgrade: str, query: str) -> None:
    put = f"PUT {ROWS}/UA,1{query} {HEAD}{upgrade}content-length: {len(DROP)}\r\n\r\n{DROP}"
    chunked = f"PUT {ROWS}/UA,1{query} {HEAD}{upgrade}transfer-encoding: chunked\r\n\r\n{len(DROP):x}\r\n{DROP}\r\n0\r\n\r\n"
    assert _statuses(await served.raw((put + chunked + LAST).encode())) == ["400", "400", "404"]
    assert served.service.tables.get("flights").name == "flights"


@asks
async def test_pipelined_in_any_pieces(served: DoorClient, upgrade: str) -> None:
    get = f"GET {ROWS}/UA,1 {HEAD}{upgrade}\r\n"
    put = f'PUT {ROWS}/UA,1 {HEAD}{upgrade}content-length: 12\r\n\r\n{{"note":"a"}}'
    assert _statuses(await served.raw((get + put + get + put * 40 + get + LAST).encode())) == ["404", *["200"] * 44]


async def test_no_tunnel(served: DoorClient) -> None:
    answer = await served.raw(f"CONNECT db.example:5432 HTTP/1.1\r\nhost: db.example:5432\r\n\r\n{DROP}".encode())
    assert _statuses(answer) == ["400"]
    assert b"no proxy" in answer
    assert served.service.tables.get("flights").name == "flights"
