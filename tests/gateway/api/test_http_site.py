"""The pair, operations, health, figures and peer calls over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace
from starlette.requests import ClientDisconnect

from gateway.api.routes.streams import ClosedStream
from gateway.service.documents import ServingDocument
from switchover.roles.table import Role
from tests.gateway.dict_service import ACTIVE
from tests.gateway.door_client import ROWS, DoorClient, problem
from twinlog import errors
from twinlog.problem_documents import error_from_problem

PACKED = {"content-type": "application/x-msgpack"}


async def test_the_cluster_document(plain: DoorClient) -> None:
    answer = await plain.http.get("/v1/cluster")
    assert answer.json()["active"] == ACTIVE
    assert answer.headers["cache-control"] == "no-store"


async def _events(response: httpx.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    name = ""
    async for line in response.aiter_lines():
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


async def test_cluster_events_are_pushed_until_the_source_ends(served: DoorClient) -> None:
    async with served.http.stream("GET", "/v1/cluster/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = _events(response)
        document = served.service.document()
        assert await anext(events) == ("cluster", msgspec.to_builtins(document))
        later = replace(document, role=Role.STANDBY)
        served.service.cluster_queue.put_nowait(later)
        assert await anext(events) == ("cluster", msgspec.to_builtins(later))
        served.service.cluster_queue.put_nowait(None)
        assert [event async for event in events] == []


async def test_an_idle_stream_shows_that_it_lives(served: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.api.routes.streams.PING_S", 0.02)
    async with served.http.stream("GET", "/v1/cluster/events") as response:
        async for line in response.aiter_lines():
            if line.startswith(":"):
                break


async def test_streams_end_when_the_door_closes(served: DoorClient) -> None:
    async with served.http.stream("GET", "/v1/cluster/events") as response:
        events = _events(response)
        await anext(events)
        served.app.context.closing.set()
        assert [event async for event in events] == []


async def test_a_client_that_leaves_a_stream_ends_its_source(served: DoorClient) -> None:
    ended = asyncio.Event()
    source = served.service.events

    async def watched() -> AsyncIterator[dict[str, Any]]:
        try:
            async for document in source():
                yield document
        finally:
            ended.set()

    served.service.events = watched  # type: ignore[method-assign]
    async with served.http.stream("GET", "/v1/cluster/events") as response:
        await anext(_events(response))
    await asyncio.wait_for(ended.wait(), 120)


async def test_operations(plain: DoorClient) -> None:
    http = plain.http
    planned = await http.post("/v1/operations", json={"kind": "switchover", "to": "b", "dry_run": True})
    assert (planned.status_code, planned.json()["state"]) == (200, "succeeded")
    started = await http.post("/v1/operations", json={"kind": "switchover", "to": "b", "options": {"drain_s": 3}})
    assert started.status_code == 202
    path = started.headers["location"]
    assert (await http.get(path)).json() == started.json()
    assert started.json()["options"] == {"drain_s": 3}
    assert (await http.get("/v1/operations")).json() == {"operations": [started.json()]}
    again = await http.post("/v1/operations", json={"kind": "failover", "to": "b"})
    problem(again, 409, "conflict", operation=started.json()["id"], outcome="not_applied")
    assert (await http.post(f"{path}:abort")).json()["state"] == "aborted"
    assert (await http.post(f"{path}:resume")).json()["state"] == "running"
    problem(await http.post("/v1/operations/none:abort"), 404, "not-found", operation="none")
    problem(await http.post("/v1/operations", json={"kind": "switchover", "to": "a", "dry_run": True}), 409, "refused")


async def test_operation_events(served: DoorClient) -> None:
    started = (await served.http.post("/v1/operations", json={"kind": "switchover", "to": "b"})).json()
    async with served.http.stream("GET", f"/v1/operations/{started['id']}/events") as response:
        events = _events(response)
        assert await anext(events) == ("operation", started)
        ended = replace(await served.service.operations.get(started["id"]), state="succeeded")
        served.service.operations.queue.put_nowait(ended)
        served.service.operations.queue.put_nowait(None)
        assert [event async for event in events] == [("operation", {**started, "state": "succeeded"})]


async def test_events_of_no_operation_are_a_problem_and_no_stream(served: DoorClient) -> None:
    problem(await served.http.get("/v1/operations/none/events"), 404, "not-found", operation="none")


async def test_receipts(plain: DoorClient) -> None:
    written = await plain.put("UA,1", {})
    shown = (await plain.http.get(f"/v1/receipts/{written['receipt']}")).json()
    assert shown == {
        "receipt": written["receipt"], "outcome": "survived", "log": 0, "epoch": 1, "seq": plain.service.engine.applied.seq,
        "mode": "sync",
    }
    problem(await plain.http.get("/v1/receipts/nonsense"), 422, "invalid-input")


@pytest.mark.parametrize(("role", "healthy"), [
    ("ACTIVE", {"live", "ready", "primary"}), ("DOWNGRADE_ACTIVE", {"live", "ready", "primary"}),
    ("STANDBY", {"live", "ready", "standby"}), ("CLOSED", {"live"}), ("DRAINING", {"live"}), ("FENCED", {"live"}),
    ("SWITCHING", {"live"}),
])
async def test_health_by_role(plain: DoorClient, role: str, healthy: set[str]) -> None:
    plain.service.role_now = role
    serving = msgspec.to_builtins(plain.service.serving())
    del serving["do"]
    for probe in ("live", "ready", "primary", "standby"):
        answer = await plain.http.get(f"/health/{probe}")
        if probe in healthy:
            assert (answer.status_code, answer.json()) == (200, {"site": "a", "role": role} | serving)
        else:
            problem(answer, 503, "unavailable", role=role)
            assert answer.headers["retry-after"] == "1"


async def test_health_is_what_the_site_serves_and_not_its_role(plain: DoorClient) -> None:
    """The other site's DFS is gone: an active by role, and nobody is answered."""
    plain.service.serving_now = ServingDocument(False, False, False, "nothing reaches the remote log", "`twinlog degrade`")
    for probe in ("ready", "primary"):
        found = problem(await plain.http.get(f"/health/{probe}"), 503, "unavailable", role="ACTIVE")
        assert "nothing reaches the remote log; `twinlog degrade`" in found["detail"]
    live = (await plain.http.get("/health/live")).json()
    assert (live["writes"], live["why"]) == (False, "nothing reaches the remote log")
    plain.service.serving_now = ServingDocument(True, False, False, "writes wait", "see to the disk")
    assert (await plain.http.get("/health/ready")).status_code == 200
    assert (await plain.http.get("/health/primary")).status_code == 503


