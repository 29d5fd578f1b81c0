"""The availability monitor's judgement: what it advises on whose word, and that it neither flaps nor acts where it must not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from remote_log.replication.messages import StatusReply
from switchover.facts import SiteFacts
from switchover.monitor.findings import AdviceKind, Thresholds
from switchover.monitor.judgement import Advice, MonitorState, step, wants_checks_of
from switchover.monitor.views import Answers, Observation, RoleChange, SiteView, TakeoverReadiness
from switchover.register.port import PairState, Switching

SETTINGS = Thresholds(
    look_after_s=4, resync_after_s=6, degrade_after_s=6, failover_after_s=8, gap_max_s=5,
    quiet_after_action_s=60, actions_max=2, actions_window_s=600,
)
REGISTER = PairState(state_id=7, epoch=3, epoch_allocated=3, active="a", opened_by="p3")
ACTIVE = SiteFacts(
    site="a", pair="shop", release="1", wall_ms=0, lease_s=1.0, drift_margin=0.2, initial_active="a", policy="available",
    role="ACTIVE", epoch=3, mode="sync", applied_seq=90, durable_seq=90, committed_seq=90, lease_left_s=0.7, resyncs=True,
    serves_reads=True, serves_writes=True,
)
STANDBY = changed(
    ACTIVE, site="b", role="STANDBY", serves_reads=False, serves_writes=False, lease_left_s=None, heard_s=0.1,
    remote_log_mark=100, resyncs=None,
)
HEARD_A = StatusReply(site="a", role="ACTIVE", epoch=3, mode="sync", applied_seq=90, durable_seq=90, committed_seq=90,
                      waiting_for="")
HEARD_B = changed(HEARD_A, site="b", role="STANDBY")
VIEW_A = SiteView(own=ACTIVE, peer=HEARD_B, register=REGISTER)
VIEW_B = SiteView(own=STANDBY, peer=HEARD_A, register=REGISTER)
ALONE_B = changed(VIEW_B, peer=None, peer_error="refused")
B_CAN = TakeoverReadiness("b", True)


def of(view: SiteView, *, peer: Any = "as it is", register: Any = "as it is", **own: Any) -> SiteView:
    return changed(
        view, own=changed(view.own, **own), peer=view.peer if peer == "as it is" else peer,
        register=view.register if register == "as it is" else register,
    )


def watch(
    a: SiteView | None, b: SiteView | None, *, readiness: TakeoverReadiness | None = None, act: bool = False, seconds: int = 30,
    settings: Thresholds = SETTINGS, state: MonitorState | None = None, begin_s: float = 0.0,
) -> tuple[list[Advice], MonitorState]:
    """The same look each second."""
    state, told = state or MonitorState(), []
    for second in range(seconds):
        seen = Observation(begin_s + second, {"a": a, "b": b}, {"a": "no route", "b": "no route"})
        if wants_checks_of(state, seen) is not None:
            seen = replace(seen, readiness=readiness)
        state, advice = step(settings, state, seen, act=act)
        told.append(advice)
    return told, state


def last(a: SiteView | None, b: SiteView | None, **given: Any) -> Advice:
    return watch(a, b, **given)[0][-1]


def test_a_whole_pair_has_nothing_to_do() -> None:
    assert last(VIEW_A, VIEW_B) == Advice(AdviceKind.NOTHING, "all is well")


def test_a_silent_active_is_taken_over_from_when_the_other_site_does_not_see_it_either() -> None:
    told, _ = watch(None, ALONE_B, readiness=B_CAN, act=True)
    acted = [advice for advice in told if advice.act]
    assert [(advice.kind, advice.site, advice.held_s) for advice in acted] == [(AdviceKind.FAILOVER, "b", 8)]
    assert acted[0].evidence == ("the monitor: no route", "site b: refused", "site b: it can take over")
    assert acted[0].command == "twinlog failover --to b"
    assert all(advice.holds_in_s > 0 for advice in told[:8]), "not before it has held"


@pytest.mark.parametrize(("a", "b", "readiness", "why"), [
    pytest.param(None, VIEW_B, B_CAN, "which site b reaches", id="the other site sees it"),
    pytest.param(VIEW_A, ALONE_B, B_CAN, "which answers the monitor", id="the monitor sees it"),
    pytest.param(None, of(ALONE_B, coordinator_error="away"), B_CAN, "cut off itself", id="the other site may be cut off"),
    pytest.param(None, of(ALONE_B, coordinator_error="away", register=None), B_CAN, "is unknown", id="nobody knows who"),
    pytest.param(None, of(ALONE_B, remote_log_mark=None), B_CAN, "still writes is unknown", id="nobody reads its log"),
    pytest.param(None, ALONE_B, None, "whether site b can take over is unknown", id="its checks were not seen"),
    pytest.param(
        None, ALONE_B, TakeoverReadiness("b", False, ("mode.sync: 5 records",)), "cannot take over: mode.sync", id="it cannot"
    ),
    pytest.param(
        None, ALONE_B, TakeoverReadiness("a", True), "whether site b can take over is unknown", id="checks of another site"
    ),
    pytest.param(None, None, B_CAN, "no site answers", id="nobody answers"),
    pytest.param(None, of(ALONE_B, register=changed(REGISTER, switching=Switching("p4", "b", 4, "takeover", 0))), B_CAN,
                 "a role change has the pair", id="a plan has the pair"),
])
def test_without_two_witnesses_and_an_able_site_it_is_a_look(
    a: SiteView | None, b: SiteView | None, readiness: TakeoverReadiness | None, why: str
) -> None:
    told, _ = watch(a, b, readiness=readiness, act=True)
    assert {advice.kind for advice in told} == {AdviceKind.LOOK}
    assert why in " ".join((told[-1].reason, *told[-1].also))
    assert not any(advice.act for advice in told)


def test_where_no_site_answers_the_command_starts_a_gateway() -> None:
    advice = last(None, None)
    assert advice.command == "twinlog serve --config SITE.toml"
    assert "start the gateways of both" in advice.reason


def test_a_coordinator_that_is_away_does_not_hide_who_is_the_active() -> None:
    away = {"coordinator_error": "no route", "register": None}
    for b in (of(VIEW_B, **away), None):
        advice = last(of(VIEW_A, **away), b)
        assert "site a is ACTIVE; no site that answers reaches the coordinator; bring it back" in advice.reason
    stuck = of(VIEW_A, **away, lease_left_s=0.7, serves_writes=False, serves_not="writes wait")
    assert "site a is ACTIVE, and takes no writes: writes wait" in last(stuck, None).reason


@pytest.mark.parametrize("role", ["STANDBY", "CLOSED"])
def test_an_active_that_is_lost_with_the_coordinator_is_followed_by_a_command_that_shows_the_risk(role: str) -> None:
    lost = of(ALONE_B, coordinator_error="away", register=None, met_active="a", role=role)
    told, _ = watch(None, lost, act=True)
    assert (told[-1].kind, told[-1].command) == (AdviceKind.LOOK, "twinlog validate --for failover --to b")
    way = "`twinlog failover --to b --without-coordinator`"
    assert f"if both are lost for good, and site a does not run: {way}" in told[-1].reason
    assert not any(advice.act for advice in told)
    for other in (of(lost, register_home="b"), of(lost, met_active=None)):
        assert "--without-coordinator" not in last(None, other).reason, "there is no coordinator, or no known active"
    assert "--without-coordinator" not in last(None, of(lost, peer=HEARD_A)).reason, "it runs"


def test_where_a_site_keeps_the_register_itself_nobody_is_asked_to_start_the_other_one_with_the_old_coordinator() -> None:
    register = changed(REGISTER, active="b", epoch=1002, mode="async")
    alone = of(ALONE_B, role="DOWNGRADE_ACTIVE", mode="async", stands_in=True, serves_reads=True, serves_writes=True,
               lease_left_s=0.7, resyncs=True, register=register)
    told, _ = watch(None, alone, act=True)
    assert (told[-1].site, told[-1].command) == ("b", "twinlog serve --config SITE.toml")
    assert "`twinlog failover --to b --accept-data-loss --count unknown`, then start site a" in told[-1].reason
    assert "do not start site a with the old one" in told[-1].reason
    assert not any("start its gateway" in text for text in (told[-1].reason, *told[-1].also))
    assert not any(advice.act for advice in told)


@pytest.mark.parametrize("moves", [
    lambda second: of(ALONE_B, remote_log_mark=100 + second),
    lambda second: of(ALONE_B, register=changed(REGISTER, mode="async", lease_beats=second)),
])
def test_an_active_that_still_writes_lives(moves: Any) -> None:
    state, told = MonitorState(), []
    for second in range(30):
        seen = Observation(float(second), {"a": None, "b": moves(second)}, {"a": "no route"}, B_CAN)
        state, advice = step(SETTINGS, state, seen, act=True)
        told.append(advice)
    assert not any(advice.act for advice in told)
    assert "it lives and writes" in told[-1].reason


def test_a_failover_that_ripens_is_watched_and_no_lesser_finding_is_advised_in_its_place() -> None:
    """The standby hears nothing, and that has held for long: who asks at night must not be told to look at the shipping."""
    silent = of(ALONE_B, heard_s=60.0)
    told, _ = watch(None, silent, readiness=B_CAN, seconds=9)
    assert [(advice.kind, advice.holds_in_s > 0) for advice in told] == [(AdviceKind.FAILOVER, True)] * 8 + [
        (AdviceKind.FAILOVER, False)
    ]
    assert "nothing is shipped to site b" in told[5].also


def test_a_failover_that_is_barred_ripens_too_and_no_lesser_finding_is_advised_in_its_place() -> None:
    """The standby has restarted since, and follows nobody: that is what stands out at once, and it has no way out."""
    closed = of(ALONE_B, role="CLOSED", serves_reads=False)
    barred = TakeoverReadiness("b", False, ("mode.sync: the active acknowledged asynchronously",))
    told, _ = watch(None, closed, readiness=barred, settings=replace(SETTINGS, look_after_s=0))  # as `twinlog advise` asks
    assert {(advice.id, advice.site) for advice in told} == {("blocked-silent-a-3", "b")}
    assert (told[0].holds_in_s > 0, told[-1].holds_in_s > 0) == (True, False)
    assert told[-1].command == "twinlog validate --for failover --to b"
    assert any("site b follows nobody" in one for one in told[-1].also)


def test_a_register_that_went_back_is_named_with_the_command_and_nobody_acts() -> None:
    said = "the register went back: it is at 2 (epoch 1), this site has met 4 (epoch 3)"
    closed = of(VIEW_A, register=None, role="CLOSED", serves_reads=False, serves_writes=False, lease_left_s=None,
                register_went_back=said, met_epoch=3, met_active="a")
    told, _ = watch(closed, of(VIEW_B, register=None, register_went_back=said, met_epoch=3, met_active="a"), act=True)
    assert (told[-1].kind, told[-1].site) == (AdviceKind.LOOK, "a")
    assert said in told[-1].reason
    assert told[-1].command == "twinlog failover --to a --accept-data-loss --count unknown"
    assert not any(advice.act for advice in told)


def test_a_register_that_has_lost_the_pair_is_named_with_the_command_and_nobody_acts() -> None:
    lost = {"register": None, "forgotten_epoch": 3, "met_epoch": 3, "met_active": "a"}
    for a, b in ((of(VIEW_A, **lost), of(VIEW_B, **lost)), (None, of(VIEW_B, **lost))):
        told, _ = watch(a, b, readiness=B_CAN, act=True)
        assert (told[-1].kind, told[-1].site) == (AdviceKind.LOOK, "a")
        assert "has no record of this pair" in told[-1].reason
        assert told[-1].command == "twinlog failover --to a --accept-data-loss --count unknown"
        assert not any(advice.act for advice in told)


@pytest.mark.parametrize("known", [{"forgotten_epoch": 3}, {"register_went_back": "the register went back: it is at 2"}])
def test_a_pair_begins_anew_with_the_site_that_answers_and_the_last_active_is_wanted_first(known: dict[str, Any]) -> None:
    """The command goes to the site that it names: one that answers nobody helps nobody."""
    told, _ = watch(None, of(ALONE_B, register=None, met_epoch=3, met_active="a", **known), readiness=B_CAN, act=True)
    assert (told[-1].kind, told[-1].site) == (AdviceKind.LOOK, "b")
    assert told[-1].command == "twinlog failover --to b --accept-data-loss --count unknown"
    assert f"`{told[-1].command}`" in told[-1].reason
    assert "site a, the last active that is known, answers nobody: start its gateway first" in told[-1].reason
    assert {"the monitor: no route", "site b: refused"} <= set(told[-1].evidence)
    assert not any(advice.act for advice in told)


CLOSED_A = of(VIEW_A, role="CLOSED", serves_reads=False, serves_writes=False, lease_left_s=None, waiting_for="a plan")


def planned(view: SiteView, site: str, kind: str) -> SiteView:
    return of(view, register=changed(REGISTER, switching=Switching("p4", site, 4, kind, 0)))


@pytest.mark.parametrize("a", [CLOSED_A, VIEW_A])
def test_a_role_change_whose_site_is_gone_is_ended_by_a_failover_back(a: SiteView) -> None:
    told, _ = watch(planned(of(a, peer=None), "b", "switchover"), None, act=True)
    assert (told[-1].kind, told[-1].command) == (AdviceKind.LOOK, "twinlog failover --to a")
    assert "which has the pair for its switchover, answers nobody" in told[-1].reason
    assert not any(advice.act for advice in told)


def test_a_role_change_that_waits_for_the_operator_is_ended_by_a_failover_back_while_the_old_active_answers() -> None:
    waits = {"role": "CLOSED", "waiting_for": "the operator: switchover to b stopped half-way"}
    a, b = planned(CLOSED_A, "b", "switchover"), planned(of(VIEW_B, peer=None, **waits), "b", "switchover")
    told, _ = watch(a, b, act=True)
    assert (told[-1].kind, told[-1].command) == (AdviceKind.LOOK, "twinlog failover --to a")
    assert "waits for the operator: switchover to b stopped half-way" in told[-1].reason
    for other, command in ((watch(None, b), "twinlog history"), (watch(a, changed(b, running="op-1")), "twinlog history op-1")):
        assert other[0][-1].command == command


def test_a_restart_that_does_not_come_to_its_end_does_not_hide_that_the_active_serves_nobody() -> None:
    a, b = planned(CLOSED_A, "a", "restart"), planned(VIEW_B, "a", "restart")
    told, _ = watch(a, b, readiness=B_CAN)
    assert (told[-1].kind, told[-1].command) == (AdviceKind.FAILOVER, "twinlog failover --to b")
    told, _ = watch(None, planned(ALONE_B, "a", "restart"), readiness=B_CAN)
    assert (told[-1].kind, told[-1].command) == (AdviceKind.FAILOVER, "twinlog failover --to b")
    told, _ = watch(changed(a, running="op-1"), b, readiness=B_CAN)
    assert "a role change has the pair: restart to a" in told[-1].reason


def test_a_closed_active_beside_a_site_that_is_lost_with_its_dfs_is_opened_by_a_degrade() -> None:
    told, _ = watch(of(CLOSED_A, peer=None, peer_dfs_error="no answer"), None, act=True)
    assert (told[-1].kind, told[-1].command) == (AdviceKind.LOOK, "twinlog degrade")
    told, _ = watch(of(CLOSED_A, peer_dfs_error="no answer"), VIEW_B, readiness=B_CAN)
    assert (told[-1].kind, told[-1].command) == (AdviceKind.FAILOVER, "twinlog failover --to b")


def test_silence_means_nothing_before_the_read_lease_has_run_out() -> None:
    """An idle active may append as seldom as its lease allows: it serves all the same."""
    told, _ = watch(None, of(ALONE_B, lease_s=20.0), readiness=B_CAN, act=True)
    assert [advice.held_s for advice in told if advice.act] == [24], "with the drift of its clock"


@pytest.mark.parametrize("own", [{"role": "CLOSED", "waiting_for": "room on its disk"}, {"role": "FENCED"}])
def test_an_active_that_says_itself_that_it_serves_nobody_is_taken_over_from(own: dict[str, Any]) -> None:
    closed = of(VIEW_A, lease_left_s=None, **own)
    assert last(closed, VIEW_B, readiness=B_CAN).kind is AdviceKind.FAILOVER
    through_b = of(VIEW_B, peer=changed(HEARD_A, role=own["role"]))
    assert last(None, through_b, readiness=B_CAN).kind is AdviceKind.FAILOVER, "told to the other site"


def test_an_active_that_cannot_write_its_own_log_is_taken_over_from_and_not_degraded() -> None:
    full = of(VIEW_A, lease_left_s=0.0, local_log_error="disk full: cannot create wal/000000000001-00000002")
    told, _ = watch(full, VIEW_B, act=True, readiness=B_CAN)
    assert {(one.kind, one.site) for one in told if one.act} == {(AdviceKind.FAILOVER, "b")}
    assert "its own log cannot be written; make room on its disk" in told[-1].reason
    assert AdviceKind.DEGRADE not in {one.kind for one in told}
    serving = of(full, lease_left_s=1.0, serves_writes=False, serves_not="its own log cannot be written")
    assert {one.kind for one in watch(serving, VIEW_B, act=True, readiness=B_CAN)[0]} == {AdviceKind.LOOK}


def test_an_active_without_proof_is_degraded_by_its_own_site_and_where_it_cannot_the_other_one_takes_over() -> None:
    stuck = of(VIEW_A, lease_left_s=0.0, peer_dfs_error="no space")
    told, _ = watch(stuck, VIEW_B, act=True)
    assert [(one.kind, one.site, one.held_s) for one in told if one.act] == [(AdviceKind.DEGRADE, "a", 6)]
    alone = of(stuck, coordinator_error="away", register=None)
    told, _ = watch(alone, VIEW_B, act=True, readiness=B_CAN)
    assert [(one.kind, one.site) for one in told if one.act] == [(AdviceKind.FAILOVER, "b")]


@pytest.mark.parametrize("b", [None, of(VIEW_B, register=None, coordinator_error="away", register_home="b")])
def test_an_active_whose_register_went_with_the_other_sites_dfs_is_degraded_by_an_operator(b: SiteView | None) -> None:
    gone = {"peer_dfs_error": "not mounted", "coordinator_error": "away", "register_home": "b", "met_active": "a"}
    stuck = of(VIEW_A, register=None, lease_left_s=0.0, **gone) if b is not None else of(
        VIEW_A, register=None, lease_left_s=0.0, peer=None, **gone)
    for role in ("ACTIVE", "CLOSED"):
        told, _ = watch(of(stuck, role=role), b, act=True)
        assert (told[-1].kind, told[-1].command, told[-1].site) == (AdviceKind.LOOK, "twinlog degrade", "a")
        assert not any("coordinator" in text for text in (told[-1].reason, *told[-1].also))
        assert not any(one.act for one in told)
    taken_over = of(VIEW_B, role="DOWNGRADE_ACTIVE", register=None, coordinator_error="away", register_home="b")
    assert last(stuck, taken_over).command == "twinlog status", "two would acknowledge"


@pytest.mark.parametrize(("change", "register"), [
    ({"policy": "protect"}, REGISTER), ({}, changed(REGISTER, home="b")),
])
def test_without_a_coordinator_or_the_policy_it_only_advises(change: dict[str, Any], register: PairState) -> None:
    for a, b in (
        (None, of(ALONE_B, register=register, **change)),
        (of(VIEW_A, lease_left_s=0.0, register=register, **change), of(VIEW_B, register=register, **change)),
    ):
        told, _ = watch(a, b, act=True, readiness=B_CAN)
        assert told[-1].kind in (AdviceKind.FAILOVER, AdviceKind.DEGRADE)
        assert "operator" in told[-1].acts_not
        assert not any(advice.act for advice in told)


def test_what_was_degraded_by_command_may_go_back() -> None:
    by_command = of(VIEW_A, role="DOWNGRADE_ACTIVE", mode="async", resyncs=False)
    assert last(by_command, VIEW_B).kind is AdviceKind.RESYNC
    assert last(of(by_command, resyncs=True), VIEW_B).kind is AdviceKind.NOTHING, "it goes back by itself"
    assert last(of(by_command, policy="performance"), VIEW_B).kind is AdviceKind.NOTHING, "it is wanted so"
    assert last(of(by_command, peer_dfs_error="away"), VIEW_B).kind is AdviceKind.LOOK


def test_an_active_whose_own_disk_hangs_is_looked_at() -> None:
    """Its remote appends still prove its lease: nothing but its own judgement shows that writes wait."""
    stuck = of(VIEW_A, serves_writes=False, serves_not="writes wait at site a: its disk", serves_again="see to the disk")
    advice = last(stuck, VIEW_B)
    assert (advice.kind, advice.reason, advice.evidence) == (
        AdviceKind.LOOK, "writes wait at site a: its disk", ("site a: see to the disk",)
    )


def test_errors_and_latency_are_told_of() -> None:
    state, told = MonitorState(), []
    for second in range(12):
        answers = Answers(10 * second, 5 * second, 20.0 * second)
        seen = Observation(float(second), {"a": changed(VIEW_A, answers=answers), "b": VIEW_B})
        state, advice = step(SETTINGS, state, seen, act=True)
        told.append(advice)
    assert told[-1].evidence == ("site a: 33% of its answers failed in 60 s",)
    assert told[-1].also == ("acknowledgements of site a are slow: check its disk, and the DFS of site b",)
    again = Observation(12.0, {"a": changed(VIEW_A, answers=Answers(0, 0, 0.0)), "b": VIEW_B})
    assert step(SETTINGS, state, again, act=True)[1].kind is AdviceKind.NOTHING, "the gateway began anew: nothing is known"


def _told_of_answers(totals: Iterable[tuple[int, int]]) -> list[AdviceKind]:
    """`totals`: acknowledged and failed, in each second."""
    state, told = MonitorState(), []
    for second, (acknowledged, failed) in enumerate(totals):
        answers = Answers(acknowledged, failed, 0.001 * acknowledged)
        seen = Observation(float(second), {"a": changed(VIEW_A, answers=answers), "b": VIEW_B})
        state, advice = step(SETTINGS, state, seen, act=True)
        told.append(advice.kind)
    return told


def test_one_error_on_an_idle_pair_is_no_finding() -> None:
    """A share of few answers says nothing."""
    assert set(_told_of_answers((0, int(second > 3)) for second in range(90))) == {AdviceKind.NOTHING}
    few = SETTINGS.answers_min - 1
    assert set(_told_of_answers((0, min(second, few)) for second in range(90))) == {AdviceKind.NOTHING}


def test_a_pair_with_one_request_a_second_that_all_fail_is_told_of() -> None:
    told = _told_of_answers((0, second) for second in range(90))
    assert told[SETTINGS.answers_min:] == [AdviceKind.LOOK] * (90 - SETTINGS.answers_min)


def test_errors_are_forgotten_with_their_window() -> None:
    end = 30 + round(SETTINGS.answers_window_s)
    told = _told_of_answers((0, min(second, 30)) for second in range(end + 2))
    assert (told[30], told[end + 1]) == (AdviceKind.LOOK, AdviceKind.NOTHING)


def test_a_gap_in_the_looks_begins_the_time_anew() -> None:
    _, state = watch(None, ALONE_B, readiness=B_CAN, act=True, seconds=4)
    told, _ = watch(None, ALONE_B, readiness=B_CAN, act=True, seconds=8, state=state, begin_s=100.0)
    assert not any(advice.act for advice in told)


@pytest.mark.parametrize("actor", ["monitor w (10.0.0.3)", "ann@desk (10.0.0.9)"])
def test_after_any_role_change_nothing_more_for_a_while(actor: str) -> None:
    b = changed(ALONE_B, changes=[RoleChange("op1", "switchover", actor, 10.0)])
    told, state = watch(None, b, readiness=B_CAN, act=True)
    assert not any(advice.act for advice in told)
    assert "too recent" in told[-1].acts_not
    told, _ = watch(None, ALONE_B, readiness=B_CAN, act=True, seconds=40, state=state, begin_s=30.0)
    assert [advice for advice in told if advice.act], "once the quiet time is over"


def test_a_monitor_begun_anew_counts_what_the_journals_tell_of_the_one_before() -> None:
    told_of = [RoleChange(f"op{number}", "failover", "monitor w", 100.0 * number) for number in (1, 2)]
    told, _ = watch(None, changed(ALONE_B, changes=told_of), readiness=B_CAN, act=True)
    assert "have acted 2 times" in told[-1].acts_not
    assert not any(advice.act for advice in told)


def test_what_was_asked_for_in_vain_counts_each_time() -> None:
    """The site that was to degrade has no word of it in its journal: each time the same is asked for, with the same key."""
    stuck = of(VIEW_A, lease_left_s=0.0, peer_dfs_error="no space")
    told, _ = watch(stuck, VIEW_B, act=True, seconds=400)
    acted = [advice for advice in told if advice.act]
    assert len({advice.key for advice in acted}) == 1
    assert len(acted) == SETTINGS.actions_max
    assert f"monitors have acted {SETTINGS.actions_max} times" in told[-1].acts_not


def test_two_monitors_that_see_the_same_ask_with_the_same_key() -> None:
    keys = [
        next(advice.key for advice in watch(None, ALONE_B, readiness=B_CAN, act=True, begin_s=begin_s)[0] if advice.act)
        for begin_s in (0.0, 1234.5)
    ]
    assert keys[0] == keys[1]


# ---- whatever is seen
SITE_VIEWS_A = st.sampled_from((
    None, VIEW_A, of(VIEW_A, lease_left_s=0.0), of(VIEW_A, lease_left_s=0.0, coordinator_error="away", register=None),
    of(VIEW_A, role="CLOSED", lease_left_s=None), changed(VIEW_A, peer=None, peer_error="silent"),
    of(VIEW_A, policy="protect"),
))
SITE_VIEWS_B = st.sampled_from((
    None, VIEW_B, ALONE_B, of(ALONE_B, remote_log_mark=101), of(ALONE_B, coordinator_error="away"),
    of(VIEW_B, role="CLOSED"), of(ALONE_B, policy="protect"), of(ALONE_B, register=changed(REGISTER, home="b")),
    changed(ALONE_B, running="op9"), changed(ALONE_B, changes=[RoleChange("op1", "failover", "ann", 1.0)]),
    of(VIEW_B, register=changed(REGISTER, epoch=4, state_id=9, active="b"), role="ACTIVE", lease_left_s=0.5),
    of(VIEW_B, register=changed(REGISTER, epoch=4, state_id=9, active="b"), role="CLOSED", peer=None),
))
READINESS = st.sampled_from((
    None, B_CAN, TakeoverReadiness("b", False, ("dfs: away",)), TakeoverReadiness("a", True),
    TakeoverReadiness("a", False, ("disk: full",)),
))
LOOKS = st.lists(
    st.tuples(SITE_VIEWS_A, SITE_VIEWS_B, READINESS, st.integers(1, 12), st.sampled_from((0.5, 1.0, 2.0, 9.0))), max_size=25
)


def walk(looks: list[Any], *, act: bool) -> list[tuple[float, Observation, Advice]]:
    """Each look is repeated for a while."""
    state, now_s, told = MonitorState(), 0.0, []
    for a, b, readiness, times, apart_s in looks:
        for _ in range(times):
            now_s += apart_s
            seen = Observation(now_s, {"a": a, "b": b}, {"a": "no route", "b": "no route"}, readiness)
            state, advice = step(SETTINGS, state, seen, act=act)
            told.append((now_s, seen, advice))
    return told


@given(LOOKS)
def test_it_never_acts_twice_within_the_quiet_time_nor_too_often(looks: list[Any]) -> None:
    acted = [at_s for at_s, _, advice in walk(looks, act=True) if advice.act]
    assert all(second - first >= SETTINGS.quiet_after_action_s for first, second in pairwise(acted))
    for at_s in acted:
        window = [other for other in acted if at_s - SETTINGS.actions_window_s < other <= at_s]
        assert len(window) <= SETTINGS.actions_max


@given(LOOKS)
def test_it_never_advises_a_failover_to_a_site_that_is_not_able(looks: list[Any]) -> None:
    for _, seen, advice in walk(looks, act=True):
        if advice.kind is AdviceKind.FAILOVER:
            assert seen.readiness is not None
            assert (seen.readiness.site, seen.readiness.ok) == (advice.site, True)


@given(LOOKS)
def test_it_never_advises_a_failover_on_one_view_alone(looks: list[Any]) -> None:
    for _, seen, advice in walk(looks, act=True):
        if advice.kind is AdviceKind.FAILOVER:
            lost = {"a": "b", "b": "a"}[str(advice.site)]
            view, other = seen.views[lost], seen.views[str(advice.site)]
            says_so = view is not None and (view.own.role == "CLOSED" or view.own.lease_left_s == 0.0)
            unseen = view is None and other is not None and other.peer is None and other.own.coordinator_error is None
            assert says_so or unseen or (view is None and other is not None and other.peer is not None
                                         and other.peer.role == "CLOSED")


@given(LOOKS)
def test_it_never_acts_when_it_only_observes(looks: list[Any]) -> None:
    assert not any(advice.act for _, _, advice in walk(looks, act=False))


@given(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 3)), max_size=20))
def test_what_comes_and_goes_leads_to_no_action(turns: list[tuple[int, int]]) -> None:
    """Each spell is shorter than the time that it must hold for."""
    looks = [
        part for bad, good in turns
        for part in ((None, ALONE_B, B_CAN, bad, 1.0), (VIEW_A, VIEW_B, None, good, 1.0))
    ]
    assert not any(advice.act for _, _, advice in walk(looks, act=True))
