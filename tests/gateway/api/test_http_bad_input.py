"""Bad input of every kind: each is answered with a problem that names it, nothing is written, and the door goes on."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec
import pytest

from gateway.http.protocol import ConnectionLimits, DoorProtocol
from gateway.service.http_settings import HttpSettings
from tests.gateway.documented import document
from tests.gateway.door_client import ROWS, DoorClient, problem, served_door

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(("key", "row", "members"), [
    ("UA,1", {"colour": "red"}, {"column": "colour"}),
    ("UA", {}, {"column": "flight"}),
    ("UA,1,2", {}, {}),
    ("UA,x", {}, {"column": "flight"}),
    ("UA,2147483648", {}, {"column": "flight"}),
    ("UA,1.0", {}, {"column": "flight"}),
    ("%FF,1", {}, {"column": "carrier"}),
    ("UA,1", {"flight": 2}, {"column": "flight"}),
    ("UA,1", {"delay": "late"}, {"column": "delay"}),
    ("UA,1", {"delay": True}, {"column": "delay"}),
    ("UA,1", {"at": "yesterday"}, {"column": "at"}),
    ("UA,1", {"raw": "no base64!"}, {"column": "raw"}),
    ("UA,1", {"raw": "AA="}, {"column": "raw"}),
    ("UA,1", {"note": None}, {"column": "note"}),
    ("UA,1", {"note": 5}, {"column": "note"}),
])
async def test_a_wrong_row_names_its_column(door: DoorClient, key: str, row: dict[str, Any], members: dict[str, Any]) -> None:
    answer = await door.http.put(f"{ROWS}/{key}", json=row)
    problem(answer, 422, "invalid-input", outcome="not_applied", **members)
    assert door.service.deadlines_s == []


async def test_nan_in_a_key_and_numbers_out_of_range(door: DoorClient) -> None:
    columns = [{"name": "k", "type": "float64"}, {"name": "n", "type": "int32"}, {"name": "f", "type": "float32"}]
    await door.http.post("/v1/tables", json={"name": "m", "columns": columns, "primary_key": ["k"]})
    rows = "/v1/tables/m/rows"
    problem(await door.http.put(f"{rows}/NaN", json={}), 422, "invalid-input", column="k")
    insert = {"mutations": [{"op": "insert", "row": {"k": "NaN"}}]}
    problem(await door.http.post(f"{rows}:mutate", json=insert), 422, "invalid-input", column="k", mutation=0)
    for row, column in (({"n": 2**31}, "n"), ({"n": -(2**31) - 1}, "n"), ({"n": 10**30}, "n"), ({"f": 1e300}, "f")):
        problem(await door.http.put(f"{rows}/1.5", json=row), 422, "invalid-input", column=column)
    native = msgspec.msgpack.encode({"k": float("nan")})
    answer = await door.http.put(f"{rows}/1.5", content=native, headers={"content-type": "application/x-msgpack"})
    problem(answer, 422, "invalid-input", column="k")


async def test_an_unknown_table(door: DoorClient) -> None:
    for method in ("PUT", "GET"):
        answer = await door.http.request(method, "/v1/tables/nowhere/rows/1", content=b"{}", headers=JSON)
        problem(answer, 404, "not-found", table="nowhere")


@pytest.mark.parametrize("content", [
    b"", b"{", b'{"note": "x"', b'{"note": "\xff"}', b"{'note': 1}", b"nonsense", b'{"a": 1}}', b'{"more": ' + b"[" * 5000,
])
async def test_a_body_that_is_no_json(door: DoorClient, content: bytes) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", content=content, headers=JSON)
    problem(answer, 400, "malformed-body", outcome="not_applied")


@pytest.mark.parametrize("content", [b"[]", b"3", b"null", b'"x"'])
async def test_a_body_that_is_no_object(door: DoorClient, content: bytes) -> None:
    problem(await door.http.put(f"{ROWS}/UA,1", content=content, headers=JSON), 422, "invalid-input", outcome="not_applied")


@pytest.mark.parametrize("content", [b"", b"\x81", b"\xc1", b"\x81\xa4note\xa1\xff"])
async def test_a_body_that_is_no_msgpack(door: DoorClient, content: bytes) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", content=content, headers={"content-type": "application/x-msgpack"})
    problem(answer, 400, "malformed-body")


async def test_a_row_of_two_mebibytes(door: DoorClient) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", json={"note": "x" * (2 << 20)})
    problem(answer, 413, "too-large", row_bytes_max=1 << 20, outcome="not_applied")
    await door.put("UA,1", {})


async def test_members_that_nobody_knows(plain: DoorClient) -> None:
    for path, body in (
        (f"{ROWS}:mutate", {"mutations": [], "colour": 1}), (f"{ROWS}:mutate", {"mutations": [{"op": "upsert", "rows": {}}]}),
        (f"{ROWS}:mutate", {"mutations": [{"op": "replace", "row": {}}]}), (f"{ROWS}:mutate", {}), (f"{ROWS}:mutate", []),
        ("/v1/operations", {"kind": "switchover", "too": "b"}), ("/v1/operations", {}), ("/v1/tables", {"nom": "x"}),
    ):
        problem(await plain.http.post(path, json=body), 422, "invalid-input", outcome="not_applied")


@pytest.mark.parametrize(("method", "path"), [
    ("GET", f"{ROWS}/UA,1"), ("PUT", f"{ROWS}/UA,1"), ("GET", ROWS), ("GET", "/v1/tables"), ("POST", f"{ROWS}:mutate"),
    ("GET", "/v1/cluster"), ("GET", "/health/standby"), ("GET", "/metrics"), ("DELETE", f"{ROWS}/UA,1"),
])
async def test_an_unknown_query_parameter_is_named(door: DoorClient, method: str, path: str) -> None:
    answer = await door.http.request(method, f"{path}?colour=red", content=b"{}", headers=JSON)
    document = problem(answer, 422, "invalid-input", parameters=["colour"])
    if path == ROWS:
        assert set(document["allowed"]) == {
            "start", "end", "where", "columns", "limit", "page_token", "as_of", "reverse", "stale", "snapshot", "versions",
            "int64",
        }


WRITES = [
    (method, path.replace("{table}", "flights").replace("{key}", "UA,1").replace("{target}", "0123456789abcdef")
     .replace("{audit}", "1-compare"))
    for path, methods in document()["paths"].items() for method in methods if method != "get"
]


@pytest.mark.parametrize("headers", [{}, {"content-type": ""}, {"content-type": "text/plain"}], ids=["none", "empty", "text"])
@pytest.mark.parametrize(("method", "path"), WRITES, ids=[f"{method} {path}" for method, path in WRITES])
async def test_no_write_takes_a_body_that_any_page_may_send(
    plain: DoorClient, method: str, path: str, headers: dict[str, str]
) -> None:
    """A browser sends text, forms and bodies without a type to any site without asking it first."""
    await plain.put("UA,1", {})
    answer = await plain.http.request(method.upper(), path, content=b'{"kind":"failover","to":"b"}', headers=headers)
    problem(answer, 415, "unsupported-media-type", outcome="not_applied")
    await plain.get("UA,1")


async def test_a_write_without_a_body_needs_no_type(door: DoorClient) -> None:
    assert (await door.http.delete(f"{ROWS}/UA,1")).status_code == 200


@pytest.mark.parametrize(("method", "path", "named"), [
    ("PUT", f"{ROWS}/UA,1", "application/x-msgpack"), ("PATCH", f"{ROWS}/UA,1", "application/json"),
    ("POST", f"{ROWS}:mutate", "application/vnd.apache.arrow.stream"), ("POST", f"{ROWS}/UA,1:check", "application/json"),
    ("POST", "/v1/tables", "application/json"), ("POST", "/v1/operations", "application/json"),
])
async def test_an_unknown_content_type_names_those_taken(door: DoorClient, method: str, path: str, named: str) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = await door.http.request(method, path, content=b"a=b", headers=headers)
    document = problem(answer, 415, "unsupported-media-type", outcome="not_applied")
    assert named in document["detail"]
    assert named in answer.headers["accept"]


async def test_a_content_type_with_parameters_is_taken(door: DoorClient) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", content=b"{}", headers={"content-type": "Application/JSON; charset=utf-8"})
    assert answer.status_code == 200


@pytest.mark.parametrize("accept", ["*/*", "application/*", "text/html, application/json;q=0.9", "application/json", ""])
async def test_accept_that_can_be_met(door: DoorClient, accept: str) -> None:
    await door.put("UA,1", {}, accept=accept)


async def test_accept_that_cannot_be_met_writes_nothing(door: DoorClient) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", json={}, headers={"accept": "text/html"})
    problem(answer, 406, "not-acceptable", outcome="not_applied")
    assert door.service.deadlines_s == []


@pytest.mark.parametrize(("method", "path", "allowed"), [
    ("POST", f"{ROWS}/UA,1", {"GET", "PUT", "PATCH", "DELETE"}), ("PUT", ROWS, {"GET"}),
    ("DELETE", "/v1/tables", {"GET", "POST"}), ("PUT", "/v1/tables/flights", {"GET", "PATCH", "DELETE"}),
    ("GET", f"{ROWS}:mutate", {"POST"}), ("POST", "/health/live", {"GET"}), ("BREW", "/v1/cluster", {"GET"}),
])
async def test_a_wrong_method_names_those_that_are_right(plain: DoorClient, method: str, path: str, allowed: set[str]) -> None:
    answer = await plain.http.request(method, path)
    problem(answer, 405, "method-not-allowed")
    others = {"OPTIONS", "HEAD"} if "GET" in allowed else {"OPTIONS"}
    assert set(answer.headers["allow"].split(", ")) == allowed | others


@pytest.mark.parametrize("path", ["/x", "/v1", "/v2/tables", "/v1/tables/flights/row/1", "/v1/tables/", "/v1/tables/flights/"])
async def test_nothing_there(door: DoorClient, path: str) -> None:
    problem(await door.http.get(path), 404, "no-such-path")


# ---- over a bare socket, for what no client library would send
PUT = f"PUT {ROWS}/UA,1 HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
POST = f"POST {ROWS}:mutate HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()


def _parsed(answer: bytes) -> tuple[int, dict[str, Any]]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), msgspec.json.decode(body)


@pytest.mark.parametrize("head", [PUT, POST])
async def test_a_body_that_is_cut_in_the_middle(served: DoorClient, head: bytes) -> None:
    status, document = _parsed(await served.raw(head + b'content-length: 50\r\n\r\n{"note": "', end=True))
    assert (status, document["type"]) == (400, "urn:twinlog:problem:malformed-body")
    assert document["outcome"] == "not_applied"
    chunked = b'transfer-encoding: chunked\r\n\r\na\r\n{"note": "'
    assert _parsed(await served.raw(head + chunked, end=True))[0] == 400
    assert served.service.deadlines_s == []
    await served.put("UA,1", {})


async def test_a_client_that_is_gone_in_the_middle(served: DoorClient) -> None:
    for head in (PUT, POST):
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + b'content-length: 50\r\n\r\n{"note": "')
        await writer.drain()
        writer.transport.abort()
    await served.put("UA,1", {})
    assert len(served.service.deadlines_s) == 1


@pytest.mark.parametrize("data", [
    b"hello\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", PUT + b"content-length: x\r\n\r\n",
])
async def test_what_is_no_http(served: DoorClient, data: bytes) -> None:
    assert _parsed(await served.raw(data))[0] == 400


async def test_a_head_without_end() -> None:
    async with served_door(limits=ConnectionLimits(head_bytes_max=4096)) as door:
        status, document = _parsed(await door.raw(PUT + b"x-long: " + b"x" * 8000))
        assert (status, document["type"]) == (431, "urn:twinlog:problem:head-too-large")
        many = b"".join(b"x-%d: y\r\n" % n for n in range(1000))
        assert _parsed(await door.raw(PUT + many))[0] == 431


@pytest.mark.parametrize(("data", "reads"), [
    (PUT + b'content-length: 50\r\n\r\n{"note": "', True), (POST + b'content-length: 50\r\n\r\n{"note": "', True),
    (PUT, True), (b"", False),
])
async def test_a_slow_client_is_told_in_time(data: bytes, reads: bool) -> None:
    async with served_door(limits=ConnectionLimits(request_read_s=0.2)) as door:
        began_s = time.monotonic()
        answer = await door.raw(data)
        assert 0.15 < time.monotonic() - began_s < 5
        if reads:
            status, document = _parsed(answer)
            assert (status, document["type"]) == (408, "urn:twinlog:problem:request-timeout")
        else:
            assert answer == b""
        assert door.service.deadlines_s == []


async def test_a_client_that_drips_is_told_in_time() -> None:
    """Each byte comes soon after the one before, and yet the request as a whole has its time."""
    async with served_door(limits=ConnectionLimits(request_read_s=0.3)) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(PUT + b"content-length: 100000\r\n\r\n{")

        async def drip() -> None:
            while True:
                writer.write(b" ")
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        try:
            assert _parsed(await reader.read())[0] == 408  # to its end, and no reset for what is dripped meanwhile
        finally:
            dripping.cancel()
            writer.transport.abort()


async def test_too_many_connections_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DoorProtocol, "waits_since", lambda self: None)  # each is being served
    async with served_door(limits=ConnectionLimits(connections_max=1)) as door:
        await door.put("UA,1", {})
        status, document = _parsed(await door.raw(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"))
        assert (status, document["type"]) == (503, "urn:twinlog:problem:unavailable")
        await door.put("UA,1", {})


async def test_a_long_body_is_refused_before_it_is_read(served: DoorClient) -> None:
    for head in (PUT, POST):
        status, document = _parsed(await served.raw(head + b"connection: close\r\ncontent-length: 999999999999\r\n\r\n"))
        assert (status, document["type"]) == (413, "urn:twinlog:problem:too-large")


async def test_a_body_without_length_is_refused_when_it_grows_too_long() -> None:
    async with served_door(HttpSettings(body_bytes_max=1024)) as door:
        chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
        for head in (PUT, POST):
            answer = await door.raw(head + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n" + chunk + chunk)
            assert _parsed(answer)[0] == 413


async def test_a_body_that_is_too_long_is_told_to_a_client_that_sends_it_all(served: DoorClient) -> None:
    for method, path in (("PUT", f"{ROWS}/UA,1"), ("POST", f"{ROWS}:mutate")):
        body = b" " * (served.app.context.http.body_bytes_max + 1)
        problem(await served.http.request(method, path, content=body, headers=JSON), 413, "too-large", outcome="not_applied")


@pytest.mark.parametrize("doubled", ["confirm=other&confirm=flights", "confirm=flights&confirm=flights"])
async def test_a_parameter_that_is_there_twice_is_refused(plain: DoorClient, doubled: str) -> None:
    """A proxy that checks requests may read the first, where the site would do what the last one says."""
    await plain.put("UA,1", {})
    answer = await plain.http.delete(f"/v1/tables/flights?{doubled}")
    assert "more than once" in problem(answer, 422, "invalid-input", outcome="not_applied")["detail"]
    await plain.get("UA,1")


async def test_conditions_of_a_scan_may_be_there_more_than_once(plain: DoorClient) -> None:
    await plain.put("UA,1", {})
    where = [("where", '{"column":"flight","op":">","value":0}'), ("where", '{"column":"flight","op":"<","value":2}')]
    assert len((await plain.http.get(ROWS, params=where)).json()["rows"]) == 1
