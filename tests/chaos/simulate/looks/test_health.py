"""A site that says that it serves beside a later epoch is reported, once it can know of that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulate.limits import MODE_SLACK_S
from chaos.simulate.looks import health
from chaos.simulate.looks.health import wrong_health
from chaos.simulate.twins.process import Process
from chaos.simulate.world import Life, World
from gateway.service.documents import ServingDocument
from tests.chaos.simulate.looks.a_world import a_world

MET_S = 50.0
SENTENCE = "Site a says that it serves in epoch 1, and site b has opened 1002."


@pytest.fixture(autouse=True)
def says_that_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = ServingDocument(True, True, False, "", "")
    monkeypatch.setattr(health, "site_condition", lambda site: SimpleNamespace(serving=serving))


def said(
    now_s: float, *, role: str = "DOWNGRADE_ACTIVE", apart: bool = False, met_s: float = MET_S, epoch: Any = "open"
) -> list[str]:
    """Returns what is said of site a, in epoch 1, once site b had opened epoch 1002."""
    world: World = a_world()
    watch: Any = SimpleNamespace(value=SimpleNamespace(active="b", epoch=1002), is_apart=apart, met_s=met_s)
    world.watch, world.loop.now_s = watch, now_s
    site: Any = SimpleNamespace(role=role, epoch=1, active_epoch=epoch)
    world.lives["a"] = Life(Process("a.1"), site)
    return wrong_health(world, "a", site)


def test_an_old_active_that_cannot_know_of_the_later_epoch_may_say_so() -> None:
    assert said(MET_S - 9, apart=True, met_s=-1e9) == []


def test_an_asynchronous_one_acts_a_moment_after_the_sites_see_each_other() -> None:
    """Seed 94002088: it said so 0.26 s after they did."""
    assert said(MET_S + 0.26) == []
    assert said(MET_S + MODE_SLACK_S) == []
    assert said(MET_S + MODE_SLACK_S + 0.1) == [SENTENCE]


def test_a_synchronous_one_has_no_such_moment() -> None:
    """Its answers need the remote log, which the opening of a later epoch fenced."""
    assert said(MET_S + 0.26, role="ACTIVE") == [SENTENCE]


def test_nobody_serves_with_no_epoch_open() -> None:
    assert said(MET_S, apart=True, epoch=None) == ["Site a is DOWNGRADE_ACTIVE with no epoch open, and says that it serves."]


def test_of_a_pair_that_was_never_apart_nothing_is_forgiven() -> None:
    assert said(MET_S, met_s=-float("inf")) == [SENTENCE]
