"""The register's pure steps, each refusal, and random walks against a twin as dumb as the model's `coord`."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace

from switchover.register.port import Beat, PairState
from switchover.register.transitions import (
    KINDS,
    abandon_plan,
    begin_plan,
    downgrade,
    downgrade_closed,
    open_plan,
    renew_lease,
    resync,
)
from twinlog.errors import Fenced, PlanSuperseded, Refused, TwinlogError


def opened(mode: str = "sync") -> PairState:
    """A pair whose site a is open in epoch 1."""
    state = open_plan(begin_plan(None, "p1", "a", "bootstrap", 1000), "p1", "sync")
    return state if mode == "sync" else downgrade(state, "a", 1, 40)


def test_a_fresh_pair_is_bootstrapped() -> None:
    began = begin_plan(None, "p1", "a", "bootstrap", 1000)
    assert began.switching is not None
    assert (began.switching.epoch, began.epoch, began.active) == (1, 0, None)
    state = open_plan(began, "p1", "sync")
    assert (state.epoch, state.active, state.mode, state.switching, state.opened_by) == (1, "a", "sync", None, "p1")


def test_each_value_says_why() -> None:
    state = begin_plan(opened("async"), "p2", "b", "takeover", 5, accept_data_loss=True)
    assert state.reason == "plan p2 (takeover to b) began with epoch 2"
    assert open_plan(state, "p2", "async", 44).reason == "plan p2 (takeover) opened epoch 2 at b, async"


def test_steps_that_were_made_already_change_nothing() -> None:
    began = begin_plan(opened(), "p2", "b", "takeover", 5)
    assert begin_plan(began, "p2", "b", "takeover", 6) is began
    done = open_plan(began, "p2", "async", 9)
    assert open_plan(done, "p2", "async", 9) is done
    given_up = abandon_plan(began, "p2")
    assert abandon_plan(given_up, "p2") is given_up
    slow = opened("async")
    assert downgrade(slow, "a", 1, 77) is slow
    assert slow.async_since_seq == 40, "the earlier bound is the honest one"
    fast = resync(slow, "a", 1)
    assert resync(fast, "a", 1) is fast
    assert fast.async_since_seq is None


def test_another_sites_plan_is_superseded_only_by_command() -> None:
    began = begin_plan(opened(), "p2", "b", "takeover", 5)
    with pytest.raises(Refused, match="p2") as caught:
        begin_plan(began, "p3", "a", "restart", 6)
    assert caught.value.fields["plan_id"] == "p2"
    taken = begin_plan(began, "p3", "a", "restart", 6, supersede=True)
    assert taken.switching is not None
    assert (taken.switching.site, taken.switching.epoch) == ("a", 3)
    with pytest.raises(PlanSuperseded):
        open_plan(taken, "p2", "async")


def test_a_site_takes_its_own_unfinished_plan_over_with_a_new_epoch() -> None:
    again = begin_plan(begin_plan(opened(), "p2", "b", "takeover", 5), "p2-again", "b", "takeover", 6)
    assert again.switching is not None
    assert again.switching.epoch == 3
    assert again.reason.endswith("superseding p2")


def test_what_an_asynchronous_active_opens_without_by_accepted_loss_is_known_of_no_more() -> None:
    slow = renew_lease(opened("async"), "a", 1, Beat(55, 1000, 2.0))
    again = open_plan(begin_plan(slow, "p2", "a", "restart", 5), "p2", "async", 60)
    assert (again.async_since_seq, again.beat) == (40, slow.beat), "a restart that has everything"
    less = open_plan(begin_plan(slow, "p2", "a", "restart", 5, accept_data_loss=True), "p2", "async", 50)
    assert (less.async_since_seq, less.beat) == (40, None)
    least = open_plan(begin_plan(slow, "p2", "a", "restart", 5, accept_data_loss=True), "p2", "async", 30)
    assert (least.async_since_seq, least.beat) == (30, None), "its next restart holds what the register says"


def test_the_beat_of_a_lost_active_does_not_stay_with_its_successor() -> None:
    slow = renew_lease(opened("async"), "a", 1, Beat(55, 1000, 2.0))
    begun = begin_plan(slow, "p2", "b", "takeover", 5, accept_data_loss=True)
    assert open_plan(begun, "p2", "async", 60).beat is None


def test_a_closed_active_is_downgraded_unless_another_plan_has_the_pair() -> None:
    slow = downgrade_closed(opened(), "a", 30, {1})
    assert (slow.mode, slow.async_since_seq, slow.epoch) == ("async", 30, 1)
    assert downgrade_closed(slow, "a", 99, {1}) is slow, "the earlier bound is the honest one"
    restarted = open_plan(begin_plan(slow, "p2", "a", "restart", 5), "p2", "async")
    assert (restarted.mode, restarted.async_since_seq) == ("async", 30)
    with pytest.raises(Refused, match="not the active"):
        downgrade_closed(opened(), "b", 30, {1})
    with pytest.raises(Refused, match="not the active"):
        downgrade_closed(None, "a", 0, {1})
    with pytest.raises(Refused, match="its disk was replaced"):
        downgrade_closed(opened(), "a", 0, {0})
    with pytest.raises(PlanSuperseded):
        downgrade_closed(begin_plan(opened(), "p2", "b", "takeover", 5), "a", 30, {1})
    with pytest.raises(PlanSuperseded):
        downgrade_closed(begin_plan(opened(), "p2", "b", "switchover", 5), "a", 30, {1})


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_restart_that_began_before_the_closed_downgrade_opens_nothing(mode: str) -> None:
    began = begin_plan(opened(mode), "p2", "a", "restart", 5)
    slow = downgrade_closed(began, "a", 30, {1})
    assert (slow.mode, slow.switching) == ("async", None)
    with pytest.raises(PlanSuperseded):
        open_plan(slow, "p2", "sync")
    assert slow.async_since_seq == (30 if mode == "sync" else 40)


def test_an_epoch_is_above_every_claim_seen() -> None:
    state = begin_plan(opened(), "p2", "b", "takeover", 5, highest_claim=7)
    assert state.epoch_allocated == 8
    assert begin_plan(opened(), "p2", "b", "takeover", 5, highest_claim=0).epoch_allocated == 2


def test_a_takeover_from_an_asynchronous_active_needs_the_loss_accepted() -> None:
    with pytest.raises(Refused, match="--accept-data-loss") as caught:
        begin_plan(opened("async"), "p2", "b", "takeover", 5)
    assert caught.value.fields["async_since_seq"] == 40
    assert begin_plan(opened("async"), "p2", "b", "takeover", 5, accept_data_loss=True).switching is not None
    assert begin_plan(opened("async"), "p2", "b", "switchover", 5).switching is not None, "drained: nothing is lost"


@pytest.mark.parametrize(
    ("kind", "site"),
    [("bootstrap", "a"), ("bootstrap", "b"), ("restart", "b"), ("takeover", "a"), ("switchover", "a"), ("x", "b")],
)
def test_a_kind_that_does_not_fit_is_refused(kind: str, site: str) -> None:
    with pytest.raises(Refused):
        begin_plan(opened(), "p2", site, kind, 5)


@pytest.mark.parametrize("kind", ["restart", "takeover", "switchover"])
def test_a_fresh_pair_can_only_be_bootstrapped(kind: str) -> None:
    with pytest.raises(Refused):
        begin_plan(None, "p1", "a", kind, 5)


def test_a_restart_keeps_the_mode_and_the_bound() -> None:
    began = begin_plan(opened("async"), "p2", "a", "restart", 5)
    with pytest.raises(Refused, match="resync"):
        open_plan(began, "p2", "sync")
    assert open_plan(began, "p2", "async", 99).async_since_seq == 40
    assert open_plan(begin_plan(opened(), "p2", "b", "takeover", 5), "p2", "async", 99).async_since_seq == 99


ACTIVE_STEPS: list[Callable[[PairState | None, str, int], PairState]] = [
    lambda state, site, epoch: downgrade(state, site, epoch, 40),
    resync,
    renew_lease,
]


@pytest.mark.parametrize("change", ACTIVE_STEPS)
def test_only_the_active_of_the_open_epoch_and_only_without_a_plan(
    change: Callable[[PairState | None, str, int], PairState],
) -> None:
    for state, site, epoch in [(None, "a", 1), (opened(), "b", 1), (opened(), "a", 2)]:
        with pytest.raises(Refused):
            change(state, site, epoch)
    for site in ("a", "b"):
        kind = "restart" if site == "a" else "takeover"
        with pytest.raises(PlanSuperseded):
            change(begin_plan(opened(), "p2", site, kind, 5), "a", 1)
    moved = open_plan(begin_plan(opened(), "p2", "b", "takeover", 5), "p2", "async", 3)
    with pytest.raises(Fenced) as caught:
        change(moved, "a", 1)
    assert caught.value.fields == {"epoch": 1, "by_epoch": 2}
    assert change(abandon_plan(begin_plan(opened(), "p2", "b", "takeover", 5), "p2"), "a", 1).epoch == 1


def test_what_has_opened_is_not_abandoned() -> None:
    for state in (None, opened()):
        with pytest.raises(Refused):
            abandon_plan(state, "p1")


def test_a_renewal_moves_the_beat_and_nothing_else() -> None:
    before = opened("async")
    after = renew_lease(before, "a", 1)
    assert replace(after, lease_beats=0, reason="") == replace(before, lease_beats=0, reason="")
    assert after.lease_beats == 1


def test_what_a_renewal_tells_lives_as_long_as_its_asynchronous_spell() -> None:
    told = renew_lease(opened("async"), "a", 1, Beat(57, 5_000, 1.0))
    assert told.beat == Beat(57, 5_000, 1.0)
    assert renew_lease(told, "a", 1).beat == told.beat, "a renewal that tells nothing does not unsay it"
    restarted = open_plan(begin_plan(told, "p2", "a", "restart", 5), "p2", "async")
    assert restarted.beat == told.beat
    taken = open_plan(begin_plan(told, "p2", "b", "takeover", 5, accept_data_loss=True), "p2", "async", 99)
    assert taken.beat is None, "it was another site's"
    assert resync(told, "a", 1).beat is None
    assert downgrade(resync(told, "a", 1), "a", 1, 60).beat is None


SITES = st.sampled_from(["a", "b"])


class Walk(RuleBasedStateMachine):
    """Both sites and stale processes of theirs call whatever they like; the twin is three variables, as in the model."""

    def __init__(self) -> None:
        super().__init__()
        self.state: PairState | None = None
        self.plans: list[tuple[str, str]] = []
        self.holder: str | None = None
        self.opened_epochs: list[int] = []
        self.given: list[int] = []
        self.mode = "sync"

    def attempt(self, change: Callable[[], PairState], legal: bool) -> bool:
        """Apply `change`; whether it changed anything. The twin says whether it may."""
        before = self.state
        try:
            after = change()
        except TwinlogError:
            assert not legal
            return False
        assert after is before or legal
        if after is before:
            return False
        self.state = after if before is None else replace(after, state_id=before.state_id + 1)
        return True

    def plan(self, likely: bool, data: st.DataObject) -> str:
        """The plan that has the pair, if that is likely wanted and there is one; else any that ever was, or none."""
        if likely and self.holder is not None:
            return self.holder
        return data.draw(st.sampled_from([*(name for name, _ in self.plans), "none"]))

    @rule(site=SITES, kind=st.sampled_from(["fitting", "fitting", *KINDS]), force=st.booleans(), loss=st.booleans())
    def begin(self, site: str, kind: str, force: bool, loss: bool) -> None:
        plan = f"p{len(self.plans)}"
        active = self.state.active if self.state else None
        if kind == "fitting":
            kind = "bootstrap" if active is None else "restart" if active == site else "takeover"
        fits = {"bootstrap": active is None, "restart": active == site}.get(kind, active not in (None, site))
        lossless = kind != "takeover" or self.mode == "sync" or loss
        foreign = self.holder is not None and dict(self.plans)[self.holder] != site
        legal = fits and lossless and (force or not foreign)
        if self.attempt(lambda: begin_plan(self.state, plan, site, kind, 1, supersede=force, accept_data_loss=loss), legal):
            self.plans.append((plan, site))
            self.holder = plan
            assert self.state is not None
            assert self.state.switching is not None
            self.given.append(self.state.switching.epoch)

    @rule(data=st.data(), mode=st.sampled_from(["sync", "async"]), likely=st.sampled_from([True, True, True, False]))
    def open(self, data: st.DataObject, mode: str, likely: bool) -> None:
        plan = self.plan(likely, data)
        site = dict(self.plans).get(plan)
        active = self.state.active if self.state else None
        legal = plan == self.holder and not (active == site and self.mode == "async" and mode == "sync")
        if self.attempt(lambda: open_plan(self.state, plan, "sync" if mode == "sync" else "async", 7), legal):
            assert self.state is not None
            assert self.state.active == site
            self.opened_epochs.append(self.state.epoch)
            self.holder, self.mode = None, mode

    @rule(data=st.data(), likely=st.booleans())
    def abandon(self, data: st.DataObject, likely: bool) -> None:
        plan = self.plan(likely, data)
        was = self.holder
        if self.attempt(lambda: abandon_plan(self.state, plan), self.state is not None and plan == was):
            self.holder = None

    @rule(site=SITES, back=st.sampled_from([0, 0, 0, 1, 2]), what=st.sampled_from(["downgrade", "resync", "renew"]))
    def act_as_active(self, site: str, back: int, what: str) -> None:
        epoch = (self.opened_epochs[-1] if self.opened_epochs else 0) - back
        at_all = bool(self.opened_epochs) and back == 0 and self.holder is None
        legal = at_all and self.state is not None and self.state.active == site
        change = {
            "downgrade": lambda: downgrade(self.state, site, epoch, 3),
            "resync": lambda: resync(self.state, site, epoch),
            "renew": lambda: renew_lease(self.state, site, epoch),
        }[what]
        if self.attempt(change, legal) and what != "renew":
            self.mode = "async" if what == "downgrade" else "sync"

    @invariant()
    def agrees_with_the_twin(self) -> None:
        state = self.state
        assert self.opened_epochs == sorted(set(self.opened_epochs)), "an epoch opens at most once, in growing order"
        assert self.given == sorted(set(self.given)), "an epoch is given once, in growing order"
        if state is None:
            return
        assert (state.switching.plan_id if state.switching else None) == self.holder
        assert state.mode == self.mode
        assert state.epoch <= state.epoch_allocated
        assert state.switching is None or state.epoch < state.switching.epoch <= state.epoch_allocated
        assert (state.mode == "async") == (state.async_since_seq is not None)


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_plan_resumes_only_while_the_plan_that_it_continues_has_the_pair() -> None:
    begun = begin_plan(opened(), "p2", "b", "takeover", 5)
    assert begin_plan(begun, "p3", "b", "takeover", 6, continues="p2").switching is not None
    for state in (begin_plan(begun, "p4", "b", "takeover", 6), abandon_plan(begun, "p2"), opened()):
        with pytest.raises(PlanSuperseded, match="its operation does not resume"):
            begin_plan(state, "p3", "b", "takeover", 7, continues="p2")


def test_an_asynchronous_spell_begins_without_a_beat() -> None:
    told = renew_lease(opened(), "a", 1, Beat(committed_seq=30, wall_ms=1, lease_s=1.0))
    assert downgrade(told, "a", 1, 40).beat is None
    assert downgrade_closed(told, "a", 40, {1}).beat is None


def test_a_closed_active_whose_disk_has_no_epoch_is_not_downgraded() -> None:
    for epochs in (set(), {2}):
        with pytest.raises(Refused, match="its disk was replaced"):
            downgrade_closed(opened(), "a", 40, epochs)
