"""Faults of processes: a site that sleeps until the other one has taken over, and monitors that are started and ended."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

from chaos.fault_lines import Fault
from chaos.harness.faults import processes
from chaos.harness.faults.kind import Effect, Stage
from chaos.harness.faults.registry import effect_of

NOTHING: Any = None


class Monitors:
    """Notes what is done to one."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.running, self.paused = set[str](), set[str]()

    def is_running(self, name: str) -> bool:
        return name in self.running

    def __getattr__(self, what: str) -> Any:
        def work(name: str, options: tuple[str, ...] = ()) -> None:
            self.done.append(" ".join((what, name, *options)))
            (self.running.discard if what in ("kill", "terminate") else self.running.add)(name)
            (self.paused.add if what == "pause" else self.paused.discard)(name)

        return work


def on(monitors: Any, kind: str, how: str = "") -> Effect:
    return effect_of(Fault(1, kind, "m1", 2, how), Stage(NOTHING, NOTHING, NOTHING, lambda: "a", monitors=monitors))


async def test_a_monitor_is_started_and_ended() -> None:
    monitors = Monitors()
    started = on(monitors, "monitor", "act")
    assert await on(monitors, "crash").why_not() == "m1 does not run"
    assert await started.why_not() == ""
    await started.inject()
    assert await started.why_not() == "m1 runs already"
    await started.heal()
    assert monitors.done == ["start m1 --act", "terminate m1"]


@pytest.mark.parametrize(("kind", "done"), [
    ("crash", ["kill m1", "start_again m1"]), ("terminate", ["terminate m1", "start_again m1"]),
    ("pause", ["pause m1", "resume m1"]),
])
async def test_what_is_done_to_a_monitor_is_undone(kind: str, done: list[str]) -> None:
    monitors = Monitors()
    monitors.running.add("m1")
    effect = on(monitors, kind)
    assert await effect.why_not() == ""
    await effect.inject()
    assert await on(monitors, "pause").why_not() in ("m1 does not run", "m1 is paused already")
    await effect.heal()
    assert monitors.done == done


@pytest.mark.parametrize(("actives", "told"), [
    (["a", "a", "a", "b"], ""), (["a", None, "b"], ""), (["a"], "site b had not taken over after 0 s more"),
])
async def test_a_site_sleeps_until_the_other_one_has_taken_over(
    monkeypatch: pytest.MonkeyPatch, actives: list[str | None], told: str
) -> None:
    monkeypatch.setattr(processes, "POLL_S", 0.001)
    monkeypatch.setattr(processes, "TAKEN_S", 0.02)
    done: list[str] = []
    sites: Any = MagicMock()
    sites.resume = lambda site: done.append(f"{site}, {actives}")
    stage = Stage(sites, NOTHING, NOTHING, lambda: actives[0] if len(actives) == 1 else actives.pop(0))
    effect = effect_of(Fault(1, "pause", "a", 2, "taken"), stage)
    await effect.inject()
    assert await effect.heal() == told
    assert done == [f"a, {actives[-1:]}"]
