"""Answers of an asynchronous active, forgiven only where a command had the register decided apart."""

from __future__ import annotations

import pytest

from chaos.checkers import one_active
from chaos.checkers.rows import linearizable
from chaos.history.history import Ack, Apart, Limits, ModeRecorded, Moment, Mutation, Opened, Operation, Outcome, Row
from chaos.history.lines import Blind
from tests.chaos.plots import Plot

READ = Operation("read", "t", key="k")
WRITE = Operation("write", "t", mutations=(Mutation("upsert", "k", {"value": 1}),))
OLD = Outcome("ok", site="a", epoch=1)


def forced(*, mode: str = "async", site: str = "b", at_s: float = 5.0, met_s: float | None = 20.0) -> Plot:
    """a is asynchronous in epoch 1 since 2.0; `site` was forced, b opened epoch 1002 at 10.0; they saw each other at 20.0."""
    plot = Plot().add(
        Limits(mode_slack_s=1.0), Opened("a", 1, 0.0, "sync"), ModeRecorded(1, "sync", 0.0), ModeRecorded(1, mode, 2.0),  # type: ignore[arg-type]
        Apart(site, at_s), Opened("b", 1002, 10.0, "async"), ModeRecorded(1002, "async", 10.0),
    )
    return plot if met_s is None else plot.add(Moment("met", met_s))


def found(plot: Plot) -> list[str]:
    return [violation.checker for violation in one_active.check(plot.history())]


def test_its_answers_are_forgiven_until_both_saw_each_other_and_a_lease_more() -> None:
    assert found(forced().call(READ, 11, 12, OLD).call(READ, 20, 20.9, OLD)) == []
    assert found(forced().call(WRITE, 11, 12, Outcome("ok", Ack("a", 1, 5, 5, "async"), site="a", epoch=1))) == []
    assert found(forced(site="a", at_s=10.5).call(READ, 11, 12, OLD)) == []
    assert found(forced(met_s=None).call(READ, 40, 41, OLD)) == []
    assert found(forced(met_s=9.7).add(Blind("b", 9.6, 10.1)).call(READ, 10.1, 10.6, OLD)) == []
    assert found(forced().add(Opened("a", 3, 15.0, "async"), ModeRecorded(3, "async", 15.0)).call(
        READ, 16, 17, Outcome("ok", site="a", epoch=3))) == []


@pytest.mark.parametrize("plot", [
    forced().call(READ, 21.5, 22, OLD),
    forced(mode="sync").call(READ, 11, 12, OLD),
    forced().call(WRITE, 11, 12, Outcome("ok", Ack("a", 1, 5, 5, "sync"), site="a", epoch=1)),
    forced(at_s=10.5).call(READ, 11, 12, OLD),
    forced(site="a", at_s=12.5).call(READ, 11, 12, OLD),
    forced(met_s=9.0).call(READ, 9.5, 10.5, OLD),
    forced(met_s=9.5).add(Blind("b", 9.6, 10.1)).call(READ, 10.1, 10.4, OLD),
    forced(met_s=9.7).add(Blind("b", 9.6, 9.9)).call(READ, 10.1, 10.6, OLD),
    forced(met_s=9.7).add(Blind("a", 9.6, 10.1)).call(READ, 10.1, 10.6, OLD),
    forced().add(Opened("a", 3, 15.0, "sync"), ModeRecorded(3, "sync", 15.0)),
    forced().add(Opened("a", 3, 25.0, "async"), ModeRecorded(3, "async", 25.0)),
], ids=[
    "too late", "sync epoch", "called sync", "forced later", "degraded later", "opened after they met",
    "they met before it asked", "they met after it had asked", "another asked", "reopened in sync", "reopened late",
])
def test_nothing_else_is(plot: Plot) -> None:
    assert found(plot) == ["one_active"]


def test_what_was_read_there_is_no_fact_and_what_was_read_elsewhere_is() -> None:
    def stale(site: str, epoch: int) -> list[str]:
        plot = forced().write("k", "old", 1, 1.5, epoch=1).write("k", "new", 11, 12, mode="async", epoch=1002)
        plot.call(READ, 13, 14, Outcome("ok", rows=(Row("k", {"value": "old"}, 1),), site=site, epoch=epoch))
        return [violation.promise for violation in linearizable.check(plot.history())]

    assert stale("a", 1) == []
    assert stale("b", 1002) == ["P3"]
