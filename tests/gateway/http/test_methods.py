"""HEAD is answered wherever GET is, as GET without a body; OPTIONS names what a path takes."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.documented import document
from tests.gateway.door_client import ROWS, DoorClient, plain_door, problem

PATHS = {
    path.replace("{table}", "flights").replace("{key}", "UA,1"): set(methods) for path, methods in document()["paths"].items()
}
STREAMS = [path for path in PATHS if path.endswith("/events")]
READ = [*(path for path, methods in PATHS.items() if "get" in methods and path not in STREAMS), f"{ROWS}/UA,2", "/openapi.json"]
CHANGING = {"date", "content-length"}


@pytest.mark.parametrize("path", READ)
async def test_head_is_get_without_a_body(door: DoorClient, path: str) -> None:
    await door.put("UA,1", {"note": "1"})
    got, headed = await door.http.get(path), await door.http.head(path)
    assert (headed.status_code, headed.content) == (got.status_code, b"")
    kept = [{name: value for name, value in one.headers.items() if name not in CHANGING} for one in (headed, got)]
    assert kept[0] == kept[1]
    if path not in ("/metrics", "/v1/cluster", "/v1/view"):  # these show the time
        assert headed.headers["content-length"] == got.headers["content-length"]


async def test_head_of_a_row_has_its_conditions(door: DoorClient) -> None:
    await door.put("UA,1", {"note": "1"})
    tag = (await door.http.head(f"{ROWS}/UA,1")).headers["etag"]
    assert (await door.http.head(f"{ROWS}/UA,1", headers={"if-none-match": tag})).status_code == 304
    assert (await door.http.head(f"{ROWS}/UA,1", headers={"if-match": '"1"'})).status_code == 412


@pytest.mark.parametrize(("path", "accept"), [("/v1/cluster/events", "*/*"), (ROWS, "application/x-ndjson")])
async def test_head_of_a_stream_ends_at_once(served: DoorClient, path: str, accept: str) -> None:
    """Its connection serves the next request."""
    await served.put("UA,1", {})
    head = f"HEAD {path} HTTP/1.1\r\nhost: localhost\r\naccept: {accept}\r\n\r\n"
    last = "GET /v1/nothing HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    async with asyncio.timeout(120):
        answer = (await served.raw((head + head + last).encode())).decode()
    parts = answer.split("HTTP/1.1 ")[1:]
    assert [part[:3] for part in parts] == ["200", "200", "404"]
    assert all(part.endswith("\r\n\r\n") for part in parts[:2])


@pytest.mark.parametrize("path", [*PATHS, "/openapi.json", "/*"])
async def test_options_names_the_methods(door: DoorClient, path: str) -> None:
    answer = await door.http.options(path)
    assert (answer.status_code, answer.content) == (204, b"")
    named = set(answer.headers["allow"].split(", "))
    taken = {method.upper() for method in PATHS.get(path, {"get"})}
    if path == "/*":
        taken = {method.upper() for methods in PATHS.values() for method in methods}
    taken |= {"OPTIONS"} | ({"HEAD"} if "GET" in taken else set())
    assert named >= taken if ":" in path else named == taken  # a colon may stand in a name, too


async def test_options_of_the_site_as_a_whole(served: DoorClient) -> None:
    answer = await served.raw(b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 204")
    assert b"\r\nallow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT\r\n" in answer


async def test_no_method_where_nothing_is(door: DoorClient) -> None:
    for method in ("HEAD", "OPTIONS"):
        answer = await door.http.request(method, "/v1/nothing")
        assert answer.status_code == 404
    problem(await door.http.options("/v1/nothing"), 404, "no-such-path")
    assert (await door.http.head(f"{ROWS}:mutate")).headers["allow"] == "OPTIONS, POST"


async def test_two_doors_of_one_process_answer_each_for_its_own_site() -> None:
    """They share the routes."""
    async with plain_door() as one, plain_door() as other:
        await one.put("UA,1", {"note": "1"})
        assert [(await door.http.get(f"{ROWS}/UA,1")).status_code for door in (one, other, one)] == [200, 404, 200]
        shown = [(await door.http.get("/metrics")).text for door in (one, other)]
        assert ['twinlog_http_problems_total{code="not-found",status="404"} 1.0' in each for each in shown] == [False, True]
