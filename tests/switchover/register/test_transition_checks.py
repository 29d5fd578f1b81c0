"""The check behind each step of the register: each mistake that is planted in a step breaks an invariant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from storage.invariants import InvariantBroken, watched
from switchover.register import transitions
from switchover.register.port import Beat, PairState
from tests.planting import planted

BEAT = Beat(30, 1, 1.0)


def opened(steps: Any, mode: str = "sync") -> PairState:
    """A pair whose site a is open in epoch 1."""
    state: PairState = steps.open_plan(steps.begin_plan(None, "p1", "a", "bootstrap", 1), "p1", "sync")
    return state if mode == "sync" else steps.downgrade(state, "a", 1, 40)


def taken(steps: Any) -> PairState:
    """Site b has the pair, to take over from a."""
    state: PairState = steps.begin_plan(opened(steps), "p2", "b", "takeover", 2)
    return state


def lost(steps: Any) -> PairState:
    """Site b has the pair, to take over by force from a, whose asynchronous spell has a beat."""
    told = steps.renew_lease(opened(steps, "async"), "a", 1, BEAT)
    state: PairState = steps.begin_plan(told, "p2", "b", "takeover", 2, accept_data_loss=True)
    return state


def stories(steps: Any) -> list[Callable[[], object]]:
    return [
        lambda: steps.open_plan(taken(steps), "p2", "async", 7),
        lambda: steps.open_plan(taken(steps), "p3", "async", 7),
        lambda: steps.begin_plan(steps.abandon_plan(taken(steps), "p2"), "p3", "b", "takeover", 3),
        lambda: steps.resync(opened(steps, "async"), "a", 1),
        lambda: steps.downgrade(taken(steps), "a", 1, 40),
        lambda: steps.downgrade_closed(taken(steps), "a", 40, {1}),
        lambda: steps.renew_lease(opened(steps, "async"), "a", 1),
        lambda: steps.open_plan(lost(steps), "p2", "async", 99),
        lambda: steps.downgrade(steps.renew_lease(opened(steps), "a", 1, BEAT), "a", 1, 40),
        lambda: steps.begin_plan(None, "p1", "b", "bootstrap", 1, accept_data_loss=True, highest_claim=5, lost_epoch=5),
    ]


def broken_by(steps: Any) -> list[str]:
    """The invariants that the stories break; what a step refuses is no matter here."""
    with watched(costly_too=False) as broken:
        for story in stories(steps):
            try:
                story()
            except (InvariantBroken, transitions.Refused, transitions.PlanSuperseded):
                continue
    return [str(one) for one in broken]


def test_the_steps_as_they_are_break_none() -> None:
    assert not broken_by(transitions)


@pytest.mark.parametrize(("right", "wrong", "message"), [
    ("epoch=running.epoch,", "epoch=running.epoch + 1,", "none is open that was not given away"),
    ("        epoch_allocated=epoch,", "        epoch_allocated=epoch - 1,", "a plan has an epoch of its own"),
    ("max(current.epoch_allocated, highest_claim)", "max(current.epoch, highest_claim)", "given to one plan only"),
    ("running.plan_id != plan_id:\n        raise PlanS", "False:\n        raise PlanS", "only the plan"),
    ("beat = state.beat if stays else None", "beat = state.beat", "a beat is of one asynchronous spell"),
    ("async_since_seq=async_since_seq, beat=None,", "async_since_seq=async_since_seq,", "a beat is of one asynchronous spell"),
    ("        active=running.site,", '        active="a",', "only the plan"),
    ("beat=beat,\n        switching=None,", "beat=beat,\n        switching=running,", "a plan has an epoch"),
    ('mode="sync", async_since_seq=None,', 'mode="sync",', "no acknowledgement is asynchronous"),
    ("    if state.switching is not None:\n", "    if False:\n", "the mode does not change"),
    ("epoch=max(current.epoch, lost_epoch),", "epoch=lost_epoch,", "epochs only grow"),
])
def test_a_planted_mistake_is_seen(right: str, wrong: str, message: str) -> None:
    assert any(message in one for one in broken_by(planted(transitions, right, wrong)))
