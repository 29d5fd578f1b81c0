"""The availability monitor in the simulator: it acts where it may, else nothing changes, and a seed stays a run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from chaos.simulate import draw as drawing
from chaos.simulate.actors import monitor
from chaos.simulate.draw import draw
from chaos.simulate.plan import SeedPlan, parse
from chaos.simulate.run import Result, Run, collect
from switchover.monitor.findings import Thresholds

LOST = """seed 7
workload registers
clients 3
operations 120
knob policy available
knob degrade_after_s 3.0
knob monitor act
at 2.0 crash active for 9.0 how process
"""


def run(plan: SeedPlan) -> tuple[Result, int]:
    running = Run(plan)
    result = running.execute()
    collect()
    return result, running.monitor.acted


def ordered(result: Result) -> list[str]:
    return [line.split("monitor: ")[1] for line in result.trace if "monitor: " in line]


def test_a_lost_active_is_taken_over_from_and_no_promise_broken() -> None:
    result, acted = run(parse(LOST))
    assert result.violations == ()
    assert acted == 1
    assert ordered(result)[0].startswith("failover at b: asked for")


@pytest.mark.parametrize("fault", ["crash active for 40.0 how process", "pause active for 40.0"])
def test_with_its_usual_settings_a_lost_active_is_taken_over_from_in_time_also_when_it_hangs(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(monitor, "SETTINGS", Thresholds())
    monkeypatch.setattr(monitor, "LIFE_S", 1e9)
    result, acted = run(parse(LOST.replace("crash active for 9.0 how process", fault).replace("at 2.0", "at 5.0")))
    assert (result.violations, acted) == ((), 1)
    words = [line.split() for line in result.trace]
    lost_s, ordered_s = [next(float(line[0]) for line in words if line[1] == what) for what in (fault.split()[0], "monitor:")]
    assert Thresholds().failover_after_s < ordered_s - lost_s < 12.0, "of the fifteen seconds that the whole may take"


def test_an_active_that_hangs_for_less_than_that_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "SETTINGS", Thresholds())
    monkeypatch.setattr(monitor, "LIFE_S", 1e9)
    assert run(parse(LOST.replace("crash active for 9.0 how process", "pause active for 7.0")))[1] == 0


@pytest.mark.parametrize("change", [{"monitor": "observe"}, {"monitor": "off"}, {"policy": "protect"}, {"coordinator": False}])
def test_where_it_may_not_act_it_does_not(change: dict[str, object]) -> None:
    plan = parse(LOST)
    if "coordinator" in change:
        change = {**change, "policy": "protect"}
    result, acted = run(replace(plan, knobs=replace(plan.knobs, **change)))
    assert (result.violations, acted) == ((), 0)


def test_a_run_with_a_monitor_is_the_same_each_time() -> None:
    first, second = [run(parse(LOST))[0].trace_hash for _ in range(2)]
    assert first == second


def test_its_knob_comes_from_a_stream_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = {seed: draw(seed) for seed in range(120)}
    assert {plan.knobs.monitor for plan in drawn.values()} == {"off", "observe", "act"}
    monkeypatch.setattr(drawing, "watched", lambda plan: plan)
    for seed, plan in drawn.items():
        assert replace(plan, knobs=replace(plan.knobs, monitor="off")) == draw(seed)
