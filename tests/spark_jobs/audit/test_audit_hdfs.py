"""The audits of a pair whose remote logs lie on HDFS, by the sites' own configurations, and of what a failover put aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from gateway.demo.servers import HdfsRoot
from spark_jobs.report.folder import first_findings
from tests.spark_jobs.audit.pair_rig import AuditedPair, audited_pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [{"id": number, "n": number, "text": f"row {number}"} for number in range(100)]
START_S = 300.0

pytestmark = [pytest.mark.pair, pytest.mark.long]


@pytest.fixture
def pair(spark: SparkSession, hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path) -> Iterator[AuditedPair]:
    roots = {site: f"{hdfs_root}/{site}" for site in "ab"}
    for root in roots.values():
        hdfs.make_folder(root)
    web = urlsplit(hdfs.web_url).netloc
    with audited_pair(
        spark, tmp_path, hdfs={site: HdfsRoot(hdfs.uri + root, web) for site, root in roots.items()}
    ) as opened:
        opened.put(ROWS)
        yield opened


def lose_what_a_alone_has(pair: AuditedPair) -> None:
    """Rows 0 to 2 are changed at a while it is asynchronous and alone; b takes over without them, and changes row 0."""
    assert pair.operate("a", "degrade", None)["state"] == "succeeded"
    pair.kill("b")
    pair.put([{**row, "text": "put aside"} for row in ROWS[:3]])
    pair.kill("a")
    pair.start("b")
    pair.until("b answers", lambda: pair.role("b") is not None)
    pair.until("b has taken over", lambda: has_taken_over(pair), START_S)
    pair.put([{**ROWS[0], "text": "newer"}])
    pair.start("a")
    pair.until("a answers", lambda: pair.role("a") is not None)
    assert pair.operate("a", "rejoin", "a")["state"] == "succeeded"
    pair.until("a follows", lambda: pair.role("a") == "STANDBY", START_S)


def has_taken_over(pair: AuditedPair) -> bool:
    """Asks for a failover to b. Its first look at the HDFS since the start may take longer than a preflight waits (2 s), when
    Java loads its classes on a busy machine: then nothing was begun, and it is asked again."""
    ended = pair.operate("b", "failover", "b", accept_data_loss="unknown")
    if "manifest" in ended:  # b had heard of the degrade, and can tell how much it is
        ended = pair.operate("b", "failover", "b", accept_data_loss=ended["manifest"]["records_at_risk"])
    is_slow = ended["state"] == "failed" and "the DFS does not answer in" in str(ended)
    assert is_slow or ended["state"] == "succeeded", ended
    return not is_slow


def test_compare_and_the_logs_and_what_was_put_aside(pair: AuditedPair) -> None:
    assert pair.audit("compare", expected=0)["counters"]["GOODROWS"] == len(ROWS)
    logs = pair.audit("log-audit", expected=0)
    assert logs["counters"]["SEGMENTS"] == 2, "a's own, and the one on b's HDFS"
    lose_what_a_alone_has(pair)
    assert pair.audit("compare", expected=0)["sites"]["b"]["role"] == "active"
    judged = pair.audit("reconcile", "--set", f"tail={pair.directory / 'a' / 'data' / 'quarantine'}", expected=1)
    assert pair.found(judged) == {"1": "lost", "2": "lost"}
    assert [judged["counters"][kind] for kind in ("APPLIED", "SUPERSEDED", "LOST")] == [0, 1, 2]
    assert {json.loads(row["row"])["text"] for row in first_findings(Path(judged["path"]), 10)} == {"put aside"}
    assert pair.audit("log-audit", expected=1)["kinds"] == {"quarantined": 1}
    assert pair.held() == []
