"""Each attempt that passed before there were identities changes nothing now, and shows nothing, by whoever has no right."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gateway.access.certificates import Certificates
from gateway.access.gate import Gate
from gateway.access.limits import LimitSettings
from gateway.service.http_settings import HttpSettings
from tests.gateway.access.rig import GRANTS, Clock, GuardedDoor, guarded_door
from tests.gateway.access.test_certificates import pem
from tests.gateway.cli.cli_rig import invoke
from tests.gateway.door_client import ROWS, problem, served_door
from tests.gateway.two_sites import TwoSites
from twinlog.sites import Sites

EVIL = "https://evil.example"
CONTROLS = {"\x1b", "\x07", "\x9b", "\r", "\u202e"}


def _all_but(*names: str) -> list[dict[str, str] | str]:
    """Everybody without the grant, and nobody."""
    return ["", *(name for name in GRANTS if name not in names)]  # type: ignore[list-item]


async def _refused(door: GuardedDoor, who: Any, method: str, path: str, **asked: Any) -> None:
    headers = {**(door.as_(who) if who else {}), **asked.pop("headers", {})}
    answer = await door.http.request(method, path, headers=headers, **asked)
    problem(answer, 403 if who else 401, "missing-grant" if who else "unauthenticated")


# ---- rows and tables
@pytest.mark.parametrize("who", _all_but("writer", "both"))
@pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])
async def test_a_write(door: GuardedDoor, who: str, query: str) -> None:
    assert (await door.http.put(f"{ROWS}/UA,1", json={"note": "as it was"}, headers=door.as_("writer"))).status_code == 200
    batch = {"mutations": [{"op": "delete", "key": {"carrier": "UA", "flight": 1}}]}
    for _ in range(2):
        await _refused(door, who, "PUT", f"{ROWS}/UA,1{query}", json={"note": "theirs"})
        await _refused(door, who, "PATCH", f"{ROWS}/UA,1{query}", json={"note": "theirs"})
        await _refused(door, who, "DELETE", f"{ROWS}/UA,1{query}")
        await _refused(door, who, "POST", f"{ROWS}:mutate{query}", json=batch)
        await _refused(door, who, "POST", f"{ROWS}/UA,1:check", json={"conditions": [], **batch})
    kept = await door.http.get(f"{ROWS}/UA,1", headers=door.as_("reader"))
    assert kept.json()["row"]["note"] == "as it was"


@pytest.mark.parametrize("who", _all_but("admin"))
async def test_a_drop(door: GuardedDoor, who: str) -> None:
    await _refused(door, who, "DELETE", "/v1/tables/flights?confirm=flights")
    await _refused(door, who, "PATCH", "/v1/tables/flights", json={"drop": ["note"]})
    assert [table["name"] for table in (await door.http.get("/v1/tables", headers=door.as_("admin"))).json()["tables"]] == [
        "flights"
    ]


# ---- role changes
@pytest.mark.parametrize("who", _all_but("operator"))
async def test_a_role_change_also_as_a_dry_run(door: GuardedDoor, who: str) -> None:
    for kind in ("failover", "switchover", "degrade", "resync", "rejoin", "skip"):
        for dry_run in (False, True):
            body = {"kind": kind, "to": "b", "dry_run": dry_run, "options": {"accept_data_loss": "unknown"}}
            await _refused(door, who, "POST", "/v1/operations", json=body)
    for action in ("abort", "resume"):
        await _refused(door, who, "POST", f"/v1/operations/op-1:{action}")
    assert await door.service.operations.all() == []


@pytest.fixture
async def with_certificates() -> AsyncIterator[GuardedDoor]:
    """A door that takes the certificate of an operator: a browser shows it by itself, whatever page asks."""
    clock = Clock()
    gate = Gate([Certificates({"cn:ann": "operator writer:* admin:*"})], LimitSettings(), wall_s=clock, now_s=clock)
    async with served_door(HttpSettings(cors_origins=("https://app.example",)), gate=gate) as door:
        app, chain = door.app.__call__, [pem("ann")]

        async def with_certificate(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "extensions": {"tls": {"client_cert_chain": chain}}}, receive, send)

        assert door.server is not None
        door.server._server.config.loaded_app = with_certificate
        yield GuardedDoor(door.http, door.service, door.app, door.server, gate)


@pytest.mark.parametrize("content_type", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize("origin", [EVIL, "null", "http://127.0.0.1:1", "https://app.example.evil.example"])
async def test_a_role_change_of_a_web_page_in_an_operators_browser(
    with_certificates: GuardedDoor, origin: str, content_type: str
) -> None:
    door = with_certificates
    headers = {"origin": origin, "content-type": content_type}
    for body in ({"kind": "failover", "to": "b"}, {"kind": "degrade"}):
        answer = await door.http.post("/v1/operations", content=json.dumps(body), headers=headers)
        problem(answer, 403, "forbidden")
    problem(await door.http.delete("/v1/tables/flights?confirm=flights", headers={"origin": origin}), 403, "forbidden")
    problem(await door.http.get("/", headers={"origin": origin}), 403, "forbidden")
    assert await door.service.operations.all() == []


async def test_the_operator_of_that_browser_may(with_certificates: GuardedDoor) -> None:
    """Else the test above shows nothing."""
    answer = await with_certificates.http.post("/v1/operations", json={"kind": "failover", "to": "b"})
    assert answer.json()["actor"] == "certificate cn:ann (127.0.0.1)"


# ---- as the other site
@pytest.mark.parametrize("who", _all_but())
async def test_a_call_of_the_other_site(door: GuardedDoor, who: str) -> None:
    called = []

    async def peer(method: str, body: bytes) -> bytes:
        called.append(method)
        return b""

    object.__setattr__(door.app.context.service, "peer_call", peer)
    await _refused(door, who, "POST", "/internal/v1/peer/append", content=b"\x80", headers={
        "content-type": "application/x-msgpack", "x-forwarded-client-cert": "URI=twinlog://shop/b",
    })
    assert called == []


async def test_a_sites_certificate_is_no_client_on_the_public_listener() -> None:
    clock = Clock()
    gate = Gate([Certificates({"cn:b": "operator"})], LimitSettings(), wall_s=clock, now_s=clock)
    async with served_door(gate=gate) as door:
        app = door.app.__call__

        async def as_site(scope: Any, receive: Any, send: Any) -> None:
            await app({**scope, "extensions": {"tls": {"client_cert_chain": [pem("b", ["twinlog://shop/b"])]}}}, receive, send)

        assert door.server is not None
        door.server._server.config.loaded_app = as_site
        problem(await door.http.post("/internal/v1/peer/status", content=b"\x80"), 401, "unauthenticated")
        problem(await door.http.get("/v1/operations"), 401, "unauthenticated")


async def test_a_plain_peer_is_let_through_only_where_the_file_says_so() -> None:
    async with guarded_door(plain_peer=True) as door:
        headers = {"content-type": "application/x-msgpack"}
        assert (await door.http.post("/internal/v1/peer/echo", content=b"\x80", headers=headers)).content == b"\x80"
        await _refused(door, "", "GET", "/v1/operations")
        await _refused(door, "", "PUT", f"{ROWS}/UA,1", json={})


# ---- a copy of the database by a barrier's name
PATHS = ["../../etc/cron.d/x", "/tmp/x", "..", ".", "a/b", "a\\b", "a\x00b", "a\nb", "~", "", "a" * 64, "..%2fx", "-x", ".x"]


@pytest.mark.parametrize("name", PATHS)
async def test_a_barrier_is_kept_at_no_path(door: GuardedDoor, name: str) -> None:
    answer = await door.http.post("/v1/barriers", json={"name": name}, headers=door.as_("auditor"))
    problem(answer, 422, "invalid-input")
    assert (await door.http.get("/v1/barriers", headers=door.as_("auditor"))).json()["barriers"] == []


@pytest.mark.parametrize("who", _all_but("auditor"))
async def test_a_barrier(door: GuardedDoor, who: str) -> None:
    await _refused(door, who, "POST", "/v1/barriers", json={"name": "mine"})
    assert (await door.http.post("/v1/barriers", json={"name": "audit-1"}, headers=door.as_("auditor"))).status_code == 201
    await _refused(door, who, "DELETE", "/v1/barriers/audit-1")
    kept = (await door.http.get("/v1/barriers", headers=door.as_("auditor"))).json()["barriers"]
    assert [barrier["name"] for barrier in kept] == ["audit-1"]


# ---- addresses
@pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])
async def test_nobody_learns_where_the_active_is(door: GuardedDoor, query: str) -> None:
    door.service.role_now = "STANDBY"
    for who in ("", "nothing", "metrics", "elsewhere"):
        for method in ("PUT", "GET"):
            answer = await door.http.request(method, f"{ROWS}/UA,1{query}", json={}, headers=door.as_(who) if who else {})
            assert answer.status_code in (401, 403)
            assert "a.example" not in answer.text
    known = await door.http.put(f"{ROWS}/UA,1{query}", json={}, headers=door.as_("writer"))
    assert known.json()["active"]["url"] == "http://a.example:8401", "else the test shows nothing"
    assert "a.example" not in (await door.http.get("/v1/cluster")).text


# ---- a terminal
def test_a_reason_and_an_actor_cannot_command_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    attack = "\x1b]0;owned\x07\x9b2J\r\u202e"
    with TwoSites() as pair:
        sites = Sites(pair.urls)
        sites.ask("a", "POST", "/v1/operations", {"kind": "switchover", "to": "b", "options": {"reason": attack}})
        sites.close()
        for words in (["history"], ["history", "--json"], ["history", "op-1"], ["status"]):
            found = invoke(*words, "--config", pair.address)
            assert not CONTROLS & set(found.output), words
            assert words != ["history"] or "owned" in found.output, "else it shows nothing"


@pytest.mark.parametrize("said", ["\x1b[2J", "a\rb", "x" * 101])
async def test_an_actor_of_control_characters_is_refused(door: GuardedDoor, said: str) -> None:
    raw = f"POST /v1/operations HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntwinlog-actor: {said}\r\n"
    raw += f"authorization: {door.as_('operator')['Authorization']}\r\ncontent-length: 20\r\nconnection: close\r\n\r\n"
    answer = await door.raw(raw.encode("latin-1") + b'{"kind": "failover"}')
    assert answer.split()[1] in (b"400", b"422")
    assert await door.service.operations.all() == []


# ---- audits
def _audit(outcome: str, finished_at: datetime) -> dict[str, Any]:
    return {
        "id": f"{outcome}-{finished_at.isoformat()}", "job": "compare", "started_at": finished_at.isoformat(),
        "finished_at": finished_at.isoformat(), "outcome": outcome,
    }


@pytest.mark.parametrize("who", _all_but("auditor"))
async def test_a_note_of_an_audit(door: GuardedDoor, who: str) -> None:
    await _refused(door, who, "POST", "/v1/audits", json=_audit("good", datetime.now(UTC)))
    last = (await door.http.get("/v1/audits/last", headers=door.as_("auditor"))).json()
    assert last == {"last": {}, "last_good_compare": None}


async def test_a_bad_audit_hides_behind_no_forged_one_of_the_future(door: GuardedDoor) -> None:
    now, headers = datetime.now(UTC), door.as_("auditor")
    forged = await door.http.post("/v1/audits", json=_audit("good", now + timedelta(days=3650)), headers=headers)
    problem(forged, 422, "invalid-input", member="finished_at")
    near = _audit("good", now + timedelta(seconds=50))  # within what clocks may differ
    assert (await door.http.post("/v1/audits", json=near, headers=headers)).status_code == 201
    assert (await door.http.post("/v1/audits", json=_audit("bad", now), headers=headers)).status_code == 201
    last = (await door.http.get("/v1/audits/last", headers=headers)).json()["last"]["compare"]
    assert last["outcome"] == "bad"


# ---- what a caller says of itself
async def test_no_header_makes_anybody_somebody(door: GuardedDoor) -> None:
    for name in ("x-forwarded-for", "forwarded", "x-forwarded-user", "x-remote-user", "twinlog-actor", "cookie", "x-real-ip",
                 "proxy-authorization", "x-http-method-override", "x-original-url"):
        await _refused(door, "", "GET", "/v1/operations", headers={name: door.as_("operator")["Authorization"]})
    for query in ("access_token", "token", "authorization"):
        await _refused(door, "", "GET", f"/v1/operations?{query}={door.tokens['operator']}")


async def test_a_path_in_another_form_is_judged_as_the_route_that_answers(door: GuardedDoor) -> None:
    """Whatever a path looks like: it is refused, or is the same as a path that the caller may ask for."""
    for path in ("/v1/%6Fperations", "/v1//operations", "/v1/operations/", "//v1/operations",
                 "/health/live/../../v1/operations",
                 "/health/live%2f..%2f..%2fv1%2foperations", "/v1/operations;x", "/v1/tables/flights%2frows", "/V1/OPERATIONS",
                 "/v1/tables/orders/../flights/rows/UA,1", "/v1/tables/orders%2f..%2fflights/rows/UA,1", "/health/live/x"):
        for who in ("", "elsewhere"):
            head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            known = f"authorization: {door.as_(who)['Authorization']}\r\n" if who else ""
            status = (await door.raw(f"{head}{known}\r\n".encode())).split()[1]
            assert status in ((b"403", b"404", b"405") if who else (b"401",)), (path, who)


async def test_an_authorization_of_a_peer_document(door: GuardedDoor) -> None:
    """The bytes of a peer's message are no proof of anything."""
    body = msgspec.msgpack.encode({"site": "b", "pair": "shop"})
    await _refused(door, "operator", "POST", "/internal/v1/peer/status", content=body)
