"""Every route as every identity: 401 without one, 403 that names the missing grant, else whatever the route says."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from gateway.access.grants import AUDITOR, METRICS, OPERATOR
from gateway.access.needs import NEEDS
from gateway.http.app import _plain
from tests.gateway.access.rig import GRANTS, GuardedDoor
from tests.gateway.documented import document
from tests.gateway.door_client import FLIGHTS, problem

OPEN, PEER = "open", "peer"
# Written by hand beside the product's table, so that a slip in either shows. Identity -> who is let through.
_READS, _WRITES = {"reader", "both"}, {"writer", "both"}
_SOME_TABLE = {*_READS, *_WRITES, "admin"}
_EVERYBODY = set(GRANTS)
EXPECTED: dict[tuple[str, str], tuple[set[str], str]] = {  # who may; the grant that the others lack
    ("GET", "/health/live"): (_EVERYBODY, OPEN),
    ("GET", "/health/ready"): (_EVERYBODY, OPEN),
    ("GET", "/health/primary"): (_EVERYBODY, OPEN),
    ("GET", "/health/standby"): (_EVERYBODY, OPEN),
    ("GET", "/metrics"): ({METRICS}, METRICS),
    ("GET", "/"): (_EVERYBODY, ""),
    ("GET", "/docs"): (_EVERYBODY, ""),
    ("GET", "/openapi.json"): (_EVERYBODY, ""),
    ("GET", "/v1/cluster"): (_EVERYBODY, ""),
    ("GET", "/v1/cluster/events"): (_EVERYBODY, ""),
    ("GET", "/v1/receipts/{receipt}"): (_SOME_TABLE | {"elsewhere"}, "reader"),
    ("POST", "/v1/tables"): ({"admin"}, "admin"),
    ("GET", "/v1/tables"): (_SOME_TABLE | {"elsewhere"}, "reader"),
    ("GET", "/v1/tables/{table}"): (_SOME_TABLE, "reader:flights"),
    ("GET", "/v1/tables/{table}/figures"): ({*_READS, "admin"}, "reader:flights"),
    ("PATCH", "/v1/tables/{table}"): ({"admin"}, "admin:flights"),
    ("DELETE", "/v1/tables/{table}"): ({"admin"}, "admin:flights"),
    ("POST", "/v1/tables/{table}:restore"): ({"admin"}, "admin:flights"),
    ("GET", "/v1/tables/{table}/rows"): (_READS, "reader:flights"),
    ("DELETE", "/v1/tables/{table}/scans/{page_token}"): (_READS, "reader:flights"),
    ("POST", "/v1/tables/{table}/rows:mutate"): (_WRITES, "writer:flights"),
    ("GET", "/v1/tables/{table}/rows/{key}"): (_READS, "reader:flights"),
    ("PUT", "/v1/tables/{table}/rows/{key}"): (_WRITES, "writer:flights"),
    ("PATCH", "/v1/tables/{table}/rows/{key}"): (_WRITES, "writer:flights"),
    ("DELETE", "/v1/tables/{table}/rows/{key}"): (_WRITES, "writer:flights"),
    ("POST", "/v1/tables/{table}/rows/{key}:check"): ({"both"}, "writer:flights"),
    ("GET", "/v1/checks"): ({OPERATOR, AUDITOR}, OPERATOR),
    ("GET", "/v1/view"): ({OPERATOR, AUDITOR, METRICS}, OPERATOR),
    ("POST", "/v1/operations"): ({OPERATOR}, OPERATOR),
    ("GET", "/v1/operations"): ({OPERATOR, AUDITOR}, OPERATOR),
    ("GET", "/v1/operations/{operation_id}"): ({OPERATOR, AUDITOR}, OPERATOR),
    ("GET", "/v1/operations/{operation_id}/events"): ({OPERATOR, AUDITOR}, OPERATOR),
    ("POST", "/v1/operations/{operation_id}:abort"): ({OPERATOR}, OPERATOR),
    ("POST", "/v1/operations/{operation_id}:resume"): ({OPERATOR}, OPERATOR),
    ("POST", "/v1/configuration:reload"): ({OPERATOR}, OPERATOR),
    ("POST", "/v1/configuration:log-level"): ({OPERATOR}, OPERATOR),
    ("GET", "/v1/trail"): ({AUDITOR}, AUDITOR),
    ("GET", "/ui"): (_EVERYBODY, ""),
    ("GET", "/ui/events"): (_EVERYBODY, ""),
    ("GET", "/ui/login"): (_EVERYBODY, OPEN),
    ("POST", "/ui/login"): (_EVERYBODY, OPEN),
    ("GET", "/ui/login/oidc"): (_EVERYBODY, OPEN),
    ("GET", "/ui/login/oidc/leave"): (_EVERYBODY, OPEN),
    ("GET", "/ui/login/callback"): (_EVERYBODY, OPEN),
    ("POST", "/ui/logout"): (_EVERYBODY, OPEN),
    ("GET", "/ui/static/{file}"): (_EVERYBODY, OPEN),
    ("GET", "/ui/change"): ({OPERATOR, AUDITOR}, OPERATOR),
    ("POST", "/ui/change"): ({OPERATOR}, OPERATOR),
    ("POST", "/ui/operation"): ({OPERATOR}, OPERATOR),
    ("GET", "/ui/history"): ({OPERATOR, AUDITOR}, OPERATOR),
    ("GET", "/ui/tables"): (_SOME_TABLE | {"elsewhere"}, "reader"),
    ("GET", "/ui/tables/{table}"): (_SOME_TABLE, "reader:flights"),
    ("GET", "/ui/audits"): ({OPERATOR, AUDITOR}, AUDITOR),
    ("GET", "/ui/audits/{audit}"): ({OPERATOR, AUDITOR}, AUDITOR),
    ("GET", "/ui/log"): ({OPERATOR, AUDITOR}, OPERATOR),
    ("POST", "/v1/barriers"): ({AUDITOR}, AUDITOR),
    ("GET", "/v1/barriers"): ({AUDITOR}, AUDITOR),
    ("GET", "/v1/barriers/{name}"): ({AUDITOR}, AUDITOR),
    ("DELETE", "/v1/barriers/{name}"): ({AUDITOR}, AUDITOR),
    ("POST", "/v1/backups/{target}:base"): (set(), AUDITOR),
    ("POST", "/v1/backups/{target}:log"): (set(), AUDITOR),
    ("POST", "/v1/backups/{target}:kept"): (set(), AUDITOR),
    ("POST", "/v1/backups/{target}:complete"): (set(), AUDITOR),
    ("DELETE", "/v1/backups/{target}"): (set(), AUDITOR),
    ("POST", "/v1/audits"): ({AUDITOR}, AUDITOR),
    ("GET", "/v1/audits/last"): ({AUDITOR, OPERATOR}, AUDITOR),
    ("GET", "/v1/audits"): ({AUDITOR, OPERATOR}, AUDITOR),
    ("GET", "/v1/audits/{audit}"): ({AUDITOR, OPERATOR}, AUDITOR),
    ("PUT", "/v1/audits/{audit}/report"): ({AUDITOR}, AUDITOR),
    ("PUT", "/v1/audits/{audit}/progress"): ({AUDITOR}, AUDITOR),
    ("POST", "/internal/v1/peer/{method}"): (set(), "replicator"),
}
BODIES: dict[tuple[str, str], Any] = {("POST", "/v1/tables"): {**FLIGHTS, "name": "other"}}
EVERY_ROUTE = pytest.mark.parametrize("route", list(EXPECTED), ids=[" ".join(route) for route in EXPECTED])


def _routes() -> set[tuple[str, str]]:
    """Returns every route that the app serves, the framework's own too."""
    _, routes = _plain("all")
    assert all(isinstance(route, APIRoute | Route) for route in routes)
    return {(method, route.path_format) for route in routes for method in route.methods or () if method != "HEAD"}


