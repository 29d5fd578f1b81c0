"""The one judgement of what a site serves: by the age of its proof and the newest words of what it depends on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.epoch.words import Words
from gateway.service.documents import ServingDocument
from gateway.site.serving_judgement import (
    COORDINATOR,
    KEYS,
    LOCAL_LOG,
    OWN_DFS,
    PEER,
    PEER_DFS,
    REGISTER,
    SETBACK_SHOWN_S,
    STALLED_S,
    STANDBY_STORAGE,
    STORAGE,
    WAY,
    Refusal,
    ServingFacts,
    judge_serving,
    site_troubles,
)
from remote_log.replication.setback import Setback
from switchover.roles.table import Role, permissions

ACTIVE = ServingFacts(
    site="a", peer="b", role=Role.ACTIVE, reason="it opened", waiting_for=None, words=Words(), needs_remote=True, lease_s=1.0,
    proof_age_s=0.2,
)
REFUSED = Refusal("its database", "`twinlog log skip`")
STANDBY = ServingFacts(site="b", peer="a", role=Role.STANDBY, reason="it follows", waiting_for=None, words=Words())


def words(*failed: str) -> Words:
    made = Words()
    for subject in failed:
        made.failed(subject, 1.0, f"{subject} is away")
    return made


def test_a_whole_site_serves_or_follows_and_has_nothing_to_say() -> None:
    assert judge_serving(ACTIVE) == ServingDocument(True, True, False)
    assert judge_serving(STANDBY) == ServingDocument(False, False, True)
    assert site_troubles(ACTIVE, judge_serving(ACTIVE)) == []


@pytest.mark.parametrize(("facts", "why", "do"), [
    (replace(ACTIVE, proof_age_s=1.0, words=words(PEER_DFS)), "peer DFS is away", "`twinlog degrade`"),
    (replace(ACTIVE, proof_age_s=1.0, words=words(LOCAL_LOG)), "log cannot be written: local log is away", "disk of site a"),
    (replace(ACTIVE, proof_age_s=1.0, words=words(STORAGE, LOCAL_LOG)), "storage failed: storage is away", "failover --to b"),
    (replace(ACTIVE, proof_age_s=1.0, words=words(PEER_DFS, LOCAL_LOG)), "peer DFS is away", "repair that DFS"),
    (replace(ACTIVE, proof_age_s=1.0, degrades=True), "nothing reaches its remote log", "by itself"),
    (replace(ACTIVE, proof_age_s=9.0, words=words(COORDINATOR)), "nor does it reach the coordinator", "failover --to b"),
    (replace(ACTIVE, proof_age_s=9.0, words=words(COORDINATOR), register_home="b"), "has the register", "degrade` opens"),
    (replace(ACTIVE, proof_age_s=9.0, words=words(COORDINATOR), register_home="a"), "register on the DFS of site a", "--to b"),
    (replace(ACTIVE, proof_age_s=9.0, needs_remote=False, words=words(COORDINATOR)), "coordinator is away", "coordinator back"),
    (replace(ACTIVE, role=Role.FENCED, proof_age_s=None), "FENCED", "`twinlog rejoin a`"),
    (replace(ACTIVE, role=Role.CLOSED, proof_age_s=None, waiting_for="the peer"), "waits for the peer", "`twinlog advise`"),
    (replace(STANDBY, words=words(STORAGE)), "storage is away", "disk"),
    (replace(STANDBY, words=words(STORAGE), refused=REFUSED), "waits for its database", "log skip"),
    (replace(STANDBY, refused=REFUSED), "waits for its database", "log skip"),
])
def test_who_serves_nobody_says_why_and_what_to_do(facts: ServingFacts, why: str, do: str) -> None:
    found = judge_serving(facts)
    assert (found.reads, found.writes, found.follows) == (False, False, False)
    assert why in str(found.why)
    assert do in str(found.do)


def test_what_the_own_storage_does_not_take_is_no_silence_of_the_active() -> None:
    silent = replace(STANDBY, heard_age_s=60.0)
    assert [one.about for one in site_troubles(silent, judge_serving(silent))] == ["active"]
    for facts in (replace(silent, words=words(STORAGE)), replace(silent, refused=Refusal("its database", "skip it"))):
        assert [one.about for one in site_troubles(facts, judge_serving(facts)) if one.about != STORAGE] == []


def test_an_answer_that_refuses_is_no_gateway_that_is_away() -> None:
    for answers, do in ((False, "gateway of site b, the network, and peer.url of site a"), (True, "what that answer names")):
        facts = replace(ACTIVE, words=words(PEER), peer_answers=answers)
        [trouble] = site_troubles(facts, judge_serving(facts))
        assert do in trouble.do
        assert ("gateway" in trouble.do) is not answers


def test_writes_that_wait_in_vain_are_not_served_and_reads_are() -> None:
    stuck = replace(ACTIVE, waiting_age_s=STALLED_S, words=words(LOCAL_LOG))
    found = judge_serving(stuck)
    assert (found.reads, found.writes) == (True, False)
    assert "local log is away" in str(found.why)
    assert judge_serving(replace(stuck, waiting_age_s=STALLED_S - 0.1)).writes
    draining = judge_serving(replace(ACTIVE, role=Role.DRAINING))
    assert (draining.reads, draining.writes) == (True, False)


def test_an_error_is_over_with_the_next_success() -> None:
    made = words(OWN_DFS, PEER)
    assert [one.about for one in site_troubles(replace(ACTIVE, words=made), judge_serving(ACTIVE))] == [OWN_DFS, PEER]
    made.answered(OWN_DFS, 1.0)  # at the same moment, and later
    assert [subject for subject, _ in made.errors()] == [PEER]
    made.failed(OWN_DFS, 2.0, "again")
    assert made.of(OWN_DFS).error == "again"
    assert (made.of(OWN_DFS).answered_s, made.of(OWN_DFS).failed_s) == (1.0, 2.0)


def test_work_that_fails_and_segments_that_are_damaged_are_findings_with_a_way_out() -> None:
    facts = replace(ACTIVE, work=(("trimming", "no list"),), damaged=("file x at 17",))
    found = site_troubles(facts, judge_serving(facts))
    assert [(one.about, one.error) for one in found] == [("trimming", "no list"), ("damaged segment", "file x at 17")]
    assert "restart the gateway of site a" in found[1].do
    silent = replace(STANDBY, heard_age_s=60.0)
    assert [one.about for one in site_troubles(silent, judge_serving(silent))] == ["active"]


def test_a_standby_s_storage_that_went_back_is_shown_while_it_lacks_something_and_for_a_while_after() -> None:
    lacks = replace(ACTIVE, setback=Setback(120, 100, 5.0), setback_age_s=1e6)
    (trouble,) = site_troubles(lacks, judge_serving(lacks))
    assert (trouble.about, "up to 120, and then held only 100" in trouble.seen) == (STANDBY_STORAGE, True)
    assert "sent the log" in trouble.seen
    assert "keep site a running" in trouble.do
    assert "base data" in site_troubles(replace(lacks, needs_base=True), judge_serving(lacks))[0].seen
    over = replace(lacks, setback=Setback(120, 100, 5.0, is_over=True), setback_age_s=1.0)
    assert "it has everything again" in site_troubles(over, judge_serving(over))[0].seen
    assert site_troubles(replace(over, setback_age_s=SETBACK_SHOWN_S), judge_serving(over)) == []


def test_a_standby_that_cannot_ask_the_active_is_not_whole_though_it_is_shipped_to() -> None:
    """A link that is cut one way: the advice and the status say the same."""
    cut = replace(STANDBY, heard_age_s=0.1, words=words(WAY))
    assert [(one.about, one.error) for one in site_troubles(cut, judge_serving(cut))] == [(WAY, "way is away")]
    silent = replace(cut, heard_age_s=60.0)
    assert [(one.about, one.error) for one in site_troubles(silent, judge_serving(silent))] == [("active", "way is away")]
    assert site_troubles(replace(ACTIVE, words=words(WAY)), judge_serving(ACTIVE)) == [], "an active ships, and hears by that"


SUBJECTS = (OWN_DFS, PEER_DFS, COORDINATOR, PEER, WAY, STORAGE, LOCAL_LOG, KEYS)


@given(
    st.sampled_from(list(Role)), st.none() | st.floats(0, 10), st.floats(0, 10), st.booleans(), st.booleans(),
    st.lists(st.sampled_from(SUBJECTS)),
)
def test_nothing_is_served_without_a_proof_and_what_is_not_served_has_a_reason_and_a_way_out(
    role: Role, proof_age_s: float | None, waiting_age_s: float, needs_remote: bool, degrades: bool, failed: list[str]
) -> None:
    facts = replace(
        ACTIVE, role=role, proof_age_s=proof_age_s, waiting_age_s=waiting_age_s, needs_remote=needs_remote, degrades=degrades,
        words=words(*failed),
    )
    found = judge_serving(facts)
    proved = proof_age_s is not None and proof_age_s < facts.lease_s
    assert not (found.reads or found.writes) or proved
    assert found.reads <= permissions(role).reads
    assert found.writes <= permissions(role).writes
    whole = found.writes if permissions(role).writes else found.follows
    assert whole == (found.why is None) == (found.do is None)
    for trouble in site_troubles(facts, found):
        assert trouble.do


def test_a_pair_without_a_coordinator_never_reads_of_one() -> None:
    facts = replace(ACTIVE, words=words(COORDINATOR), register_home="b")
    (trouble,) = site_troubles(facts, judge_serving(facts))
    assert trouble.seen == "site a does not reach the register on the DFS of site b"


def test_an_active_whose_register_has_lost_the_pair_serves_and_is_not_whole() -> None:
    facts = replace(ACTIVE, words=words(REGISTER))
    serving = judge_serving(facts)
    assert serving.writes
    (trouble,) = site_troubles(facts, serving)
    assert "no record of the pair" in trouble.seen
    assert trouble.do == "`twinlog advise`"


def test_a_standby_whose_register_has_lost_the_pair_follows_and_says_so() -> None:
    facts = replace(STANDBY, words=words(REGISTER))
    (trouble,) = site_troubles(facts, judge_serving(facts))
    assert trouble.seen == "the register has no record of the pair that site b follows, so site b could not take over"
    assert trouble.do == "`twinlog advise`"


def test_the_site_that_keeps_the_register_itself_never_asks_for_the_other_one_first() -> None:
    """Started too early, the other site asks the coordinator that was given up."""
    facts = replace(ACTIVE, words=words(PEER), stands_in=True)
    (trouble,) = site_troubles(facts, judge_serving(facts))
    steps = ("do not start site b with the old one", "a new, empty coordinator.url", "start site a with it",
             "`twinlog failover --to a --accept-data-loss --count unknown`", "then start site b")
    places = [trouble.do.index(step) for step in steps]
    assert places == sorted(places)
