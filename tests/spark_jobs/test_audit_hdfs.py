"""The audits of a pair whose remote logs lie on HDFS, by the sites' own configurations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from chaos.hdfs_cluster import HdfsCluster
from gateway.demo_servers import HdfsRoot
from tests.spark_jobs.pair_rig import AuditedPair, audited_pair

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [{"id": number, "n": number, "text": f"row {number}"} for number in range(100)]

pytestmark = [pytest.mark.pair, pytest.mark.timeout(400)]


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


def test_compare_and_the_logs(pair: AuditedPair) -> None:
    assert pair.audit("compare", expected=0)["counters"]["GOODROWS"] == len(ROWS)
    logs = pair.audit("log-audit", expected=0)
    assert logs["counters"]["SEGMENTS"] == 2, "a's own, and the one on b's HDFS"
    assert pair.held() == []