async def test_a_standby_that_lags(plain: DoorClient) -> None:
    plain.service.role_now, plain.service.vouched = "STANDBY", plain.service.now_s - 2
    assert (await plain.http.get("/health/standby?lag=2")).status_code == 200
    problem(await plain.http.get("/health/standby?lag=1.9"), 503, "unavailable", replication_lag_s=2.0)
    plain.service.vouched = None
    assert (await plain.http.get("/health/standby")).status_code == 200
    problem(await plain.http.get("/health/standby?lag=100"), 503, "unavailable", replication_lag_s=None)
    problem(await plain.http.get("/health/standby?lag=-1"), 422, "invalid-input")


async def test_figures_for_prometheus(door: DoorClient) -> None:
    await door.put("UA,1", {})
    await door.get("UA,1")
    await door.http.get(f"{ROWS}/UA,2")
    page = (await door.http.get("/metrics")).text
    assert "twinlog_epoch 1.0" in page
    assert "# TYPE twinlog_sink_frames_total counter" in page
    assert 'twinlog_ack_seconds_count{mode="sync"} 1.0' in page
    assert "twinlog_read_seconds_count 2.0" in page
    assert 'twinlog_http_problems_total{code="not-found",status="404"} 1.0' in page
    assert 'twinlog_http_requests_total{method="PUT"} 1.0' in page
    assert 'twinlog_http_requests_total{method="GET"} 3.0' in page


async def test_a_peer_call_of_another_content_type_is_refused(plain: DoorClient) -> None:
    """A page of any other site may send text, but not msgpack, without asking first."""
    for headers in ({}, {"content-type": "text/plain"}):
        answer = await plain.http.post("/internal/v1/peer/echo", content=b"\x80", headers=headers)
        problem(answer, 415, "unsupported-media-type", outcome="not_applied")


async def test_peer_calls_carry_bytes(plain: DoorClient) -> None:
    answer = await plain.http.post("/internal/v1/peer/echo", content=b"\x81\xa1a\xff", headers=PACKED)
    assert (answer.status_code, answer.content) == (200, b"\x81\xa1a\xff")


@pytest.mark.parametrize("kind", [
    errors.LogGap, errors.Fenced, errors.MalformedBody, errors.InvalidInput, errors.DfsExists, errors.ClaimLost,
])
async def test_peer_errors_come_back_as_they_were(plain: DoorClient, kind: type[errors.TwinlogError]) -> None:
    body = msgspec.msgpack.encode([kind.code, {"held_seq": 7, "offered_previous": 9}])
    answer = await plain.http.post("/internal/v1/peer/raise", content=body, headers=PACKED)
    error = error_from_problem(answer.status_code, answer.content)
    assert type(error) is kind
    assert (error.message, error.fields["held_seq"], error.fields["offered_previous"]) == ("planted", 7, 9)


async def test_a_stream_that_cannot_be_sent_closes_its_source() -> None:
    """The error refers to the frames of the sending: without a close, whoever keeps it keeps the source."""
    closed: list[bool] = []

    async def source() -> AsyncGenerator[bytes]:
        try:
            while True:
                yield b"piece"
        finally:
            closed.append(True)

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise OSError("the connection is lost")

    async def receive() -> Any:
        await asyncio.Event().wait()

    with pytest.raises((OSError, ClientDisconnect)) as kept:
        await ClosedStream(source(), "text/plain")({"type": "http", "asgi": {"spec_version": "2.4"}}, receive, send)
    assert closed, kept
