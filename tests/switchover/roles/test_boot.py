"""The role that a site takes by itself: every role against every kind of value at the coordinator."""

from __future__ import annotations

import pytest

from switchover.register.port import PairState, Switching
from switchover.roles.boot import Action, decide
from switchover.roles.table import Role

CLOSED = (Role.CLOSED, Role.FENCED)


def value(active: str | None, kind: str | None = None, by: str = "b") -> PairState:
    plan = None if kind is None else Switching("plan-1", by, 7, kind, 0)
    return PairState(state_id=9, epoch=6, epoch_allocated=7, active=active, switching=plan)


@pytest.mark.parametrize("role", CLOSED)
@pytest.mark.parametrize(
    ("state", "action"),
    [
        (None, Action.WAIT),
        (value("b"), Action.RESTART),
        (value("a"), Action.REJOIN),
        (value("b", "restart"), Action.RESTART),
        (value("a", "takeover"), Action.RESUME),
        (value("a", "switchover"), Action.RESUME),
        (value("a", "restart", by="a"), Action.WAIT),
        (value("b", "takeover", by="a"), Action.WAIT),
    ],
)
def test_a_closed_site_b(role: Role, state: PairState | None, action: Action) -> None:
    assert decide("b", role, state, "a").action is action


def test_what_the_operator_has_to_do_when_it_cannot_go_on() -> None:
    waiting_for = decide("b", Role.CLOSED, value("a", "takeover"), "a").waiting_for
    assert waiting_for == "the operator: takeover to b stopped half-way; run `twinlog resume` or `twinlog abort`"


@pytest.mark.parametrize("role", [role for role in Role if role not in CLOSED])
@pytest.mark.parametrize("kind", ["takeover", "switchover"])
def test_only_a_closed_site_resumes(role: Role, kind: str) -> None:
    """SWITCHING: its plan runs, or ended without a word, and the site may hold half of it."""
    assert decide("b", role, value("a", kind), "a").action is (Action.UNDO if role is Role.STANDBY else Action.NOTHING)


def test_the_first_site_of_a_fresh_pair_opens_it() -> None:
    assert decide("a", Role.CLOSED, None, "a").action is Action.BOOTSTRAP


def test_a_drained_site_opens_when_the_plan_let_go() -> None:
    assert decide("a", Role.DRAINING, value("a"), "a").action is Action.UNDRAIN
    assert decide("a", Role.DRAINING, value("a", "switchover"), "a").action is Action.NOTHING


@pytest.mark.parametrize("site", ["a", "b"])
@pytest.mark.parametrize("state", [None, PairState(state_id=3, epoch=6, epoch_allocated=9)])
def test_a_pair_that_the_register_has_forgotten_waits_for_the_operator(site: str, state: PairState | None) -> None:
    decision = decide(site, Role.CLOSED, state, "a", 6)
    assert decision.action is Action.WAIT
    assert "epoch 6" in str(decision.waiting_for)
    assert f"failover --to {site} --accept-data-loss --count unknown" in str(decision.waiting_for)
    decision = decide(site, Role.CLOSED, state, "a", 6, "b")
    assert "failover --to b --accept" in str(decision.waiting_for), "both sites name the active that they know of"


def test_a_beginning_by_command_that_stopped_half_way_is_taken_up_and_never_as_if_the_pair_were_fresh() -> None:
    plan = Switching("plan-1", "a", 7, "bootstrap", 0)
    assert decide("a", Role.CLOSED, PairState(9, 6, 7, switching=plan), "a").action is Action.RESUME
    assert decide("a", Role.CLOSED, PairState(9, 0, 7, switching=plan), "a").action is Action.BOOTSTRAP
