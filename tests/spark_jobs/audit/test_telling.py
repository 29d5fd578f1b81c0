"""The report that sites get is within their bounds whatever was found, and has no rows; every release takes the note; progress
is reported while the audit runs, whatever a site answers, and once more when a signal ends it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from spark_jobs.audit import reporting as room
from spark_jobs.audit.gateways import Gateways
from spark_jobs.audit.progress import Steps
from spark_jobs.audit.reporting import progress_of, reporting
from spark_jobs.audit.telling import NOT_OWN, note_of, report_of
from spark_jobs.job import TableTally
from tests.processes import wait_for
from tests.spark_jobs.audit.stub_sites import StubPair
from twinlog.wire.audit_report import REPORT_BYTES_MAX, SentReport, decode_report, encoded_report

SUMMARY: dict[str, Any] = {
    "id": "1-compare", "job": "compare", "outcome": "bad", "error": None, "findings": 3, "kinds": {"stale": 3},
    "advice": {"stale": "Treat it as missing."}, "counters": {"GOODROWS": 4}, "tables": ["t"], "remarks": ["r"],
    "barrier": {"name": "audit-1"}, "sites": {"a": {"role": "active"}, "b": {"role": "standby"}}, "by": "ann",
    "started_at": "2026-11-28T12:00:00Z", "finished_at": "2026-11-28T12:01:00Z", "files": [], "options": {},
}
FINDING: dict[str, Any] = {
    "kind": "stale", "table": "t", "key": b"\1", "key_text": "UA,1", "source_version": -1, "peer_version": 6,
    "source_row": '{"note": "secret"}', "peer_row": None, "range": 1,
}
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=700)
counts = st.integers(0, 1 << 62)
findings = st.fixed_dictionaries(
    {"kind": texts.filter(bool)},
    optional={"table": texts, "key_text": st.none() | texts, "site": texts, "log": texts, "segment": texts, "offset": counts,
              "source_version": st.none() | st.integers(-(1 << 63), (1 << 63) - 1), "source_row": texts},
)
tallies = st.builds(
    TableTally, name=texts.filter(bool), compared=counts, equal=counts,
    kinds=st.dictionaries(st.sampled_from(["missing", "stale"]), counts),
    places=st.dictionaries(st.sampled_from(["missing", "stale"]), st.lists(st.integers(0, 9), min_size=1, max_size=300)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(findings, max_size=110), st.lists(tallies, max_size=120),
    st.lists(st.tuples(texts.filter(bool), st.floats(0, 1e6)), max_size=40),
    st.lists(st.tuples(st.floats(0, 1e6), counts), max_size=200), st.lists(texts, max_size=30),
)
def test_whatever_was_found_the_sites_take_the_report(
    found: list[dict[str, Any]], counted: list[TableTally], stages: list[tuple[str, float]], pace: list[tuple[float, int]],
    remarks: list[str],
) -> None:
    report = report_of({**SUMMARY, "findings": len(found), "remarks": remarks}, found, counted, stages, pace)
    document = encoded_report(report)
    assert len(document) <= REPORT_BYTES_MAX
    assert decode_report(document) == report
    assert (report.differences_count, report.tables_count) == (len(found), len(counted))
    assert [one.kind for one in report.differences] == [one["kind"][:40] for one in found][: len(report.differences)]


def test_a_report_has_keys_and_no_row() -> None:
    report = report_of(SUMMARY, [FINDING] * 3, [TableTally("t", 7, 4, {"stale": 3}, {"stale": [0] * 70 + [3]})], [], [])
    document = encoded_report(report).decode()
    assert "secret" not in document
    assert "UA,1" in document
    assert (report.differences[0].source_version, report.differences[0].peer_version) == (str((1 << 64) - 1), "6")
    assert (report.source, report.peer) == ("a", "b")
    assert (len(report.places[0].kinds["stale"]), report.places[0].kinds["stale"][-1]) == (50, 3)


@pytest.mark.parametrize(("is_own", "said"), [(True, "row UA,1 broke"), (False, NOT_OWN)])
def test_the_words_of_an_error_that_is_not_its_own_stay_in_the_folder(is_own: bool, said: str) -> None:
    failed = {**SUMMARY, "outcome": "failed", "error": {"code": "error", "message": "row UA,1 broke"}, "sites": {}}
    report = report_of(failed, [], [], [("starting Spark", 3.0)], [], is_own_error=is_own)
    assert report.failure is not None
    assert report.failure.message == said


def test_a_note_has_the_members_of_the_first_release_and_no_other() -> None:
    assert note_of(SUMMARY).keys() == {
        "id", "job", "barrier", "started_at", "finished_at", "outcome", "differences", "tables", "by",
    }


# ---- progress
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
        assert gateways.tell({"id": ID}, SentReport(version=1, source="a")) == {}
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
