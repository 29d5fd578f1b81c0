"""The order of the steps that make a site the active, as docs/protocol.md tells it, and where the way back ends."""

from __future__ import annotations

import re
from typing import cast

import pytest

from switchover.operations.plan import Step
from switchover.plans.takeover import SwitchoverSettings, Takeover
from switchover.preflight.preflight import Preflight
from switchover.site_control import SiteControl
from tools.sources import ROOT


def steps(kind: str) -> list[Step]:
    return list(Takeover(cast(SiteControl, None), kind, {}, cast(Preflight, None), SwitchoverSettings()).plan().steps)


def test_a_switchover_has_the_steps_of_the_protocol_in_that_order() -> None:
    page = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    section = page.partition("**Switchover a to b**")[2].partition("**Failover to b**")[0]
    told = [name for line in section.splitlines() if line[:1].isdigit() for name in re.findall(r"\*(\w+)\*", line)]
    assert told == [step.name for step in steps("switchover")]


def test_a_failover_has_the_same_ones_but_those_that_need_the_old_active() -> None:
    needs_it = {"near", "drain", "catch_up", "step_down"}
    assert [one.name for one in steps("failover")] == [one.name for one in steps("switchover") if one.name not in needs_it]


@pytest.mark.parametrize(("kind", "name"), [
    ("switchover", "step_down"), ("failover", "claim"), ("restart", "claim"), ("bootstrap", "claim"),
])
def test_the_point_of_no_return_is_the_first_step_that_cannot_be_aborted(kind: str, name: str) -> None:
    abortable = [one.abortable for one in steps(kind)]
    assert abortable == sorted(abortable, reverse=True), "nothing behind it can be aborted"
    assert steps(kind)[abortable.index(False)].name == name
