"""Random walks over the model: the protocol keeps its promises, and mistakes planted in it are found."""

from __future__ import annotations

import random

import pytest

from tests.model.changes import LETS_GO
from tests.model.pieces import Broken
from tests.model.twinlog_model import World, walk

WALKS = 400
# where the walks met each planted mistake first: a change of the model moves them (python -m tests.model.twinlog_model N BUG)
FOUND_AT = {
    "no_fence": 74,
    "no_claim_recheck": 5,
    "no_lease_wait": 46,
    "growth_unseen": 13550,
    "ack_before_remote": 5,
    "forget_previous": 0,
    "reuse_seq": 40,
    "trim_early": 331,
    "no_flush_before_open": 25024,
    "no_flush_at_takeover": 629,
    "apply_before_open": 7125,
    "blind_restart": 72,
    "downgrade_unrecorded": 4,
    "downgrade_closed_unasked": 1913,
    "sync_before_caught_up": 4377,
    "replay_unattested": 1794,
    "unopened_attests": 27403,
    "no_async_note": 208,
    "drop_quarantine": 46,
}


def test_no_walk_breaks_a_promise() -> None:
    assert sum(len(walk(seed).trace) for seed in range(WALKS)) > 20 * WALKS


def test_a_site_may_let_its_own_plan_go_at_any_step() -> None:
    assert sum(len(walk(seed, LETS_GO).trace) for seed in range(WALKS)) > 20 * WALKS


@pytest.mark.parametrize("bug", FOUND_AT)
def test_a_planted_mistake_is_found(bug: str) -> None:
    seed = FOUND_AT[bug]
    walk(seed)  # the same walk without it is clean
    with pytest.raises(Broken):
        walk(seed, bug)


def two_takeovers(writes: int, last_step: str, bug: str = "") -> World:
    """A takeover that dies with its start in the WAL, a restart that copies what only its WAL had and dies, a second takeover
    that dies before `last_step`; then all heals. Too much in a row for the walks. Raises Broken."""
    world = World(random.Random(0), bug)

    def attempt(i: int, kind: str, upto: str) -> None:
        world.begin(i, kind)
        while world.sites[i].steps[0] != upto:
            world.take("plan", i)
            world.take("tick", 0)
        while world.sites[i].state != "down":
            world.take("crash", i)

    for _ in range(writes):
        world.take("write", 0)
        world.take("local_ok", 0)
    while world.sites[0].state != "down":
        world.take("crash", 0)
    attempt(1, "takeover", "open")
    attempt(0, "restart", "open")
    attempt(1, "takeover", last_step)
    world.heal()
    return world


@pytest.mark.parametrize("last_step", ["open", "apply"])
@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_takeover_after_an_attempt_continues_what_the_old_active_copied(writes: int, last_step: str) -> None:
    world = two_takeovers(writes, last_step)
    assert [f.name for f in world.sites[0].storage if f.name != "start"] == [f"w{n + 1}" for n in range(writes)]


@pytest.mark.parametrize(("writes", "last_step"), [(2, "apply"), (3, "open"), (3, "apply")])
def test_a_start_that_stays_in_the_wal_of_an_attempt_is_found(writes: int, last_step: str) -> None:
    with pytest.raises(Broken):
        two_takeovers(writes, last_step, "attempt_stays")
