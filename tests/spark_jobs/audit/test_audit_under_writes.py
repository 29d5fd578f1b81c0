"""Tables that change all the time give no false alarm, and hide no fault."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark_jobs.audit.pair_rig import ITEMS, AuditedPair, audited_pair
from tools.audit_writes import Target, Writes, Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = 100  # rows that nobody writes any more
RATE = 400
WRITTEN_MIN = 50  # rows, while one comparison runs

pytestmark = [pytest.mark.pair, pytest.mark.long]


def compare(pair: AuditedPair, writes: Writes, expected: int) -> tuple[dict[str, str], Written]:
    """Returns the findings, and the writes of that time."""
    begin_s = time.monotonic()
    summary = pair.audit("compare", expected=expected)
    written = writes.between(begin_s, time.monotonic())
    assert written.rows >= WRITTEN_MIN, "the table did not change"
    assert summary["counters"]["GOODROWS"] > QUIET
    return pair.found(summary), written


def shown_by(pair: AuditedPair, url: str) -> dict[str, str]:
    """Returns key -> kind of the differences in the report that a site keeps of the last audit: what its page shows."""
    listed = pair.http.get(f"{url}/v1/audits").json()
    assert listed["running"] == [], "its end ended its progress"
    shown = pair.http.get(f"{url}/v1/audits/{listed['past'][0]['run']['id']}").json()["report"]
    (table,) = shown["tables"]
    assert (table["name"], table["compared"] - table["equal"]) == (ITEMS, shown["differences_count"])
    assert sum(sum(counts) for counts in shown["places"][0]["kinds"].values()) == shown["differences_count"]
    assert {"digests of a", "digests of b"} <= {stage["name"] for stage in shown["stages"]}
    assert shown["pace"][-1]["rows"] > 0
    return {one["key"]: one["kind"] for one in shown["differences"]}


def test_a_comparison_while_rows_are_written_finds_what_was_planted_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"id": number, "n": 0, "text": f"row {number}"} for number in range(1500)]
    with audited_pair(spark, tmp_path) as pair:
        pair.put(rows)
        with Writes(pair.address, Target(ITEMS, ("id",), "id", "n"), rows[QUIET:], RATE) as writes:
            found, _ = compare(pair, writes, 0)
            assert found == {}
            pair.stop("b")
            planted = pair.plant("b")
            pair.back("b", "STANDBY")
            found, _ = compare(pair, writes, 1)
        assert found == planted
        for url in pair.urls.values():
            assert shown_by(pair, url) == planted
        assert pair.held() == []
