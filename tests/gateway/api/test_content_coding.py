"""Bodies that come compressed, and answers that leave so."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from gateway.api import body_budget, content_coding
from gateway.api.body_budget import BodyBudget
from gateway.api.content_coding import CODINGS, Expander, accepted_coding
from gateway.service.http_settings import HttpSettings
from tests.gateway.door_client import ROWS, DoorClient, plain_door, problem, served_door
from twinlog.errors import MalformedBody, Overloaded, TooLarge

UA1 = {"carrier": "UA", "flight": 1}
LONG = {"note": "a long note, and again, " * 500}
KIB, MIB = 1 << 10, 1 << 20
WRITES: list[tuple[str, str, Any]] = [
    ("PUT", f"{ROWS}/UA,1", LONG), ("PATCH", f"{ROWS}/UA,0", {"note": "changed"}),
    ("POST", f"{ROWS}:mutate", {"mutations": [{"op": "upsert", "row": {**UA1, **LONG}}]}),
    ("POST", f"{ROWS}/UA,0:check", {"conditions": [{"exists": True}], "mutations": [{"op": "upsert", "row": {**UA1, **LONG}}]}),
    ("POST", "/v1/tables", {"name": "t", "columns": [{"name": "k", "type": "int32"}], "primary_key": ["k"]}),
    ("POST", "/v1/operations", {"kind": "switchover", "to": "b"}),
]


def compressed(data: bytes, coding: str) -> bytes:
    return gzip.compress(data) if coding.endswith("gzip") else pa.Codec("zstd").compress(data, asbytes=True)  # type: ignore[no-any-return]


def expanded(data: bytes, coding: str) -> bytes:
    return pa.CompressedInputStream(pa.BufferReader(data), coding).read()  # type: ignore[no-any-return]


@pytest.mark.parametrize("coding", ["gzip", "zstd", "x-gzip", "GZIP", "identity"])
@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_a_compressed_body_is_taken(door: DoorClient, coding: str, method: str, path: str, body: Any) -> None:
    await door.put("UA,0", {})
    sent = msgspec.json.encode(body)
    packed = sent if coding == "identity" else compressed(sent, coding.lower())
    headers = {"content-type": "application/json", "content-encoding": coding}
    answer = await door.http.request(method, path, content=packed, headers=headers)
    assert answer.status_code in (200, 201, 202), answer.text
    if LONG["note"] in sent.decode():
        assert (await door.get("UA,1"))["row"]["note"] == LONG["note"]


async def test_a_request_is_the_same_one_compressed_or_not(door: DoorClient) -> None:
    headers = {"content-type": "application/json", "idempotency-key": "k1"}
    first = await door.http.put(f"{ROWS}/UA,1", json=LONG, headers=headers)
    for coding in CODINGS:
        packed = compressed(msgspec.json.encode(LONG), coding)
        again = await door.http.put(f"{ROWS}/UA,1", content=packed, headers={**headers, "content-encoding": coding})
        assert again.json() == first.json()


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip, gzip", "zstd,gzip", "compress", "aws-chunked", "\xe9"])
@pytest.mark.parametrize(("method", "path", "body"), WRITES)
async def test_another_coding_is_415_that_names_those_taken(
    door: DoorClient, coding: str, method: str, path: str, body: Any
) -> None:
    headers = {"content-type": b"application/json", "content-encoding": coding.encode("latin-1")}
    answer = await door.http.request(method, path, json=body, headers=headers)
    problem(answer, 415, "unsupported-media-type", outcome="not_applied")
    assert answer.headers["accept-encoding"] == "zstd, gzip"
    problem(await door.http.get(f"{ROWS}/UA,1"), 404, "not-found")


async def test_calls_of_the_other_site_are_never_compressed(plain: DoorClient) -> None:
    headers = {"content-type": "application/x-msgpack", "content-encoding": "gzip"}
    answer = await plain.http.post("/internal/v1/peer/echo", content=gzip.compress(b"\x80"), headers=headers)
    problem(answer, 415, "unsupported-media-type")


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_body_that_is_none_of_its_coding_is_malformed(door: DoorClient, coding: str) -> None:
    whole = compressed(msgspec.json.encode(LONG), coding)
    for broken in (whole[:-3], whole[:9], b"{}", whole + b"junk", compressed(b"{", coding)):
        headers = {"content-type": "application/json", "content-encoding": coding}
        problem(await door.http.put(f"{ROWS}/UA,1", content=broken, headers=headers), 400, "malformed-body")


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_body_that_becomes_too_much_is_refused(coding: str) -> None:
    settings = HttpSettings(body_bytes_max=3 * MIB)
    bomb = compressed(bytes(64 * MIB), coding)
    headers = {"content-type": "application/json", "content-encoding": coding}
    async with served_door(settings) as door:
        for method, path, bytes_max in (
            ("PUT", f"{ROWS}/UA,1", settings.row_body_bytes_max), ("POST", f"{ROWS}:mutate", settings.body_bytes_max),
        ):
            answer = await door.http.request(method, path, content=bomb, headers=headers)
            problem(answer, 413, "too-large", body_bytes_max=bytes_max, outcome="not_applied")
        assert door.app.context.bodies.held_bytes == 0


@pytest.mark.parametrize("coding", CODINGS)
async def test_no_more_is_made_than_there_is_room_for_and_allowed(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_budget, "WAIT_S", 0.05)
    bomb = compressed(bytes(256 * MIB), coding)
    budget = BodyBudget(96 * MIB)
    hold = budget.hold()
    with pytest.raises(TooLarge):
        await Expander().expanded(bomb, coding, 16 * MIB, hold)
    assert budget.held_bytes <= 16 * MIB
    with pytest.raises(Overloaded):
        await Expander().expanded(bomb, coding, 63 * MIB, hold)
    hold.release()
    assert await Expander().expanded(bomb[:0], coding, MIB, hold) == b""
    assert await Expander().expanded(compressed(b"x" * MIB, coding) * 2, coding, 2 * MIB, hold) == b"x" * 2 * MIB
    assert 2 * MIB - 64 * KIB < budget.held_bytes <= 2 * MIB
    with pytest.raises(MalformedBody):
        await Expander().expanded(compressed(b"x" * MIB, coding)[:-9], coding, 2 * MIB, hold)
    hold.release()
    assert budget.held_bytes == 0


@pytest.mark.parametrize("coding", CODINGS)
async def test_large_bodies_wait_for_one_another_and_none_is_refused(coding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of four that came at once had a part of the room before, and waited for the rest until most were refused."""
    monkeypatch.setattr(body_budget, "WAIT_S", 30.0)
    monkeypatch.setattr(content_coding, "WAIT_S", 30.0)
    body = compressed(b"x" * 30 * MIB, coding)
    budget, expander = BodyBudget(96 * MIB), Expander()

    async def sent() -> int:
        hold = budget.hold()
        await hold.take(len(body))
        try:
            size = len(await expander.expanded(body, coding, 32 * MIB, hold))
            assert budget.held_bytes <= 64 * MIB
            return size
        finally:
            hold.release()

    assert await asyncio.gather(*(sent() for _ in range(4))) == [30 * MIB] * 4
    assert (budget.held_bytes, budget.refused) == (0, 0)


