"""An audit from its beginning to its end, with a job as small as one can be: what lies in the folder, whatever happens."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from rich.console import Console

from spark_jobs.audit.audit import JOBS, AuditPlan, Ended, JobKind, perform
from spark_jobs.audit.progress import Steps
from spark_jobs.audit.sites import AuditedPair
from spark_jobs.audit.telling import NOT_OWN
from spark_jobs.report.advice import ADVICE
from spark_jobs.report.folder import AuditFolder, find_audit, history
from spark_jobs.report.screens import show_audit, show_history
from tests.spark_jobs.audit.stub_sites import StubPair
from twinlog.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ID = "20261121T120000Z-probe"


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubPair]:
    monkeypatch.setitem(ADVICE, "probe", {"missing": "Repair it."})
    monkeypatch.setitem(JOBS, "probe", JobKind("tests.spark_jobs.audit.probe_job", True, "a test"))
    with StubPair() as opened:
        yield opened


def audit(spark: SparkSession, pair: StubPair, out: Path, **options: str) -> tuple[Ended, str]:
    """Returns the end of the audit, and its output."""
    said = io.StringIO()
    plan = AuditPlan("probe", ID, AuditedPair("demo", "a", pair.sources), out, options=options)
    steps = Steps(Console(file=said, width=100))
    return perform(plan, steps, lambda master, app, settings: nullcontext(spark)), said.getvalue()


def screen(ended: Ended) -> str:
    said = io.StringIO()
    show_audit(Console(file=said, width=100), find_audit(ended.path.parent, ended.path.name), 10)
    return said.getvalue()


def test_a_good_one(spark: SparkSession, pair: StubPair, tmp_path: Path) -> None:
    ended, said = audit(spark, pair, tmp_path / ID)
    assert ended.summary["outcome"] == "good"
    assert sorted(path.name for path in ended.path.iterdir()) == [
        "findings.parquet", "numbers.parquet", "report.html", "spark.log", "summary.json"]
    summary = json.loads((ended.path / "summary.json").read_text())
    assert summary["barrier"]["name"] == f"audit-{ID}"
    assert (summary["barrier"]["epoch"], summary["barrier"]["seq"]) == (3, 1000)
    assert [summary["sites"][name]["role"] for name in "ab"] == ["active", "standby"]
    assert summary["counters"] == {"BADROWS": 0, "SQUARES": 14}
    assert not pair.held
    told = [site.audits for site in pair.sites.values()]
    assert told[0] == told[1]
    assert [(one["id"], one["outcome"], one["differences"], one["tables"]) for one in told[0]] == [(ID, "good", 0, ["flights"])]
    (report,) = pair.sites["a"].reports
    assert pair.sites["b"].reports == [report]
    assert (report["source"], report["differences"], report["remarks"]) == ("a", [], ["a remark <b>"])
    assert [stage["name"] for stage in report["stages"]][-2:] == ["probing", "writing what was found"]
    assert [line.split(" ", 1)[1] for line in said.splitlines()] == [
        "asking both sites who is active", "starting Spark", "setting a barrier on both sites", "probing",
        "writing what was found"]
    assert "Nothing to repair" in screen(ended)


def test_findings_are_kept_whole_and_shown_in_part(spark: SparkSession, pair: StubPair, tmp_path: Path) -> None:
    ended, _ = audit(spark, pair, tmp_path / ID, findings="250")
    assert (ended.summary["outcome"], ended.summary["findings"]) == ("bad", 250)
    assert ended.summary["kinds"] == {"stale": 166, "missing": 84}
    assert pq.read_table(ended.path / "findings.parquet").column("key_text").to_pylist() == [f"key-{n}" for n in range(250)]
    page = (ended.path / "report.html").read_text()
    assert page.count("<td class=\"key\">key-") == 200
    assert "The first 200 of 250" in page
    assert "a remark &lt;b&gt;" in page
    shown = screen(ended)
    assert "84 missing  Repair it." in shown
    assert "the first 10 of 250" in shown
    assert pair.sites["b"].audits[0]["differences"] == 250
    (report,) = pair.sites["b"].reports
    assert (report["differences_count"], report["kinds"]) == (250, {"stale": 166, "missing": 84})
    assert [one["key"] for one in report["differences"]] == [f"key-{number}" for number in range(100)]


def test_one_that_fails_says_why_and_has_no_findings(spark: SparkSession, pair: StubPair, tmp_path: Path) -> None:
    ended, _ = audit(spark, pair, tmp_path / ID, fails="there is no table 'x'")
    assert ended.summary["error"] == {"code": "not-found", "message": "there is no table 'x'"}
    assert sorted(path.name for path in ended.path.iterdir()) == ["spark.log", "summary.json"]
    assert [site.audits[0]["outcome"] for site in pair.sites.values()] == ["failed", "failed"]
    failure = {"code": "not-found", "message": "there is no table 'x'"}
    assert [(site.reports[0]["failure"], site.reports[0]["differences"]) for site in pair.sites.values()] == [(failure, [])] * 2
    assert not pair.held
    assert "there is no table 'x'" in screen(ended)


def test_one_that_breaks_in_spark_is_a_failed_one(spark: SparkSession, pair: StubPair, tmp_path: Path) -> None:
    ended, _ = audit(spark, pair, tmp_path / ID, breaks="yes")
    assert ended.summary["outcome"] == "failed"
    assert "more is in spark.log" in ended.summary["error"]["message"]
    assert pair.sites["a"].reports[0]["failure"]["message"] == NOT_OWN, "Spark may quote rows"
    assert "\n" not in ended.summary["error"]["message"]


def test_a_site_that_is_down_is_a_failed_one_without_starting_spark(pair: StubPair, tmp_path: Path) -> None:
    pair.sites["b"].close()

    def started(master: str | None, app: str, settings: object) -> nullcontext[SparkSession]:
        raise AssertionError("Spark was started")

    plan = AuditPlan("probe", ID, AuditedPair("demo", "a", pair.sources), tmp_path / ID)
    ended = perform(plan, Steps(Console(file=io.StringIO())), started)
    assert "site b" in ended.summary["error"]["message"]
    assert list(ended.untold) == ["b"]
    assert pair.sites["a"].audits[0]["outcome"] == "failed"


def test_a_signal_leaves_no_folder_and_no_barrier(spark: SparkSession, pair: StubPair, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        audit(spark, pair, tmp_path / ID, stops="yes")
    assert list(tmp_path.iterdir()) == []
    assert [site.progress[-1]["is_stopped"] for site in pair.sites.values()] == [True, True]
    assert pair.sites["a"].released == [f"audit-{ID}"]
    assert not pair.held


def test_an_existing_folder_is_refused(spark: SparkSession, pair: StubPair, tmp_path: Path) -> None:
    (tmp_path / ID).mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        audit(spark, pair, tmp_path / ID)
    assert list((tmp_path / ID).iterdir()) == []


def test_a_half_written_one_is_no_audit(tmp_path: Path) -> None:
    folder = AuditFolder(tmp_path / ID)
    folder.write_summary({"outcome": "good"})
    audits, others = history(tmp_path)
    assert audits == []
    assert others == [tmp_path / f".{ID}.part"]
    with pytest.raises(NotFound, match="has no audit"):
        find_audit(tmp_path, "")
    with pytest.raises(NotFound, match="half-written"):
        find_audit(tmp_path, str(folder.part))
    with pytest.raises(ConfigError, match="another process is writing this audit, or one was killed"):
        AuditFolder(tmp_path / ID)
    folder.finish()
    assert [one.path.name for one in history(tmp_path)[0]] == [ID]


def test_an_audit_of_the_future_does_not_hide_the_newest(tmp_path: Path) -> None:
    """Forged, or made while this machine's clock was wrong."""
    for name in ("20010101T000000Z-compare", "20010102T000000Z-compare", "99991231T235959Z-compare"):
        folder = AuditFolder(tmp_path / name)
        folder.write_summary({"id": name})
        folder.finish()
    assert find_audit(tmp_path, "").path.name == "20010102T000000Z-compare"
    assert find_audit(tmp_path, "9999").path.name == "99991231T235959Z-compare"


