"""The checks as judged: what each needs to be ok, what makes it fail, and that what was not seen is never called ok."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as changed

from remote_log.replication.formats import FORMATS
from switchover.facts import SiteFacts
from switchover.preflight.checks import CHECKS, KINDS, CheckFacts, judge
from switchover.preflight.loss import acceptance_problem, accepted_loss, loss_manifest
from switchover.register.port import Beat, PairState, Switching
from twinlog.errors import InvalidInput

STATE = PairState(state_id=7, epoch=3, epoch_allocated=3, active="a", opened_by="p3")
ASYNC = changed(STATE, mode="async", async_since_seq=100, beat=Beat(117, 1_700_000_000_000, 1.0))
ACTIVE = SiteFacts(
    site="a", pair="shop", release="1", wall_ms=0, lease_s=1.0, drift_margin=0.2, initial_active="a", policy="protect",
    role="ACTIVE", epoch=3, mode="sync", applied_seq=90, durable_seq=90, committed_seq=90, lease_left_s=0.7,
    free_bytes=50 << 30, opened_by="p3", open_leases=0,
)
STANDBY = changed(ACTIVE, site="b", role="STANDBY", lease_left_s=None, heard_s=0.1, open_leases=1)


def facts(kind: str = "switchover", **given: Any) -> CheckFacts:
    base = CheckFacts(kind=kind, own=STANDBY, peer_name="a", peer=ACTIVE, peer_error="", state=STATE, skew_s=0.0)
    return replace(base, **given)


def own(**given: Any) -> SiteFacts:
    return changed(STANDBY, **given)


def peer(**given: Any) -> SiteFacts:
    return changed(ACTIVE, **given)


def statuses(given: CheckFacts) -> dict[str, str]:
    return {check.id: check.status for check in judge(given)}


def test_ids_are_stable() -> None:
    """They stand in people's scripts: whoever changes one breaks them."""
    assert [row.id for row in CHECKS] == [
        "coordinator.answers", "coordinator.same", "coordinator.knows-pair", "coordinator.plan-running", "pair.active",
        "pair.config-agrees", "pair.releases-fit",
        "peer.answers", "peer.role", "site.role", "standby.base-complete", "mode.sync", "replication.lag",
        "read-lease.proved", "remote-log.found", "remote-log.readable", "remote-log.open-leases", "remote-log.writable",
        "dfs.own-writable", "wal.disk-space", "clock.skew", "journal.unfinished", "audit-recent", "listeners.guarded",
    ]
    with pytest.raises(InvalidInput, match="switchover, failover, rejoin"):
        judge(facts("promotion"))


