"""Every kind of finding says what it means: on the page, and in docs/audits.md."""

from __future__ import annotations

from spark_jobs.compare import rows as compare_frames
from spark_jobs.log_audit import job as log_audit
from spark_jobs.reconcile import rows as reconcile_frames
from spark_jobs.report.advice import ADVICE, advice_for
from tools.sources import ROOT

PAGE = (ROOT / "docs" / "audits.md").read_text(encoding="utf-8")


def test_every_kind_has_its_advice_and_its_line() -> None:
    kinds = {"compare": {*compare_frames.KINDS, compare_frames.MISSING_TABLE, compare_frames.EXTRA_TABLE},
             "log-audit": set(log_audit.KINDS), "reconcile": {reconcile_frames.LOST}}
    assert {job: set(advice) for job, advice in ADVICE.items()} == kinds
    assert [kind for job in kinds.values() for kind in job if f"| {kind} |" not in PAGE] == []


def test_only_what_was_found_is_told() -> None:
    assert list(advice_for("compare", ["stale", "unheard of"])) == ["stale"]
    assert advice_for("probe", ["stale"]) == {}
