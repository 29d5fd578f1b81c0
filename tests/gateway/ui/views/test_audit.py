"""The page of one audit: plots stay within their frame, times that cannot be are called so, and keys need a grant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.audits.notes import AuditRun, PastRun
from gateway.audits.running import RunningAudit
from gateway.ui.rendering import regions
from gateway.ui.views.audit import ResultShown, result_shown, running_shown
from gateway.ui.views.audit_plots import BARS_HEIGHT, CURVE_HEIGHT, CURVE_WIDTH, STRIP, bars_plot, pace_plot, stage_rows
from tests.gateway.ui.ui_rig import text_of
from twinlog.wire.audit_report import (
    BUCKETS_MAX,
    AuditProgress,
    Failure,
    FoundDifference,
    KeyShares,
    Pace,
    SentReport,
    Stage,
    TableCount,
)

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
NOW_MS = round((AT + timedelta(hours=1)).timestamp() * 1000)
RUN = AuditRun("1-compare", "compare", AT - timedelta(seconds=42), AT, "bad", "audit-1", 2, ["flights"], "ann@ops")
counts = st.integers(0, (1 << 63) - 1)
seconds = st.floats(0, 1e9, allow_nan=False)


def shown(run: AuditRun = RUN, report: SentReport | None = None, readable: str = "flights") -> ResultShown:
    return result_shown(PastRun(run, len(run.tables)), report, readable.__eq__, readable.__eq__, NOW_MS)


def page(result: ResultShown) -> str:
    return regions("audit.html", {"id": result.id, "running": None, "result": result})["result"]


@given(st.lists(st.lists(counts, max_size=BUCKETS_MAX), max_size=6))
def test_bars_stay_within_their_plot_and_every_difference_can_be_seen(by_kind: list[list[int]]) -> None:
    places = KeyShares("flights", {f"kind{number}": list(found) for number, found in enumerate(by_kind)})
    plot = bars_plot(places, {f"kind{number}": number for number in range(6)})
    known = [one for found in by_kind for one in found if one]
    if not known:
        assert plot is None
        return
    assert plot is not None
    assert len(plot.bars) == len(known)
    for bar in plot.bars:
        assert 0 <= bar.x < bar.x + bar.width <= 100.01
        assert -0.2 * len(by_kind) <= bar.y < bar.y + bar.height <= BARS_HEIGHT + 0.2 * len(by_kind)
        assert bar.height >= 2
    assert sum(sum(line) for _, line in plot.lines) == sum(known), "the table beside it has the same figures"


@given(st.lists(st.builds(Stage, name=st.just("digests"), took_s=seconds), max_size=32))
def test_stages_stay_on_their_strip(stages: list[Stage]) -> None:
    for row in stage_rows(stages):
        assert 0 <= row.begin <= row.begin + row.length <= STRIP + 0.2


@given(st.lists(st.builds(Pace, at_s=seconds, rows=counts), max_size=60))
def test_the_pace_stays_within_its_plot(pace: list[Pace]) -> None:
    plot = pace_plot(pace)
    if plot is not None:
        for point in plot.line.split(" "):
            x, y = map(float, point.split(","))
            assert 0 <= x <= CURVE_WIDTH
            assert 0 <= y <= CURVE_HEIGHT


def test_a_bad_comparison_leads_to_its_rows_and_to_its_repair() -> None:
    report = SentReport(
        version=1, source="a", peer="b", tables_count=1, kinds={"stale": 2}, advice={"stale": "Use `twinlog log cat`."},
        tables=[TableCount("flights", 50, 48, {"stale": 2})], differences_count=300,
        differences=[
            FoundDifference("stale", "flights", "UA,=Lg", "", "7", "6"),
            FoundDifference("stale", "flights", None, "", "7", "6"),
            FoundDifference("stale", "flights", "0xff", "", "7", "6"),
        ],
        places=[KeyShares("flights", {"stale": [0, 2]})], stages=[Stage("digests of a", 3.5)], pace=[Pace(3.5, 50)],
    )
    html = page(shown(report=report))
    assert 'href="/ui/tables/flights?key=UA%2C%3DLg"' in html
    assert html.count("/ui/tables/flights?key=") == 1, "a key that does not decode has no place in the browser"
    text = text_of(html)
    for said in ("The sites differ: 2 differences", "the first 3 of 300", "none, or too long",
                 "2 differences of flights in 1 of 2", "site a", "50 rows were looked at in 3.5 s",
                 "twinlog audit run repair --set audit=1-compare --set write=yes"):
        assert said in text or said in html, said
    hidden = page(shown(report=report, readable="other"))
    assert "UA" not in hidden
    assert "0xff" not in hidden
    assert "needs reader:flights" in hidden


@pytest.mark.parametrize(("changes", "report", "said"), [
    ({"started_at": AT + timedelta(days=1)}, None, "it ended before it began"),
    ({"finished_at": AT + timedelta(days=9000)}, None, "in the future by this site's clock"),
    ({"outcome": "failed", "differences": 0}, SentReport(version=1, failure=Failure("unavailable", "site b is gone")),
     "It could not be done"),
    ({"outcome": "failed"}, SentReport(version=1, failure=Failure("unavailable", "site b is gone")), "site b is gone"),
    ({}, None, "This site has no report of this run"),
    ({"outcome": "good", "differences": 0}, SentReport(version=1), "Both sites are equal"),
    ({"tables": [], "by": "", "barrier": None}, SentReport(version=9), "none"),
    ({"job": "log-audit"}, SentReport(version=1, differences_count=1, differences=[
        FoundDifference("gap", "", None, "wal of site a, 1.seg at 7", None, None)]), "wal of site a, 1.seg at 7"),
])
def test_whatever_is_noted_reads_well(changes: dict[str, Any], report: SentReport | None, said: str) -> None:
    assert said in text_of(page(shown(replace(RUN, **changes), report)))


def test_an_id_that_is_no_plain_name_stands_in_no_command() -> None:
    result = shown(replace(RUN, id="$(reboot)"))
    assert all("reboot" not in text for _, text in result.commands)


@pytest.mark.parametrize(("state", "progress", "level", "said"), [
    ("running", {"done": 30, "total": 40}, "info", "30 of 40 rows (75 %)"),
    ("running", {"done": 30}, "info", "30 rows"),
    ("running", {"done": 50, "total": 40, "unit": "tasks"}, "info", "50 of 40 tasks (100 %)"),
    ("silent", {}, "warn", "no report since 33 s"), ("stopped", {}, "off", "a signal stopped it"),
])
def test_one_that_runs_and_one_that_only_did(state: Any, progress: dict[str, Any], level: str, said: str) -> None:
    body = AuditProgress(job="compare", phase="<i>", elapsed_s=61.2, **progress)
    one = running_shown(RunningAudit("1-compare", body, 33.0, state))
    html = regions("audit.html", {"id": "1-compare", "running": one, "result": None})["progress"]
    assert one.level == level
    assert said in text_of(html)
    assert "&lt;i&gt;" in html
    assert (": it runs" in html) == (state == "running")
    assert one.done <= one.total or one.total == 0