def test_a_whole_pair_is_ready_for_a_switchover() -> None:
    assert set(statuses(facts()).values()) == {"ok"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_ok_says_what_to_do(kind: str) -> None:
    """Unless it follows from another check, which says so."""
    for given in (facts(kind, peer=None, peer_error="refused"), facts(kind, state=None), facts(kind, state=ASYNC)):
        for check in judge(given):
            assert check.status in ("ok", "unknown") or check.fix, check


def test_a_silent_peer_makes_nothing_ok_that_was_not_seen() -> None:
    seen = statuses(facts("failover", peer=None, peer_error="refused", skew_s=None, own=own(free_bytes=None, open_leases=None)))
    assert {name for name, status in seen.items() if status == "unknown"} == {
        "coordinator.same", "pair.config-agrees", "pair.releases-fit", "peer.answers", "peer.role", "replication.lag",
        "remote-log.open-leases", "wal.disk-space", "clock.skew",
    }
    assert "failed" not in seen.values(), "a failover needs nothing of the lost site"
    assert statuses(facts(peer=None, peer_error="refused"))["peer.answers"] == "failed"


SWITCHING = Switching("p4", "a", 4, "restart", 0)


@pytest.mark.parametrize(("kind", "given", "check", "status"), [
    ("switchover", {"state": None, "own": own(coordinator_error="away")}, "coordinator.answers", "failed"),
    ("failover", {"own": own(coordinator_error="away")}, "coordinator.answers", "warning"),
    ("failover", {"own": own(site="a", coordinator_error="away")}, "coordinator.answers", "failed"),
    ("failover", {"unseen": "a"}, "coordinator.answers", "unknown"),
    ("switchover", {"own": own(coordinator_error="away")}, "coordinator.answers", "failed"),
    ("switchover", {"peer": peer(opened_by="p9")}, "coordinator.same", "failed"),
    ("failover", {"peer": peer(opened_by="p9")}, "coordinator.same", "warning"),
    ("switchover", {"peer": peer(coordinator_error="away")}, "coordinator.same", "warning"),
    ("switchover", {"state": changed(STATE, switching=SWITCHING)}, "coordinator.plan-running", "failed"),
    ("failover", {"state": changed(STATE, switching=SWITCHING)}, "coordinator.plan-running", "warning"),
    ("switchover", {"state": changed(STATE, switching=changed(SWITCHING, site="b"))}, "coordinator.plan-running", "warning"),
    ("switchover", {"state": changed(STATE, active=None)}, "pair.active", "failed"),
    ("switchover", {"state": changed(STATE, active="b")}, "pair.active", "failed"),
    ("rejoin", {"state": changed(STATE, active="b")}, "pair.active", "failed"),
    ("failover", {"state": changed(STATE, active="b")}, "pair.active", "ok"),
    ("switchover", {"peer": peer(pair="other")}, "pair.config-agrees", "failed"),
    ("failover", {"peer": peer(lease_s=5.0)}, "pair.config-agrees", "failed"),
    ("switchover", {"peer": peer(lease_s=1.1)}, "pair.config-agrees", "warning"),
    ("switchover", {"peer": peer(release="2")}, "pair.releases-fit", "warning"),
    ("switchover", {"peer": peer(formats={**FORMATS, "frames": (1, 2)})}, "pair.releases-fit", "warning"),
    ("switchover", {"peer": peer(formats={**FORMATS, "frames": (2, 2)})}, "pair.releases-fit", "failed"),
    ("rejoin", {"own": own(formats_written={"frames": 2})}, "pair.releases-fit", "failed"),
    ("failover", {"peer": peer(formats={**FORMATS, "frames": (2, 2)})}, "pair.releases-fit", "warning"),
    ("failover", {}, "peer.answers", "warning"),
    ("switchover", {"peer": peer(role="CLOSED")}, "peer.role", "failed"),
    ("rejoin", {"peer": peer(role="DRAINING")}, "peer.role", "failed"),
    ("switchover", {"peer": peer(role="DRAINING")}, "peer.role", "ok"),
    ("switchover", {"own": own(role="CLOSED")}, "site.role", "failed"),
    ("failover", {"own": own(role="CLOSED")}, "site.role", "ok"),
    ("failover", {"own": own(role="ACTIVE")}, "site.role", "failed"),
    ("failover", {"own": own(role="ACTIVE"), "state": changed(STATE, switching=SWITCHING)}, "site.role", "ok"),
    ("rejoin", {"own": own(role="ACTIVE")}, "site.role", "failed"),
    ("failover", {"own": own(blocker="its base data is not complete")}, "standby.base-complete", "failed"),
    ("switchover", {"state": ASYNC}, "mode.sync", "warning"),
    ("switchover", {"own": own(heard_s=60.0)}, "replication.lag", "warning"),
    ("switchover", {"peer": peer(committed_seq=1_000_000)}, "replication.lag", "warning"),
    ("switchover", {"peer": peer(lease_left_s=0.0)}, "read-lease.proved", "warning"),
    ("failover", {"own": own(remote_log_missing="the claim 3")}, "remote-log.found", "failed"),
    ("failover", {"own": own(remote_log_missing="the claim 3"), "accepted": "unknown"}, "remote-log.found", "warning"),
    ("failover", {"own": own(own_dfs_error="away")}, "remote-log.found", "unknown"),
    ("failover", {"own": own(remote_log_unreadable="no key k1")}, "remote-log.readable", "failed"),
    ("switchover", {"own": own(remote_log_unreadable="no key k1")}, "remote-log.readable", "failed"),
    ("failover", {"own": own(own_dfs_error="away")}, "remote-log.readable", "unknown"),
    ("failover", {"own": own(open_leases=9)}, "remote-log.open-leases", "warning"),
    ("switchover", {"own": own(peer_dfs_error="away")}, "remote-log.writable", "failed"),
    ("failover", {"own": own(peer_dfs_error="away")}, "remote-log.writable", "warning"),
    ("rejoin", {"peer": peer(peer_dfs_error="away")}, "remote-log.writable", "warning"),
    ("failover", {"own": own(own_dfs_error="away")}, "dfs.own-writable", "failed"),
    ("rejoin", {"own": own(own_dfs_error="away")}, "dfs.own-writable", "warning"),
    ("switchover", {"own": own(free_bytes=1 << 20)}, "wal.disk-space", "failed"),
    ("failover", {"own": own(free_bytes=1 << 20)}, "wal.disk-space", "warning"),
    ("switchover", {"peer": peer(free_bytes=1 << 20)}, "wal.disk-space", "warning"),
    ("switchover", {"skew_s": -7.0}, "clock.skew", "warning"),
    ("switchover", {"unfinished": "failover id-1 failed"}, "journal.unfinished", "warning"),
    ("failover", {"own": own(audit_recent_s=60.0)}, "audit-recent", "warning"),
    ("switchover", {"own": own(audit_recent_s=60.0, wall_ms=100_000, last_good_audit_ms=39_000)}, "audit-recent", "warning"),
    ("switchover", {"own": own(audit_recent_s=60.0, wall_ms=100_000, last_good_audit_ms=41_000)}, "audit-recent", "ok"),
    (
        "switchover", {"own": own(audit_recent_s=60.0, wall_ms=100_000), "peer": peer(last_good_audit_ms=90_000)},
        "audit-recent", "ok",
    ),
    ("failover", {"peer": peer(notices="insecure = true")}, "listeners.guarded", "warning"),
    ("rejoin", {"own": own(notices="insecure = true")}, "listeners.guarded", "warning"),
    ("switchover", {"peer": None}, "listeners.guarded", "ok"),
])
def test_each_check(kind: str, given: dict[str, Any], check: str, status: str) -> None:
    assert statuses(facts(kind, **given))[check] == status


# ---- what a forced failover may lose
def manifest(state: PairState, growing: bool = False, applied_seq: int = 110, applied_epoch: int = 3) -> Any:
    return loss_manifest(state, "b", applied_seq=applied_seq, applied_epoch=applied_epoch, growing=growing)


def test_a_register_without_a_record_of_the_pair_is_named_in_words() -> None:
    [seen] = [check.seen for check in judge(facts("failover", peer=peer(opened_by=None))) if check.id == "coordinator.same"]
    assert seen == "site b sees plan p3, site a sees no record of this pair"


def test_a_loss_is_counted_from_what_the_lost_active_told() -> None:
    told = manifest(ASYNC)
    assert told.records_at_risk == 7
    assert told.statement == (
        "at least 7 records up to 2023-11-14 22:13:20 UTC were logged by site a alone and have not arrived here; more may have "
        "followed for up to 1 s"
    )
    assert manifest(ASYNC, applied_seq=90).records_at_risk == 17, "up to the degrade the remote log has everything"
    assert manifest(ASYNC, applied_seq=500, applied_epoch=2).records_at_risk == 17, "an older epoch's tail says nothing"
    assert manifest(ASYNC, applied_seq=200).records_at_risk == 0


def test_a_loss_that_nobody_told_or_that_grows_is_unknown() -> None:
    for unknown in (manifest(changed(ASYNC, beat=None)), manifest(ASYNC, growing=True)):
        assert unknown.records_at_risk is None
        assert "unknown" in unknown.statement
    assert manifest(STATE) is None
    assert loss_manifest(ASYNC, "a", applied_seq=110, applied_epoch=3, growing=False) is None


@pytest.mark.parametrize(("state", "accepted", "goes"), [
    (ASYNC, 7, True), (ASYNC, 6, False), (ASYNC, 8, False), (ASYNC, "unknown", False), (ASYNC, None, False),
    (changed(ASYNC, beat=None), "unknown", True), (changed(ASYNC, beat=None), 0, False),
    (STATE, None, True), (STATE, "unknown", True), (STATE, 7, False),
])
def test_only_the_loss_that_is_shown_is_accepted(state: PairState, accepted: object, goes: bool) -> None:
    told = manifest(state)
    assert (acceptance_problem(told, accepted) is None) == goes
    given = facts("failover", state=state, peer=None, peer_error="refused", manifest=told, accepted=accepted)
    assert (statuses(given)["mode.sync"] != "failed") == goes


@pytest.mark.parametrize("given", [True, False, -1, "17", "yes", 1.5])
def test_an_acceptance_that_names_no_count_is_refused(given: object) -> None:
    with pytest.raises(InvalidInput, match="the count that the loss manifest shows"):
        accepted_loss({"accept_data_loss": given})
    assert accepted_loss({}) is None
    assert accepted_loss({"accept_data_loss": 0}) == 0


def test_a_register_that_has_forgotten_the_pair_stops_every_role_change_but_a_forced_failover() -> None:
    lost = {"state": None, "own": own(forgotten_epoch=3, opened_by=None), "peer": peer(opened_by=None, forgotten_epoch=3)}
    for kind in KINDS:
        assert statuses(facts(kind, **lost))["coordinator.knows-pair"] == "failed"
    forced = judge(facts("failover", **lost, accepted="unknown"))
    assert [check.id for check in forced if check.status == "failed"] == []
    [check] = [check for check in forced if check.id == "coordinator.knows-pair"]
    assert check.status == "warning"


@pytest.mark.parametrize(("kind", "writer", "other"), [("switchover", "b", "a"), ("failover", "b", "a"), ("rejoin", "a", "b")])
def test_the_dfs_of_the_remote_log_is_named(kind: str, writer: str, other: str) -> None:
    """Site b asks. It lies at the other site than the one that writes it: by another name the wrong DFS would be repaired."""
    [check] = [check for check in judge(facts(kind)) if check.id == "remote-log.writable"]
    assert check.seen == f"site {writer} can write it on the DFS of site {other}"
    [check] = [check for check in judge(facts(kind, own=own(peer_dfs_error="away"), peer=peer(peer_dfs_error="away")))
               if check.id == "remote-log.writable"]
    assert f"the DFS of site {other}" in check.fix


def test_a_site_that_asks_the_wrong_coordinator_must_not_begin_anew() -> None:
    wrong = facts("failover", state=None, own=own(forgotten_epoch=3, opened_by=None), accepted="unknown")
    [check] = [check for check in judge(wrong) if check.id == "coordinator.knows-pair"]
    assert (check.status, "coordinator.url of site a" in check.fix) == ("failed", True)


def test_a_register_that_went_back_stops_every_role_change_but_a_forced_failover() -> None:
    said = "the register went back: it is at 2 (epoch 1), this site has met 4 (epoch 2)"
    here = {"state": None, "own": own(register_went_back=said, forgotten_epoch=2, opened_by=None)}
    there = {"peer": peer(register_went_back=said)}  # and this site's own knowledge fits what the register says
    for given in (here, there):
        for kind in KINDS:
            assert statuses(facts(kind, **given))["coordinator.knows-pair"] == "failed"
        forced = judge(facts("failover", **given, accepted="unknown"))
        [check] = [check for check in forced if check.id == "coordinator.knows-pair"]
        assert (check.status, check.seen[: len(said)]) == ("warning", said)
    active = facts("failover", **there, own=own(role="ACTIVE", lease_left_s=0.5), accepted="unknown")
    assert statuses(active)["site.role"] == "ok", "the site that has everything begins the pair anew"
