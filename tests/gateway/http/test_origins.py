"""Host and Origin: a page of another site cannot use a browser against this one, whatever it sends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.origins import Origins
from gateway.service.http_settings import HttpSettings
from tests.gateway.documented import document
from tests.gateway.door_client import ROWS, DoorClient, plain_door, problem, served_door

APP, EVIL = "https://app.example", "https://evil.example"
FAILOVER = {"kind": "failover", "to": "b"}
SHOWN = "access-control-allow-origin"
SETTINGS = HttpSettings(
    host="0.0.0.0", advertised_url="http://Gateway-A.example.org:8401", allowed_hosts=("orders.example",), cors_origins=(APP,)
)
PATHS = [
    (method.upper(), path.replace("{table}", "flights").replace("{key}", "UA,1"))
    for path, methods in document()["paths"].items() for method in methods
]
every_path = pytest.mark.parametrize(("method", "path"), PATHS, ids=[f"{method} {path}" for method, path in PATHS])
ways = pytest.mark.parametrize("query", ["", "?columns=note"], ids=["hot", "plain"])


@pytest.fixture
async def named() -> AsyncIterator[DoorClient]:
    async with served_door(SETTINGS) as opened:
        yield opened


def _statuses(answer: bytes) -> list[str]:
    return [part[:3] for part in answer.decode().split("HTTP/1.1 ")[1:]]


# ---- Host
@ways
@pytest.mark.parametrize("host", [
    "", "host: localhost\r\nHost: localhost\r\n", "host: localhost\r\nhost: evil.example\r\n", "host:\r\nhost: localhost\r\n",
    "host:\r\n", "host: a b\r\n", "host: localhost, localhost\r\n", "host: localhost:8401:1\r\n", "host: http://localhost\r\n",
    "host: user@localhost\r\n", "host: [::1\r\n",
])
async def test_a_host_that_is_missing_doubled_or_none(served: DoorClient, host: str, query: str) -> None:
    await served.put("UA,1", {})
    for target in (f"{ROWS}/UA,1{query}", "/health/live", "/v1/nothing"):
        assert _statuses(await served.raw(f"GET {target} HTTP/1.1\r\n{host}connection: close\r\n\r\n".encode())) == ["400"]


@ways
async def test_an_old_client_needs_no_host(served: DoorClient, query: str) -> None:
    await served.put("UA,1", {})
    assert _statuses(await served.raw(f"GET {ROWS}/UA,1{query} HTTP/1.0\r\n\r\n".encode())) == ["200"]


@every_path
async def test_a_name_that_is_not_ours_reaches_no_route(plain: DoorClient, method: str, path: str) -> None:
    """A page whose name was bound to this site's address sends its own name."""
    await plain.put("UA,1", {})
    for target in (path, "/"):
        answer = await plain.http.request(method, target, json=FAILOVER, headers={"host": "evil.example:8401"})
        assert "http.allowed_hosts" in problem(answer, 403, "forbidden")["detail"]
    await plain.get("UA,1")


@pytest.mark.parametrize("host", [
    "localhost", "LOCALHOST:8401", "a.localhost:1", "127.0.0.1:8401", "127.1.2.3", "[::1]:8401", "192.0.2.7:80", "localhost.",
    "gateway-a.example.org:8401", "GATEWAY-A.example.org", "orders.example",
])
async def test_a_site_answers_to_its_names_and_addresses(named: DoorClient, host: str) -> None:
    for path in (f"{ROWS}/UA,1", "/v1/cluster", f"{ROWS}/UA,1"):
        assert (await named.http.get(path, headers={"host": host})).status_code in (200, 404)


@given(st.text(st.characters(codec="latin-1"), max_size=40))
def test_any_host_is_known_or_refused(host: str) -> None:
    origins = Origins(HttpSettings())
    for _ in range(2):
        assert not origins.knows(host.encode("latin-1")) or host.strip(".").partition(":")[0].lower().endswith((
            "localhost", *"0123456789", "[", "]",
        ))


def test_what_is_remembered_of_hosts_is_bounded() -> None:
    origins = Origins(HttpSettings())
    assert all(origins.knows(b"localhost:%d" % port) for port in range(5000))
    assert len(origins._known) <= 1000


# ---- Origin
@every_path
@pytest.mark.parametrize("origin", [EVIL, "null", "", "http://localhost:1", "file://localhost"])
async def test_a_page_of_another_origin_reaches_no_route(plain: DoorClient, method: str, path: str, origin: str) -> None:
    await plain.put("UA,1", {})
    answer = await plain.http.request(method, path, json=FAILOVER, headers={"origin": origin})
    document = problem(answer, 403, "forbidden")
    assert "http.cors_origins" in document["detail"]
    assert document.get("outcome") == (None if method == "GET" else "not_applied")
    assert SHOWN not in answer.headers
    await plain.get("UA,1")


@ways
async def test_pages_of_this_site_and_of_configured_origins(named: DoorClient, query: str) -> None:
    await named.put("UA,1", {}, origin=APP)
    for origin, shown in ((APP, APP), (f"http://127.0.0.1:{named.port}", None), (f"HTTP://127.0.0.1:{named.port}", None)):
        answer = await named.http.get(f"{ROWS}/UA,1{query}", headers={"origin": origin})
        assert (answer.status_code, answer.headers.get(SHOWN)) == (200, shown)
    missing = await named.http.get(f"{ROWS}/UA,2{query}", headers={"origin": APP})
    assert (missing.status_code, missing.headers[SHOWN]) == (404, APP)
    assert "ETag" in missing.headers["access-control-expose-headers"]
    for headers in ({}, {"origin": APP}):
        assert "Origin" in (await named.http.get(f"{ROWS}/UA,1{query}", headers=headers)).headers.get_list("vary")
    twice = [("origin", APP), ("origin", APP)]
    problem(await named.http.get(f"{ROWS}/UA,1{query}", headers=twice), 403, "forbidden")


async def test_a_browser_asks_before_it_writes(named: DoorClient) -> None:
    asked = {"origin": APP, "access-control-request-method": "PUT", "access-control-request-headers": "content-type,if-match"}
    answer = await named.http.options(f"{ROWS}/UA,1", headers=asked)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers[SHOWN] == APP
    assert "PUT" in answer.headers["access-control-allow-methods"].split(", ")
    assert {"Content-Type", "If-Match", "Idempotency-Key"} <= set(answer.headers["access-control-allow-headers"].split(", "))
    refused = await named.http.options(f"{ROWS}/UA,1", headers=asked | {"origin": EVIL})
    problem(refused, 403, "forbidden")
    assert not [name for name in refused.headers if name.startswith("access-control")]


async def test_no_origin_is_configured_by_default() -> None:
    async with plain_door() as door:
        assert "vary" not in (await door.http.get("/v1/cluster")).headers
        problem(await door.http.get("/v1/cluster", headers={"origin": APP}), 403, "forbidden")