@pytest.mark.parametrize(("accepts", "coding"), [
    ("", ""), ("gzip", "gzip"), ("zstd", "zstd"), ("gzip, deflate, br, zstd", "zstd"), ("gzip;q=1, zstd;q=0.5", "gzip"),
    ("GZIP ; Q=0.3", "gzip"), ("x-gzip", "gzip"), ("*", "zstd"), ("*;q=0", ""), ("zstd;q=0, *", "gzip"), ("br", ""),
    ("gzip;q=0", ""), ("gzip;q=0.000", ""), ("gzip;q=x", ""), ("identity", ""), ("identity;q=1, gzip;q=0.5", ""),
    ("identity;q=0.5, gzip;q=1", "gzip"), (",,;", ""), ("gzip;q=nan", ""),
])
def test_accept_encoding(accepts: str, coding: str) -> None:
    assert accepted_coding(accepts) == coding


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_long_answer_is_compressed(door: DoorClient, coding: str) -> None:
    await door.put("UA,1", LONG)
    url = f"{ROWS}/UA,1"
    as_is = await _raw(door, url, "identity")
    packed = await _raw(door, url, coding)
    assert packed[0]["content-encoding"] == coding
    assert len(packed[1]) < len(as_is[1]) / 10
    assert expanded(packed[1], coding) == as_is[1]
    assert "content-encoding" not in as_is[0]
    assert packed[0]["etag"] != as_is[0]["etag"]
    for headers, _ in (as_is, packed):
        assert "Accept-Encoding" in headers["vary"]
    known = await door.http.get(url, headers={"accept-encoding": coding, "if-none-match": packed[0]["etag"]})
    assert (known.status_code, known.headers["etag"]) == (304, packed[0]["etag"])
    other = await door.http.get(url, headers={"accept-encoding": "identity", "if-none-match": packed[0]["etag"]})
    assert other.status_code == 200
    written = await door.http.put(url, json={}, headers={"if-match": packed[0]["etag"]})
    assert written.status_code == 200, "a tag of any representation names the version"