def _path(route: str) -> str:
    for name, value in (("table", "flights"), ("key", "UA,1"), ("name", "b1"), ("operation_id", "op-1"), ("method", "status"),
                        ("receipt", "r1"), ("target", "0" * 16), ("audit", "1-compare")):
        route = route.replace(f"{{{name}}}", value)
    return route + ("?for=failover" if route == "/v1/checks" else "")


async def _status(door: GuardedDoor, route: tuple[str, str], headers: dict[str, str]) -> httpx.Response:
    """The answer; of a stream of events, which never ends, its head."""
    asked = door.http.build_request(route[0], _path(route[1]), headers=headers, json=BODIES.get(route))
    answer = await door.http.send(asked, stream=True)
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        await answer.aread()
    await answer.aclose()
    return answer


def test_every_route_has_a_need_and_every_need_a_route() -> None:
    documented = {(method.upper(), path) for path, methods in document()["paths"].items() for method in methods}
    assert documented <= set(NEEDS)
    assert _routes() == set(NEEDS)
    assert set(NEEDS) == set(EXPECTED)


@EVERY_ROUTE
async def test_every_route_as_every_identity(door: GuardedDoor, route: tuple[str, str]) -> None:
    who, grant = EXPECTED[route]
    nobody = await _status(door, route, {})
    if grant == OPEN:
        assert nobody.status_code not in (401, 403)
    else:
        problem(nobody, 401, "unauthenticated")
        assert nobody.headers["www-authenticate"] == 'Bearer realm="twinlog"'
    problems = {}
    for name in GRANTS:
        answer = await _status(door, route, door.as_(name))
        assert answer.status_code != 401, name
        problems[name] = answer
    refused = {name for name, answer in problems.items() if answer.status_code == 403}
    assert refused == _EVERYBODY - who
    for name in refused:
        named = problem(problems[name], 403, "missing-grant")["grant"]
        wanted = {grant}
        if route == ("POST", "/v1/tables/{table}/rows/{key}:check") and name == "writer":
            wanted = {"reader:flights"}
        if route == ("POST", "/v1/tables") and name == "elsewhere":
            wanted = {"admin:other"}  # it may make tables of another name
        if "/v1/backups" in route[1] and name == AUDITOR:
            wanted = {"reader:*"}
        assert named in wanted, name


@pytest.mark.parametrize("route", [route for route in EXPECTED if route[0] == "GET"], ids=lambda route: route[1])
async def test_a_head_needs_what_its_get_needs(door: GuardedDoor, route: tuple[str, str]) -> None:
    for name in GRANTS:
        as_get = await _status(door, route, door.as_(name))
        as_head = await _status(door, ("HEAD", route[1]), door.as_(name))
        assert as_head.status_code == as_get.status_code, name


async def test_what_is_no_route_is_said_to_callers_alone(door: GuardedDoor) -> None:
    for method, path in (("GET", "/v1/nothing"), ("TRACE", "/v1/cluster"), ("DELETE", "/v1/cluster"), ("GET", "/v1/tables/")):
        assert (await door.http.request(method, path)).status_code == 401
        assert (await door.http.request(method, path, headers=door.as_("nothing"))).status_code in (404, 405)
