"""Looks find what the other site lacks, from acknowledgements, words and files; never more than it is."""

from __future__ import annotations

from typing import Any

from chaos.checkers import CHECKERS
from chaos.harness.honesty.known import Known
from chaos.harness.honesty.lacking import HEARD_SLACK_S, RISK_SLACK_S, Lacking
from chaos.harness.pair.files.remote_copy import RemoteCopy
from chaos.harness.pair.samples import Sample
from chaos.history.history import Copies, Limits, Opened, Quarantine, history_of
from chaos.history.lines import RiskLook
from tests.chaos.plots import Plot

LIMITS = Limits(risk_slack_s=RISK_SLACK_S, heard_slack_s=HEARD_SLACK_S)


def plot(mode: Any = "async") -> Plot:
    """Row n is acknowledged at n seconds, as sequence 10 n of epoch 1 of site a."""
    told = Plot().add(LIMITS, Opened("a", 1, 0.0, mode))
    for n in range(1, 21):
        told.write(f"k{n}", n, n - 0.5, float(n), version=10 * n, mode=mode)
    return told


def active(at_s: float, committed: int, there: int | None, mode: str = "async", **more: Any) -> Sample:
    shown = {"committed": committed, "applied": committed, "reads": True, "writes": True, "at_risk": 0, "lag_records": 0} | more
    return Sample("a", at_s, "ACTIVE", 1, mode, told_s=at_s + 0.1, there=None if there is None else RemoteCopy(there), **shown)


def standby(at_s: float, applied: int) -> Sample:
    return Sample("b", at_s, "STANDBY", 1, "async", applied=applied, durable=applied, told_s=at_s + 0.1, follows=True)


def looks(plot: Plot, *samples: Sample) -> tuple[list[RiskLook], list[Copies]]:
    return Lacking(sorted(samples, key=lambda each: each.at_s), Known(plot.history())).looks()


def test_what_was_acknowledged_before_and_is_not_there_afterwards_is_lacking() -> None:
    risks, _ = looks(plot(), active(8.0, 85, 40), standby(7.9, 20), standby(8.5, 30))
    assert [(each.records, each.lacking, each.lag, each.behind) for each in risks] == [(0, 40, 0, 50)]
    risks, _ = looks(plot(), active(8.0, 85, None), standby(8.5, 30))
    assert [(each.lacking, each.behind) for each in risks] == [(0, 50)], "what nobody could read may be there"


def test_a_site_that_runs_no_more_has_what_it_was_given_before_it_died() -> None:
    down = [Sample("b", at_s, "down", told_s=at_s) for at_s in (6.0, 6.5, 7.0, 8.2)]
    risks, _ = looks(plot(), active(6.1, 62, 0), active(8.0, 85, 0), *down, standby(12.0, 120))
    assert [(each.lacking, each.heard) for each in risks] == [(0, False), (80 - 62, False)]


def test_a_storage_that_comes_back_with_less_than_it_had_durable_says_nothing_of_the_time_before() -> None:
    """Somebody put it back, or moved it away, while the site was stopped: the active cannot know before the site says so."""
    down = [Sample("b", at_s, "down", told_s=at_s) for at_s in (6.0, 7.0, 8.0)]
    seen = [active(6.1, 62, 0), active(7.1, 72, 0)]
    risks, _ = looks(plot(), *seen, standby(5.0, 40), *down, standby(9.0, 10))
    assert [each.behind for each in risks] == [0, 70 - 62], "only what came behind its death is surely not there"
    risks, _ = looks(plot(), *seen, standby(5.0, 40), *down, standby(9.0, 40))
    assert [each.behind for each in risks] == [20, 30], "one that comes back with what was durable has lost what was not"
    risks, _ = looks(plot(), active(10.0, 85, 0), standby(5.0, 40), *down, standby(9.0, 10), standby(10.4, 12))
    assert [each.behind for each in risks] == [88], "from its first word on it counts"


def test_what_a_takeover_cut_off_was_never_there() -> None:
    cut_off = Quarantine("a", 1, 51, 85, 30.0, True)
    risks, _ = looks(plot().add(cut_off), active(8.0, 85, 85), standby(8.5, 200))
    assert [(each.lacking, each.behind) for each in risks] == [(30, 30)]


def test_an_active_that_says_so_after_another_has_opened_is_judged_elsewhere() -> None:
    later = plot().add(Opened("b", 2, 7.5, "async"))
    assert looks(later, active(8.0, 85, 0), standby(8.5, 0)) == ([], [])
    assert looks(later, active(7.4, 85, 0), standby(8.5, 0)) == ([], []), "it opened while the site was asked"


def test_what_is_shown_too_small_for_long_is_found_by_the_checker() -> None:
    told = plot()
    seen = [active(at_s / 2, 10 * (at_s // 2), 20) for at_s in range(8, 22)]
    there = [standby(at_s / 2 + 0.2, 20) for at_s in range(8, 22)]
    risks, _ = looks(told, *seen, *there)
    found = CHECKERS["at_risk"](history_of([*told.lines, *risks]))
    assert len(found) == 2
    assert "shown too few records (at risk) since 4.000 s" in found[0].sentence
    honest = [active(at_s / 2, 10 * (at_s // 2), 20, at_risk=200, lag_records=None) for at_s in range(8, 22)]
    risks, _ = looks(told, *honest, *there)
    assert not CHECKERS["at_risk"](history_of([*told.lines, *risks]))


def test_what_was_acknowledged_as_sync_is_looked_for_in_the_other_sites_files() -> None:
    told = plot("sync")
    for there, applied, is_found in ((80, 0, False), (79, 0, True), (79, 80, False)):
        _, copies = looks(told, active(8.0, 85, there, "sync"), standby(8.5, applied))
        assert bool(CHECKERS["two_copies"](history_of([*told.lines, *copies]))) == is_found, (there, applied)
    assert looks(told, active(8.0, 85, 79, "sync"))[1] == [], "the other site may have applied and trimmed it"
    assert looks(plot(), active(8.0, 85, 79, "async"), standby(8.5, 0))[1] == []
