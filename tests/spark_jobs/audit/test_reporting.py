"""Progress as the sites get it: while the audit runs, whatever a site answers, and once more when a signal ends it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing

import pytest
from rich.console import Console

from spark_jobs.audit import reporting as room
from spark_jobs.audit.gateways import Gateways
from spark_jobs.audit.progress import Steps
from spark_jobs.audit.reporting import progress_of, reporting
from tests.processes import wait_for
from tests.spark_jobs.audit.stub_sites import StubPair
from twinlog.wire.audit_report import AuditReport

ID = "1-compare"


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubPair]:
    monkeypatch.setattr(room, "REPORT_S", 0.01)
    with StubPair() as opened:
        yield opened


@pytest.fixture
def steps() -> Steps:
    return Steps(Console(file=io.StringIO()))


def test_both_sites_hear_of_each_phase_and_of_rows(pair: StubPair, steps: Steps) -> None:
    with reporting(pair.sources, ID, "compare", steps):
        steps.step("digests of a")
        steps.rows(30, 60)
        for site in pair.sites.values():
            assert wait_for(lambda site=site: any(one["done"] == 30 for one in site.progress))  # type: ignore[misc]
    last = pair.sites["a"].progress[-1]
    assert (last["job"], last["phase"], last["total"], last["unit"], last["is_stopped"]) == (
        "compare", "digests of a", 60, "rows", False)


def test_a_site_that_is_gone_or_older_holds_up_nobody(pair: StubPair, steps: Steps) -> None:
    pair.sites["a"].is_older = True
    pair.sites["b"].breaks_off_after = "PUT"
    with reporting(pair.sources, ID, "compare", steps):
        assert wait_for(lambda: len(pair.sites["b"].progress) > 2)
    assert pair.sites["a"].progress == []
    assert pair.sites["a"].refused == 1, "it is not asked again"


def test_a_signal_is_told(pair: StubPair, steps: Steps) -> None:
    with pytest.raises(KeyboardInterrupt), reporting(pair.sources, ID, "compare", steps):
        raise KeyboardInterrupt
    assert [site.progress[-1]["is_stopped"] for site in pair.sites.values()] == [True, True]


def test_the_report_follows_the_note_and_an_older_site_has_the_note_alone(pair: StubPair) -> None:
    pair.sites["b"].is_older = True
    with closing(Gateways(pair.sources)) as gateways:
        assert gateways.tell({"id": ID}, AuditReport(version=1, source="a")) == {}
    assert [site.audits for site in pair.sites.values()] == [[{"id": ID}]] * 2
    assert [one["source"] for one in pair.sites["a"].reports] == ["a"]
    assert pair.sites["b"].reports == []


def test_tasks_are_told_where_nobody_counts_rows_and_stages_have_their_times(steps: Steps) -> None:
    assert progress_of("compare", steps).done is None
    steps.step("digests of a")
    steps.look(3, 8)
    steps.look(0, 0)
    told = progress_of("compare", steps)
    assert (told.done, told.total, told.unit) == (3, 8, "tasks")
    steps.step("digests of b")
    assert progress_of("compare", steps).done is None
    steps.end_stage()
    assert [name for name, _ in steps.stages] == ["digests of a", "digests of b"]
    assert all(took_s >= 0 for _, took_s in steps.stages)