def test_the_history_and_names_in_it(tmp_path: Path) -> None:
    for name, outcome in (("20261120T000000Z-compare", "good"), ("20261121T000000Z-compare", "bad")):
        folder = AuditFolder(tmp_path / name)
        folder.write_summary({"id": name, "outcome": outcome, "findings": 3, "took_s": 1.5, "tables": [*"abcdef"]})
        folder.finish()
    (tmp_path / "20261122T000000Z-compare").mkdir()
    (tmp_path / "20261122T000000Z-compare" / "summary.json").write_text("{")
    assert find_audit(tmp_path, "").path.name == "20261121T000000Z-compare"
    assert find_audit(tmp_path, "20261120").path.name == "20261120T000000Z-compare"
    with pytest.raises(NotFound, match="fits 2 audits"):
        find_audit(tmp_path, "202611")
    with pytest.raises(NotFound, match="the newest there: 20261120T000000Z-compare, 20261121T000000Z-compare"):
        find_audit(tmp_path, "1999")
    said = io.StringIO()
    show_history(Console(file=said, width=100), tmp_path, *history(tmp_path))
    lines = said.getvalue().splitlines()
    assert lines[1].split() == ["20261120T000000Z-compare", "good", "3", "1.5", "s", "a,", "b,", "c,", "d", "and", "2", "more"]
    assert lines[-1] == "! 20261122T000000Z-compare is half-written or cannot be read: no audit"
