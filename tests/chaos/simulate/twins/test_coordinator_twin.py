"""The witness as the checkers see it: what it says after it forgot changes."""

from __future__ import annotations

from msgspec.structs import replace

from chaos.simulate.twins.coordinator import SimRegister
from switchover.register.port import PairState, Switching

OPEN = PairState(state_id=2, epoch=1, epoch_allocated=1, active="a", opened_by="a6", mode="sync")
ASYNC = replace(OPEN, state_id=3, mode="async", async_since_seq=14)
PLAN = Switching(plan_id="b10", site="b", epoch=2, kind="takeover", since_wall_ms=0)


def test_a_downgrade_that_the_register_forgot_stays_one_whatever_is_changed_behind_it() -> None:
    """The active that downgraded acknowledges alone until it looks again (seed 12014428)."""
    register = SimRegister()
    register.history += [OPEN]
    assert register.says_sync(1, "a")
    register.history += [ASYNC]
    assert register.go_back(1) == 1
    assert not register.says_sync(1, "a")
    register.history += [replace(OPEN, state_id=3, epoch_allocated=2, switching=PLAN)]
    assert not register.says_sync(1, "a")
    register.history += [replace(OPEN, state_id=4, epoch=2, epoch_allocated=2, active="b", opened_by="b10")]
    assert register.says_sync(2, "b")


def test_a_plan_that_began_the_pair_anew_and_failed_leaves_the_active_before_in_mind() -> None:
    """The operator repeats the command at that site; nobody else can name it (seed 53000063)."""
    register = SimRegister()
    register.history += [OPEN, replace(OPEN, state_id=3, epoch=2, epoch_allocated=2, opened_by="a14")]
    assert register.go_back(1) == 1
    begun = replace(PLAN, plan_id="a25", site="a", epoch=1002, kind="bootstrap")
    nothing = PairState(state_id=3, epoch=0, epoch_allocated=1002, anew_epoch=1002, switching=begun)
    register.history += [nothing, replace(nothing, state_id=4, switching=None)]
    assert register.remembered is not None
    assert register.remembered.active == "a"
