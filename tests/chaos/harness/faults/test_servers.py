"""Faults of servers: which server a plan means, what is done to it and undone, and a site that is lost meanwhile; and the
server of all links."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import effect_of
from chaos.harness.faults.servers import OnServer, OnToxiproxy
from chaos.harness.pair.parts import Parts

NOTHING: Any = None


class FakeServer:
    def __init__(self) -> None:
        self.is_running, self.is_paused = True, False
        self.done: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def work() -> None:
            self.done.append(name)
            self.is_running = name not in ("kill", "terminate")
            self.is_paused = name == "pause"

        return work


class FakeServers:
    def __init__(self, parts: Parts) -> None:
        self.parts, self.lost = parts, set[str]()
        self.servers = {name: FakeServer() for name in parts.servers}

    def named(self, name: str) -> FakeServer:
        return self.servers[name]


def staged(parts: Parts) -> tuple[FakeServers, Stage]:
    servers = FakeServers(parts)
    sites: Any = SimpleNamespace(servers=servers, parts=parts)
    return servers, Stage(sites, NOTHING, NOTHING, lambda: "a")


@pytest.mark.parametrize(("kind", "done"), [
    ("crash", ["kill", "start"]), ("terminate", ["terminate", "start"]), ("pause", ["pause", "resume"]),
])
async def test_what_is_done_to_a_server_is_undone(kind: str, done: list[str]) -> None:
    servers, stage = staged(Parts("hdfs"))
    effect = effect_of(Fault(1, kind, "nn-b", 2), stage)
    assert isinstance(effect, OnServer)
    assert await effect.why_not() == ""
    await effect.inject()
    assert (await OnServer(stage, "crash", "nn-b").why_not()) in ("nn-b does not run", "nn-b is paused already")
    await effect.heal()
    assert servers.named("nn-b").done == done
    assert servers.named("nn-a").done == []


async def test_a_server_that_there_is_not_is_left_out() -> None:
    _, stage = staged(Parts("hdfs"))
    assert await OnServer(stage, "crash", "pg-a").why_not() == "this pair has no pg-a"


async def test_a_server_of_a_lost_site_comes_back_with_its_site_only() -> None:
    servers, stage = staged(Parts(engine="postgresql"))
    effect = OnServer(stage, "crash", "pg-a")
    await effect.inject()
    servers.lost.add("a")
    assert await effect.heal() == "its site was lost meanwhile"
    assert servers.named("pg-a").done == ["kill"]
    assert await OnServer(stage, "crash", "pg-a").why_not() == "its site is lost"


class FakeLinks:
    """Calls what is given, as Links do."""

    is_away = False

    async def lose(self, end: Any) -> None:
        end()
        self.is_away = True

    async def bring_back(self, start: Any) -> int:
        start()
        self.is_away = False
        return 3


@pytest.mark.parametrize(("kind", "done"), [("crash", ["kill", "start"]), ("terminate", ["stop", "start"])])
async def test_the_server_of_all_links_ends_and_comes_back(kind: str, done: list[str]) -> None:
    server, links = FakeServer(), FakeLinks()
    stage = Stage(NOTHING, links, NOTHING, lambda: "a", toxiproxy=server)  # type: ignore[arg-type]
    effect = effect_of(Fault(1, kind, "toxiproxy", 2), stage)
    assert await effect.why_not() == ""
    await effect.inject()
    assert await OnToxiproxy(stage, kind).why_not() == "toxiproxy does not run"
    assert await effect.heal() == "set again on its links: 3"
    assert server.done == done


async def test_the_coordinators_server_is_lost_with_no_site() -> None:
    servers, stage = staged(Parts(coordinator="server"))
    servers.lost = {"a", "b"}
    effect = OnServer(stage, "crash", "pg-w")
    assert await effect.why_not() == ""
    await effect.inject()
    assert await effect.heal() == ""
    assert servers.named("pg-w").done == ["kill", "start"]
