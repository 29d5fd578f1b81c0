"""Several runs in one table and one document; what is large goes, and a report leads back to its run."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from chaos.harness.pair.parts import Parts
from chaos.harness.plan import HarnessPlan, text
from chaos.harness.report.kept import read_back, tidy
from chaos.harness.report.summary import Line, summary, total, write_summary
from twinlog.errors import InvalidInput

ONE = Line("one", "sets", 3, 1_000, 900, 2, 0, 0, 1.5, 2.5, 40.0)
OTHER = replace(ONE, name="other", violations=1, stuck=1, without_writes_s=7.25, acknowledged=100)


def test_totals_are_sums_and_the_longest_time_is_the_longest() -> None:
    found = total([ONE, OTHER])
    assert (found.faults, found.operations, found.acknowledged, found.violations, found.stuck) == (6, 2_000, 1_000, 1, 1)
    assert (found.without_writes_s, found.without_reads_s, found.lasted_s) == (7.25, 2.5, 80.0)


def test_the_table_and_the_document_show_each_run_and_all(tmp_path: Path) -> None:
    out = io.StringIO()
    Console(file=out, width=200).print(summary([ONE, OTHER]))
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["run", "one", "other", "all"]
    write_summary(tmp_path, [ONE, OTHER])
    document = json.loads((tmp_path / "summary.json").read_bytes())
    assert [each["name"] for each in document["runs"]] == ["one", "other"]
    assert document["total"]["acknowledged"] == 1_000


@pytest.mark.parametrize("keep_all", [True, False])
def test_a_run_that_held_leaves_its_report_alone(tmp_path: Path, keep_all: bool) -> None:
    (tmp_path / "a" / "data").mkdir(parents=True)
    for name in ("history.jsonl", "history.edn", "report.json"):
        (tmp_path / name).touch()
    tidy(tmp_path, keep_all=keep_all)
    assert {path.name for path in tmp_path.iterdir()} == (
        {"a", "history.jsonl", "history.edn", "report.json"} if keep_all else {"report.json"}
    )


def test_a_report_leads_back_to_its_run(tmp_path: Path) -> None:
    plan = HarnessPlan("about", 7, "sets")
    path = tmp_path / "report.json"
    parts = {"dfs": "hdfs", "engine": "rocksdb", "coordinator": "no"}
    path.write_text(json.dumps({"name": "x", "plan": text(plan), "parts": parts, "rounds": 2, "bug": ""}))
    assert read_back(path) == ("x", plan, Parts("hdfs", "rocksdb", "no"), 2, "")
    path.write_text("[]")
    with pytest.raises(InvalidInput, match="is no report of a run"):
        read_back(path)
