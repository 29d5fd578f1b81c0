"""Plans that aim: their courses come about, their points are ones of the product, and they find what no other plan does."""

from __future__ import annotations

from collections import Counter

import pytest

from chaos.simulate.aims import COURSES, DEEDS, aimed, points, ports
from chaos.simulate.draw import by_http, draw, focused, repeated, stored
from chaos.simulate.plan import FAULTS_END_S, STEP, SeedPlan, parse, text
from chaos.simulate.run import Run, collect
from chaos.workloads.mixed import Mixed

SEEDS = range(120)
SELDOM = ("undo", "undrain", "force", "truncate_tail", "replace_rows")  # in points that few of SEEDS come to, if any


def is_aimed(plan: SeedPlan) -> bool:
    return any(fault.kind == STEP.name for fault in plan.faults)


def test_half_of_the_plans_aim_and_a_quarter_mixes_and_the_others_are_focused() -> None:
    drawn = {seed: draw(seed) for seed in range(1000)}
    assert 430 < sum(map(is_aimed, drawn.values())) < 570
    assert 200 < sum(plan.workload == Mixed.name for plan in drawn.values()) < 300
    for seed, plan in drawn.items():
        assert parse(text(plan)) == plan
        assert is_aimed(plan) or plan.workload == Mixed.name or plan == stored(by_http(repeated(focused(seed))))
        assert all(fault.at_s <= 2 * FAULTS_END_S for fault in plan.faults)


def test_clients_come_back_to_their_writes_where_none_may_be_given_up() -> None:
    coming_back = [plan for plan in map(draw, range(1000)) if plan.knobs.again]
    assert 200 < len(coming_back) < 400
    assert not any(fault.how == "accept-data-loss" for plan in coming_back for fault in plan.faults)


def test_some_plans_have_requests_that_pass_the_http_protocol() -> None:
    shares = [draw(seed).knobs.http for seed in range(1000)]
    assert 15 < sum(share > 0 for share in shares) < 60


def test_with_named_faults_nothing_aims_unless_it_is_named() -> None:
    assert not any(is_aimed(draw(seed, ("crash", "cut"))) for seed in range(50))
    assert all(is_aimed(draw(seed, (STEP.name,))) for seed in range(50))


def test_what_an_aimed_plan_strikes_at_is_a_point_and_what_it_does_there_a_deed() -> None:
    known = {*ports(), *(point for course in COURSES for point in points(course))}
    for seed in range(500):
        for fault in aimed(focused(seed)).faults:
            if fault.kind == STEP.name:
                deed, nth, point = fault.how.split(":")
                assert deed in DEEDS
                assert int(nth) >= 1
                assert point in known


def test_nobody_accepts_a_loss_beside_the_disaster_of_a_course() -> None:
    """Seed 711255 of an earlier draw: the standby's disk was replaced, and a takeover of the standby accepted the loss."""
    plans = [plan for plan in map(draw, range(2000)) if is_aimed(plan)]
    replaced = [plan for plan in plans if any(fault.kind == "replace-disk" for fault in plan.faults)]
    assert len(replaced) > 100
    assert not any(fault.how == "accept-data-loss" for plan in replaced for fault in plan.faults)


@pytest.mark.long
def test_the_courses_come_about_and_pass_their_points() -> None:
    """The runs pass every point that plans name, but for a few seldom ones; each course ends as it should in some run."""
    ended: Counter[str] = Counter()
    passed: set[str] = set()
    struck = 0
    for seed in SEEDS:
        run = Run(aimed(focused(seed)))
        result = run.execute()
        assert result.violations == (), f"seed {seed}: {result.violations[0]}"
        collect()
        struck += any("at step" in line for line in result.trace)
        for machine in run.world.machines.values():
            ended.update(operation.kind for operation in machine.journal.all() if operation.state == "succeeded")
        for steps in run.world.steps.values():
            passed |= steps.census.keys()
    assert struck > len(SEEDS) // 3
    assert {"switchover", "failover", "restart", "rejoin", "degrade", "resync"} <= ended.keys()
    assert "engine.finish_base.after" in passed
    named = {*ports(), *(point for course in COURSES for point in points(course))}
    missed = {point for point in named - passed if not any(word in point for word in SELDOM)}
    assert missed == set()


@pytest.mark.parametrize("deed", DEEDS)
def test_a_deed_is_done_at_its_step_and_the_pair_gets_over_it(deed: str) -> None:
    plan = parse(
        "seed 5\nworkload mixed\nclients 4\noperations 60\nknob op_interval_s 0.2\n"
        f"at 1.0 switchover standby\nat 1.0 at-step any for 0.5 how {deed}:1:coordinator.compare_and_set.after\n"
    )
    result = Run(plan).execute()
    assert result.violations == ()
    assert sum("at step coordinator.compare_and_set.after" in line for line in result.trace) == 1