async def test_a_short_answer_is_not_compressed(door: DoorClient) -> None:
    await door.put("UA,1", {"note": "short"})
    headers, _ = await _raw(door, f"{ROWS}/UA,1", "gzip, zstd")
    assert "content-encoding" not in headers
    assert (await _raw(door, f"{ROWS}/UA,1", "identity"))[0]["etag"] == headers["etag"]


@pytest.mark.parametrize("coding", [*CODINGS, "identity"])
async def test_pages_and_lines_are_compressed(coding: str) -> None:
    rows = [{"carrier": "UA", "flight": number, "note": f"row {number}"} for number in range(1500)]
    async with served_door() as door:
        sent = {"mutations": [{"op": "upsert", "row": row} for row in rows]}
        assert (await door.http.post(f"{ROWS}:mutate", json=sent)).status_code == 200
        headers, body = await _raw(door, f"{ROWS}?columns=carrier,flight,note&limit=1500", coding)
        assert headers.get("content-encoding", "identity") == coding
        assert json.loads(_expanded(body, coding))["rows"] == rows
        headers, body = await _raw(door, f"{ROWS}?columns=carrier,flight,note", coding, "application/x-ndjson")
        assert headers.get("content-encoding", "identity") == coding
        assert [json.loads(line) for line in _expanded(body, coding).splitlines()] == rows
        assert "Accept-Encoding" in headers["vary"]
        headers, body = await _raw(door, "/openapi.json", coding)
        assert headers.get("content-encoding", "identity") == coding
        assert "paths" in json.loads(_expanded(body, coding))


async def test_lines_of_no_row_are_whole_in_their_coding() -> None:
    async with plain_door() as door:
        for coding in CODINGS:
            headers, body = await _raw(door, ROWS, coding, "application/x-ndjson")
            assert headers["content-encoding"] == coding
            assert expanded(body, coding) == b""


def _expanded(data: bytes, coding: str) -> bytes:
    return data if coding == "identity" else expanded(data, coding)


async def _raw(door: DoorClient, url: str, accepts: str, kind: str = "application/json") -> tuple[dict[str, str], bytes]:
    """The headers and the body as they came."""
    request = door.http.build_request("GET", url, headers={"accept-encoding": accepts, "accept": kind})
    answer = await door.http.send(request, stream=True)
    if not answer.is_closed:
        body = b"".join([part async for part in answer.aiter_raw()])
    elif answer.headers.get("content-encoding") == "gzip":
        body = compressed(answer.content, "gzip")  # the hook has read it, and httpx has expanded it
    else:
        body = answer.content
    assert answer.status_code == 200
    await answer.aclose()
    return dict(answer.headers), body


async def test_want_of_memory_is_no_fault_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(source: object, coding: str) -> object:
        raise pa.ArrowMemoryError("ZSTD_DCtx create failed")

    monkeypatch.setattr(pa, "CompressedInputStream", refused)
    with pytest.raises(MemoryError):
        await Expander().expanded(compressed(b"x" * MIB, "zstd"), "zstd", MIB, BodyBudget(96 * MIB).hold())
