"""Walks with a DFS that goes back: unnoticed, it takes acknowledged writes along, or the claim that fenced a writer."""

from __future__ import annotations

import random

import pytest

from tests.model.dfs.went_back import Back, walk
from tests.model.pieces import Broken

WALKS = 150


@pytest.mark.long
def test_no_walk_breaks_a_promise() -> None:
    assert sum(len(walk(seed).trace) for seed in range(WALKS)) > 20 * WALKS


def _world(rule: str, bug: str = "") -> Back:
    """A pair whose active has acknowledged a write."""
    world = Back(random.Random(0), rule, bug)
    world.take("tick", 0)
    _steps(world, 0, "write", "local_ok", "remote_ok")
    world.take("look", 0)
    _steps(world, 0, "ack")
    assert "w1" in world.acked
    return world


def _steps(world: Back, i: int, *names: str) -> None:
    """Each of them, tried until it is taken."""
    for name in names:
        steps = len(world.trace)
        for _ in range(300):
            world.take(name, i)
            if len(world.trace) > steps:
                break
        assert len(world.trace) > steps, f"{name} cannot be taken: {world.trace}"


def _plan(world: Back, i: int, upto: str = "") -> None:
    """A plan of this site, to its end, or up to this step."""
    for _ in range(300):
        if world.sites[i].state == "active" or world.sites[i].steps[:1] == [upto]:
            return
        world.take("plan", i)
        world.take("tick", 0)
    raise AssertionError(f"the plan does not end: {world.trace}")


def lost(rule: str) -> None:
    """The writer makes another segment there, or begins a new epoch; then its site is lost. Raises Broken."""
    world = _world(rule)
    world.restore(1, world.moments[1][0])
    _steps(world, 0, "remote_fail", "segment_create")
    if world.sites[0].state == "down":
        _steps(world, 0, "boot", "decide")
        _plan(world, 0)
    assert not world.hollow[1]
    _steps(world, 0, "crash")
    _steps(world, 1, "takeover")
    _plan(world, 1)
    world.heal()


def slept(rule: str) -> Back:
    """The writer sleeps while the other site takes over and its DFS then forgets that; it wakes, and writes. Raises Broken."""
    world = _world(rule)
    copy = world.moments[1][-1]
    _steps(world, 1, "takeover")
    _plan(world, 1)
    world.restore(1, copy)
    _steps(world, 0, "remote_fail", "segment_create", "segment_check", "write", "local_ok", "remote_ok")
    world.take("look", 0)
    world.take("ack", 0)
    return world


def slept_while_it_opened(rule: str, bug: str = "") -> None:
    """The same, and it wakes between the last look of the other site and its opening. Raises Broken."""
    world = _world(rule, bug)
    copy = world.moments[1][-1]
    _steps(world, 1, "takeover")
    _plan(world, 1, "open")
    world.restore(1, copy)
    _steps(world, 0, "remote_fail", "segment_create", "segment_check", "write", "local_ok", "remote_ok")
    world.take("look", 0)
    world.take("ack", 0)
    world.take("plan", 1)
    world.heal()


def test_what_a_dfs_lost_is_copied_there_again() -> None:
    lost("looks")
    with pytest.raises(Broken, match="lost when site 1 opened"):
        lost("today")


def test_a_writer_whose_fence_was_forgotten_acknowledges_nothing() -> None:
    assert slept("lapsed").unanswered[0] != []
    with pytest.raises(Broken, match=r"still serves reads|fenced epoch"):
        slept("looks")


def test_neither_while_the_other_site_opens() -> None:
    slept_while_it_opened("lapsed")
    with pytest.raises(Broken):
        slept_while_it_opened("lapsed", "plan_unseen")


def test_a_plan_whose_claim_was_forgotten_opens_nothing() -> None:
    """Else the writer that it has fenced, whose lease has not run out yet, goes on beside it."""
    def run(bug: str) -> None:
        world = _world("lapsed", bug)
        _steps(world, 1, "takeover")
        _plan(world, 1, "start")
        world.restore(1, world.moments[1][0])
        world.take("plan", 1)
        assert (world.sites[1].state == "down") is not bool(bug)

    run("")
    run("own_claim_unseen")
