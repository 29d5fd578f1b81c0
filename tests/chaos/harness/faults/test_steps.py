"""A trap in a plan: what is told of it, and what is done when it is healed."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import effect_of, need_steps
from chaos.harness.faults.steps import NOT_REACHED, STANDS_S, STANDS_SLACK_S
from chaos.harness.steps.table import TrapTable


class Sites:
    """Notes what is done to a gateway."""

    def __init__(self, folder: Path) -> None:
        self.traps = {"a": TrapTable(folder / "a", new=True), "b": TrapTable(folder / "b", new=True)}
        self.done: list[str] = []
        self.servers, self.links = SimpleNamespace(are_well=lambda site: True), ()
        self.runs, self.mute = True, list[str]()

    def passes(self, site: str, point: str) -> None:
        TrapTable(self.traps[site].path).pass_by(point)

    def is_running(self, site: str) -> bool:
        return self.runs

    def resume(self, site: str) -> None:
        self.done.append(f"resume {site}")

    def excuse_end(self, site: str, code: int) -> None:
        self.done.append(f"excuse {site} {code}")

    def start_and_hear(self, site: str) -> str:
        self.done.append(f"start {site}")
        return ""


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    return Sites(tmp_path)


def effect(sites: Any, kind: str, how: str, target: str = "active") -> Any:
    fault, nothing = Fault(1.0, kind, target, 2.0, how), None
    assert need_steps([fault])
    return effect_of(fault, Stage(sites, nothing, nothing, lambda: "b"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "told", "done"), [
    ("crash-at", "killed itself there", ["excuse b -9", "start b"]), ("pause-at", "stopped itself there", ["resume b"]),
    ("fail-at", "was refused there", []), ("wait-at", "waited there", []),
])
async def test_what_was_reached_is_told_and_undone(sites: Sites, kind: str, told: str, done: list[str]) -> None:
    fault = effect(sites, kind, "transport.replicate.before")
    assert await fault.why_not() == ""
    assert await fault.inject() == "site b"
    sites.passes("a", "transport.replicate.before")
    sites.passes("b", "transport.replicate.before")
    assert await fault.heal() == told
    assert sites.done == done


@pytest.mark.parametrize(("stood_s", "runs", "told", "done", "mute"), [
    (5.0, True, "stood there", [], ""),
    (STANDS_S + STANDS_SLACK_S + 1, True, "stood there", [], "stood for 41 s, and its gateway did not end"),
    (STANDS_S + 1, False, "stood there, and ended itself", ["excuse b 5", "start b"], ""),
    (STANDS_S - 5, False, "stood there, and ended itself", ["start b"], ""),
])
async def test_a_gateway_whose_loop_stands_ends_itself_after_the_bound_and_not_before(
    sites: Sites, monkeypatch: pytest.MonkeyPatch, stood_s: float, runs: bool, told: str, done: list[str], mute: str
) -> None:
    fault = effect(sites, "stand-at", "commit.framed")
    await fault.inject()
    sites.passes("b", "commit.framed")
    sites.runs, begun_s = runs, time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: begun_s + stood_s)
    assert await fault.heal() == told
    assert sites.done == done
    assert "".join(sites.mute).count(mute) == 1 if mute else not sites.mute


@pytest.mark.parametrize("kind", ["crash-at", "pause-at", "fail-at", "wait-at", "stand-at"])
async def test_what_was_not_reached_is_told_and_nothing_is_done(sites: Sites, kind: str) -> None:
    fault = effect(sites, kind, "transport.replicate.before/3")
    await fault.inject()
    sites.passes("b", "transport.replicate.before")
    told = await fault.heal()
    assert told == "passed 1 of 3 times: not reached"
    assert told.endswith(NOT_REACHED)
    assert sites.done == []
