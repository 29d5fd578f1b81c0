"""Random walks over the model of a pair without a coordinator: what the register rests on, and what simpler ones take away."""

from __future__ import annotations

import random

import pytest

from tests.model.alone_model import Pair, walk
from tests.model.changes import ACTIVATION, EARLY, LETS_GO
from tests.model.pieces import Broken
from tests.model.twinlog_model import HEALING

WALKS = 300
# (rule, bug) -> the seed that met it first (python -m tests.model.alone_model N RULE BUG): a change of the model moves it
FOUND_AT = {
    ("homes", "a_copy_counts"): 61,
    ("homes", "degrade_is_dropped"): 61,
    ("homes", "degrade_is_overrun"): 77,
    ("homes", "blind_opens"): 3323,
    ("homes", "no_last_wait"): 1769,
    ("homes", "lease_without_a_look"): 7801,
    ("homes", "no_room_left"): 8962,
    ("homes", "attempt_stays"): 1010382,
    ("mended", "home_stays"): 36,
    ("homes", "over_a_takeover"): 1011249,
    ("homes", "over_a_switchover"): 1010501,
    ("anew", "same_epochs"): 4390,
    ("anew", "anew_outranks"): 2215,
}
# a simpler rule -> the seed that shows what it takes away
TAKEN_AWAY_AT = {"arbiter": 283, "fixed": 415, "anew": 1004560}


def test_no_walk_breaks_a_promise() -> None:
    assert sum(len(walk(seed).trace) for seed in range(WALKS)) > 20 * WALKS


def test_a_site_may_let_its_own_plan_go_at_any_step() -> None:
    assert sum(len(walk(seed, "homes", LETS_GO).trace) for seed in range(WALKS)) > 20 * WALKS


@pytest.mark.parametrize(("rule", "bug"), FOUND_AT)
def test_a_planted_mistake_is_found(rule: str, bug: str) -> None:
    seed = FOUND_AT[rule, bug]
    walk(seed, rule)  # the same walk without it is clean
    with pytest.raises(Broken):
        walk(seed, rule, bug)


@pytest.mark.parametrize("rule", TAKEN_AWAY_AT)
def test_a_simpler_rule_takes_something_away(rule: str) -> None:
    seed = TAKEN_AWAY_AT[rule]
    walk(seed, "mended")
    with pytest.raises(Broken):
        walk(seed, rule)


@pytest.mark.parametrize("rule", ["homes", "mended", "anew", "arbiter"])
def test_after_a_switchover_an_ordinary_failover_back_is_possible(rule: str) -> None:
    lose_after_a_switchover(rule)


def test_one_folder_in_one_place_has_no_ordinary_failover_from_the_site_that_holds_it() -> None:
    with pytest.raises(Broken, match="does not serve after an ordinary failover"):
        lose_after_a_switchover("fixed")


def lose_after_a_switchover(rule: str) -> None:
    """`b` is the synchronous active and `a` follows it when `b` and its DFS are lost."""
    pair = Pair(random.Random(1), rule)
    pair.eager, pair.calm = 0, True  # nothing goes wrong by chance
    pair.begin(1, "switchover", EARLY + ACTIVATION)
    for name in [*HEALING] * 40:
        pair.take(name, 0)
        pair.take(name, 1)
    assert (pair.sites[1].state, pair.sites[1].mode, pair.sites[0].state) == ("active", "sync", "standby")
    pair.eager = 1
    pair.lose(1)
    assert pair.told["lost while all was well"] == 1
