"""Requests of a run as bytes: they pass the product's protocol and routes, whole or broken, and nothing there fails unseen."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from chaos.simulate.draw import draw
from chaos.simulate.plan import SeedPlan
from chaos.simulate.run import Result, Run, collect
from chaos.simulate.twins import http_door
from chaos.simulate.twins.http_door import HttpDoor
from gateway.http.app import DoorApp
from gateway.http.hot_path import HotProtocol
from twinlog.wire.exchange import Reply, SiteRequest


def plan(workload: str = "mixed", share: float = 1.0) -> SeedPlan:
    """Returns a plan without faults."""
    drawn = draw(1)
    return replace(drawn, workload=workload, operations=60, faults=(), knobs=replace(drawn.knobs, http=share))


def met(monkeypatch: pytest.MonkeyPatch, wanted: SeedPlan) -> tuple[Counter[str], Result]:
    """Runs the plan. Returns how often each way of a request was taken, and the result."""
    counted: Counter[str] = Counter()
    exchange, hot, plain = HttpDoor.exchange, HotProtocol._serve_hot, DoorApp._served

    async def count_exchange(self: HttpDoor, request: SiteRequest, chance: Random, on_whole: Callable[[], None]) -> Reply:
        counted["asked"] += 1
        reply = await exchange(self, request, chance, on_whole)
        counted[f"answered {reply.status}"] += 1
        return reply

    async def count_hot(self: HotProtocol, cycle: Any) -> None:
        counted["hot"] += 1
        await hot(self, cycle)

    async def count_plain(self: DoorApp, *given: Any) -> None:
        counted["plain"] += 1
        await plain(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(HttpDoor, "exchange", count_exchange)
        patch.setattr(HotProtocol, "_serve_hot", count_hot)
        patch.setattr(DoorApp, "_served", count_plain)
        result = Run(wanted).execute()
        collect()
    return counted, result


def test_requests_pass_the_hot_path_and_the_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, result = met(monkeypatch, plan())
    assert result.violations == ()
    assert counted["hot"] > 10
    assert counted["plain"] > 10
    assert counted["answered 200"] > counted["asked"] // 2


def test_a_run_of_no_share_has_no_door(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not met(monkeypatch, plan(share=0.0))[0]


def test_a_request_is_whole_with_its_last_piece_and_served_behind_that(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that opened an epoch between two pieces answered "in the epoch before", and one_active called it two writers
    (seed 1716033)."""
    exchange, hot = HttpDoor.exchange, HotProtocol._serve_hot
    seen: list[tuple[str, float]] = []

    def note(what: str) -> None:
        seen.append((what, asyncio.get_running_loop().time()))

    async def noted(self: HttpDoor, request: SiteRequest, chance: Random, on_whole: Callable[[], None]) -> Reply:
        note("begun")
        return await exchange(self, request, chance, lambda: (note("whole"), on_whole())[1])

    async def noted_hot(self: HotProtocol, cycle: Any) -> None:
        note("served")
        await hot(self, cycle)

    monkeypatch.setattr(http_door, "PIECES", (6,))
    monkeypatch.setattr(http_door, "AHEAD", (0,))
    monkeypatch.setattr(http_door, "BREAKS", 0)
    monkeypatch.setattr(HttpDoor, "exchange", noted)
    monkeypatch.setattr(HotProtocol, "_serve_hot", noted_hot)
    assert Run(replace(plan("registers"), clients=1)).execute().violations == ()
    collect()
    served = [number for number, (what, _) in enumerate(seen) if what == "served"]
    assert len(served) > 10
    for number in served:
        (begun, begun_s), (whole, whole_s) = seen[number - 2 : number]
        assert (begun, whole) == ("begun", "whole")
        assert begun_s < whole_s


def test_the_same_seed_gives_the_same_bytes() -> None:
    def trace_hash() -> str:
        found = Run(plan()).execute().trace_hash
        collect()
        return found

    assert trace_hash() == trace_hash()


def test_a_write_on_a_connection_that_breaks_may_have_been_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_door, "BREAKS", 0.3)
    counted, result = met(monkeypatch, plan("registers"))
    answered = sum(count for way, count in counted.items() if way.startswith("answered"))
    assert answered < counted["asked"]
    assert result.violations == ()


def test_an_exception_that_leaves_the_application_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    served = DoorApp._served

    async def fails_behind_the_answer(self: DoorApp, scope: Scope, receive: Receive, answering: Any, send: Send) -> None:
        await served(self, scope, receive, answering, send)
        if scope["method"] == "POST":
            answering.finished = False
            raise RuntimeError("planted")

    monkeypatch.setattr(DoorApp, "_served", fails_behind_the_answer)
    result = Run(plan("batches")).execute()
    collect()
    assert any("planted" in violation.sentence for violation in result.violations)
