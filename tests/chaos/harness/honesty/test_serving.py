"""A site's word of itself beside what is known afterwards: who had opened, which mode held, what clients had been told."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.checkers.violation import Violation
from chaos.harness.honesty.known import Known
from chaos.harness.honesty.serving import at_rest, check, otherwise
from chaos.harness.pair.samples import Sample
from chaos.history.history import Limits, ModeRecorded, Opened
from tests.chaos.plots import Plot

BEGUN = (
    Limits(mode_slack_s=2.0), Opened("a", 1, 1.0, "sync"), ModeRecorded(1, "sync", 1.0), Opened("b", 2, 5.0, "async"),
    ModeRecorded(2, "async", 5.0),
)
PLOT = Plot().add(*BEGUN).write("k", "x", 2.0, 3.0, version=40)


def says(site: str, at_s: float, epoch: int, role: str = "ACTIVE", mode: str = "sync", **more: Any) -> Sample:
    shown = {"committed": 90, "applied": 90, "durable": 50, "reads": role.endswith("ACTIVE"), "writes": role.endswith("ACTIVE")}
    return Sample(site, at_s, role, epoch, mode, told_s=at_s + 0.1, **{**shown, "why": "it waits", **more})


def found(*samples: Sample) -> list[tuple[str, str]]:
    return [(each.checker, each.sentence) for each in check(samples, Known(PLOT.history()))]


def test_a_site_that_says_it_serves_after_a_later_opening_is_found_once() -> None:
    told = found(says("a", 4.9, 1), says("a", 5.2, 1), says("a", 5.7, 1), says("b", 6.0, 2, "DOWNGRADE_ACTIVE", "async"))
    assert told == [
        ("status", "Site a says at 5.300 s that it serves in epoch 1, and site b had opened epoch 2 before."),
    ]


def test_a_word_that_was_asked_for_before_the_opening_is_no_lie() -> None:
    assert not found(says("a", 5.0, 1))


def test_a_site_that_does_nothing_must_say_why() -> None:
    assert not found(says("a", 3.5, 1, "CLOSED"))
    assert found(says("a", 3.5, 1, "CLOSED", why="")) == [
        ("status", "Site a says at 3.600 s that it neither serves nor follows (CLOSED), and not why."),
    ]
    assert not found(says("b", 3.5, 1, "STANDBY", why="", follows=True))
    assert not found(Sample("a", 3.5, "silent")), "it says nothing"


@pytest.mark.parametrize(("sample", "is_true"), [
    (says("a", 3.5, 1), True),
    (says("a", 3.5, 1, "DOWNGRADE_ACTIVE", "async"), False),  # nothing of the kind was recorded
    (says("b", 6.0, 2, "DOWNGRADE_ACTIVE", "sync"), False),  # the epoch was never synchronous
    (says("b", 6.0, 2, "DOWNGRADE_ACTIVE", "async"), True),
    (says("a", 6.9, 2, "STANDBY", "sync", follows=True), True),  # it may not have heard of it yet
    (says("a", 7.2, 2, "STANDBY", "sync", follows=True), False),
    (says("a", 4.8, 1, "STANDBY", "async", follows=True), False),  # it knows of what is still to come
    (says("a", 7.2, 2, "CLOSED", "unknown"), True),
])
def test_the_mode_that_a_site_shows_is_one_that_the_register_held(sample: Sample, is_true: bool) -> None:
    assert ([checker for checker, _ in found(sample)] == []) == is_true


def test_an_active_shows_no_less_than_clients_were_told_before_it_was_asked() -> None:
    less = {"committed": 39, "applied": 39, "durable": 39}
    assert not found(says("a", 2.9, 1, **less)), "the acknowledgement came later"
    assert [checker for checker, _ in found(says("a", 3.0, 1, **less))] == ["positions"], "one lie of each kind"
    assert not found(says("a", 3.0, 1, committed=40, applied=40, durable=39))
    assert found(says("a", 3.0, 1, committed=50, applied=60)) == [
        ("positions", "Site a says at 3.100 s that 50 is durable, 60 applied and 50 committed."),
    ]
    assert not found(says("a", 5.5, 1, "FENCED", **less)), "it is the active no more"
    again = Plot().add(Opened("a", 1, 4.0, "sync")).write("k", "x", 2.0, 3.0, version=40).history()
    assert not check([says("a", 3.9, 1, **less)], Known(again)), "its opening was seen while it was asked"


@pytest.mark.parametrize(("at_s", "fresh_seq", "is_true"), [
    (4.0, 40, True), (4.0, 39, False), (3.9, 39, True), (4.5, None, True),
])
def test_a_standby_that_says_it_is_fresh_has_what_was_acknowledged_a_second_before(
    at_s: float, fresh_seq: int | None, is_true: bool
) -> None:
    told = found(says("b", at_s, 1, "STANDBY", follows=True, fresh_seq=fresh_seq))
    assert ([checker for checker, _ in told] == []) == is_true


def test_what_contradicts_the_status_twice_in_a_row_is_a_lie() -> None:
    wrong = {"otherwise": ("the metric twinlog_epoch is 7, and by the status 1",)}
    once = [says("a", 1.0, 1, **wrong), says("b", 1.2, 1, **wrong), says("a", 1.5, 1), says("a", 2.0, 1, **wrong)]
    assert not [*otherwise(once)], "each time it may have changed twice between the looks"
    assert [each.sentence for each in otherwise([*once, says("a", 2.5, 1, **wrong)])] == [
        "Site a does not say one thing by all ways at 2.600 s: the metric twinlog_epoch is 7, and by the status 1.",
    ]


def test_an_idle_pair_names_no_trouble_and_nothing_at_risk() -> None:
    well = says("a", 9.0, 3, at_risk=0, at_risk_exact=True, lag_records=0)
    follower = says("b", 9.0, 3, "STANDBY", follows=True)
    assert not at_rest([well, follower])
    assert "shows None records at risk (exact: None), a lag of 2." in at_rest([says("a", 9.0, 3, lag_records=2), follower])[0]
    assert at_rest([says("a", 9.0, 3, at_risk=0, at_risk_exact=True, lag_records=1), follower])
    assert at_rest([says("a", 9.0, 3, at_risk=0, at_risk_exact=False, lag_records=0), follower])
    assert at_rest([well, says("b", 9.0, 3, "STANDBY", follows=False)]) == [
        "Site b is at rest, and is STANDBY and does not follow: it waits.",
    ]
    named = says("b", 9.0, 3, "STANDBY", follows=True, troubles=("own DFS: it takes no files", "left out: 3 records"))
    assert at_rest([well, named]) == ["Site b is at rest, and names a trouble: own DFS: it takes no files."]


def test_a_lie_is_one_of_promise_8() -> None:
    assert isinstance(check([says("a", 6.0, 1)], Known(PLOT.history()))[0], Violation)
    assert check([says("a", 6.0, 1)], Known(PLOT.history()))[0].promise == "P8"
