"""A site that is lost at any moment of an audit: a clear error or a true answer, and nothing left over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.crash.processes import OTHER
from tests.spark_jobs.audit.pair_rig import AuditedPair, audited_pair
from tests.storage.engines.sql.rig import a_database, postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [{"id": number, "n": number, "text": f"row {number}"} for number in range(300)]
FAILED = {"summary.json", "spark.log"}

pytestmark = [pytest.mark.pair, pytest.mark.long]


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path) -> Iterator[AuditedPair]:
    with audited_pair(spark, tmp_path) as opened:
        opened.put(ROWS)
        yield opened


def failed(pair: AuditedPair, said: str, lost: str) -> dict[str, Any]:
    """An audit that cannot be done: why stands in its folder, nothing that looks like a result does, and the sites know."""
    summary = pair.audit("compare", expected=2)
    assert said in summary["error"]["message"]
    assert {file.name for file in Path(summary["path"]).iterdir()} <= FAILED
    assert [path.name for path in pair.audits.iterdir()] == [Path(summary["path"]).name]
    told = pair.http.get(f"{pair.urls[OTHER[lost]]}/v1/audits/last").json()
    assert (told["last"]["compare"]["outcome"], told["last_good_compare"]) == ("failed", None)
    return summary


def expired(pair: AuditedPair, site: str) -> None:
    """Waits until a lost site that came back has released its kept snapshots by itself."""
    pair.configs[site].write_text(pair.configs[site].read_text() + "\n[barriers]\nkept_s = 1\n")
    pair.start(site)
    pair.until(f"{site} answers", lambda: pair.role(site) is not None)
    pair.until("no barrier is held", lambda: pair.held() == [])
    kept = list((pair.directory / site / "data").rglob("audit-*"))
    assert kept == [], "nor are its files there"


def test_one_that_is_down_at_the_start(pair: AuditedPair) -> None:
    pair.kill("b")
    failed(pair, f"site b ({pair.urls['b']}) cannot be reached", "b")
    assert pair.held() == []


@pytest.mark.parametrize("site", ["a", "b"])
def test_one_that_is_lost_before_the_barrier(pair: AuditedPair, site: str) -> None:
    pair.at["starting Spark"] = lambda: pair.kill(site)
    failed(pair, f"site {site} ({pair.urls[site]}) cannot be reached", site)
    assert pair.held() == []


@pytest.mark.parametrize(("site", "step"), [("b", "digests of a"), ("a", "writing what was found")])
def test_one_that_is_lost_while_both_hold_the_barrier(
    pair: AuditedPair, site: str, step: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A RocksDB snapshot is files: the answer is the true one. The site is not told, which is said."""
    held: list[str] = []
    pair.at[step] = lambda: (held.extend(pair.held()), pair.kill(site))
    summary = pair.audit("compare", expected=0)
    assert held == [summary["barrier"]["name"]] * 2
    assert summary["counters"]["GOODROWS"] == len(ROWS)
    assert f"site {site} did not receive the outcome of this audit: site {site}" in capfd.readouterr().err
    assert pair.held() == [], "the other one has released it"
    expired(pair, site)


def test_a_snapshot_that_goes_away_while_it_is_read(pair: AuditedPair) -> None:
    def released() -> None:
        (name,) = set(pair.held())
        assert pair.http.delete(f"{pair.urls['b']}/v1/barriers/{name}").status_code == 204

    pair.at["digests of b"] = released
    failed(pair, "there is no checkpoint in", "b")
    assert pair.held() == []


def test_a_snapshot_of_postgresql_ends_with_its_gateway(spark: SparkSession, tmp_path: Path) -> None:
    with ExitStack() as stack:
        databases = {"b": postgres().url(stack.enter_context(a_database()))}
        pair = stack.enter_context(audited_pair(spark, tmp_path, databases=databases))
        pair.put(ROWS)
        pair.at["digests of a"] = lambda: pair.kill("b")
        failed(pair, "PostgreSQL no longer holds the snapshot", "b")
        assert pair.held() == []
        pair.back("b", "STANDBY")
        assert pair.held() == []
        assert pair.audit("compare", expected=0)["counters"]["GOODROWS"] == len(ROWS)
