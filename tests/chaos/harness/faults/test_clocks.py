"""Clocks of a plan: whose they are, how far they are off, and that both never drift apart further than the lease allows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.clock_faults.control import ClockFaults
from chaos.fault_lines import Fault
from chaos.harness.faults.clocks import MARGIN, apart
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import effect_of, need_clocks
from remote_log.fencing.read_lease import LeaseSettings


@pytest.fixture
def clocks(tmp_path: Path) -> dict[str, ClockFaults]:
    return {site: ClockFaults(tmp_path / site) for site in ("a", "b")}


def effect(clocks: dict[str, ClockFaults], kind: str, target: str, how: str) -> Any:
    fault, nothing = Fault(1.0, kind, target, 2.0, how), None
    assert need_clocks([fault])
    return effect_of(fault, Stage(nothing, nothing, nothing, lambda: "a", clocks=clocks))  # type: ignore[arg-type]


async def test_a_jump_is_of_its_site_and_taken_back(clocks: dict[str, ClockFaults]) -> None:
    jump = effect(clocks, "clock-jump", "standby", "-90")
    assert await jump.why_not() == ""
    assert await jump.inject() == "site b: its wall clock is -90.0 s from the real one"
    assert clocks["a"].ahead_s == 0
    assert clocks["b"].ahead_s == pytest.approx(-90)
    assert await jump.heal() == "back at +0.0 s"


async def test_both_together_stay_within_what_the_lease_allows(clocks: dict[str, ClockFaults]) -> None:
    assert LeaseSettings().drift_margin == MARGIN
    slow, fast, fair = (effect(clocks, "clock-drift", *each) for each in (("a", "0.9"), ("b", "1.1"), ("b", "1.05")))
    assert await slow.why_not() == ""
    await slow.inject()
    assert await fast.why_not() == "the clocks would drift apart by more than 20%"
    assert await fair.why_not() == ""
    assert await effect(clocks, "clock-drift", "a", "0.95").why_not() == "the clocks of site a drift already"
    await slow.heal()
    assert await fast.why_not() == ""


def test_how_far_two_rates_are_apart() -> None:
    assert apart(1.0, 1.2) == apart(1.2, 1.0) == pytest.approx(0.2)
    assert apart(1.0, 0.0) == float("inf")
