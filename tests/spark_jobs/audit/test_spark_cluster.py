"""A job on a real standalone cluster of a master and two workers: nothing but the master's address is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.servers.spark_cluster import SparkCluster
from tests.needs import need_spark
from tests.spark_jobs.audit.stub_sites import StubPair
from tools.sources import ROOT

pytestmark = pytest.mark.long
DEADLINE_S = 360.0  # six Java machines on two cores, next to other tests
_MAIN = """
import sys
from spark_jobs.audit.audit import JOBS, JobKind
from spark_jobs.run import main

JOBS["probe"] = JobKind("tests.spark_jobs.audit.probe_job", True, "a test", {"where": ""})
sys.exit(main())
"""


def operator_file(folder: Path, pair: StubPair) -> Path:
    path = folder / "operator.toml"
    addresses = "".join(f'[sites.{name}]\nurl = "{site.url}"\n' for name, site in pair.sites.items())
    path.write_text(f'pair = "demo"\n{addresses}')
    return path


def test_a_job_on_a_cluster_with_two_workers(tmp_path: Path) -> None:
    need_spark()
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = (
        "spark.executor.memory=512m", "spark.driver.memory=512m", "spark.driver.host=127.0.0.1",
        f"spark.driver.extraJavaOptions={quick}", f"spark.executor.extraJavaOptions={quick}",
    )
    options = [word for setting in settings for word in ("--conf", setting)]
    with SparkCluster(tmp_path / "cluster") as cluster, StubPair() as pair:
        command = [
            sys.executable, "-c", _MAIN, "probe", "--config", str(operator_file(tmp_path, pair)), "--master", cluster.url,
            "--audits", str(tmp_path / "audits"), "--set", "where=yes", "--json", *options,
        ]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path, check=False,
            env={**environ, "SPARK_CONF_DIR": str(cluster.folder)},
        )
        assert run.returncode == 0, run.stderr + run.stdout
        summary = json.loads(run.stdout)
        assert summary["spark"]["master"] == cluster.url
        assert summary["outcome"] == "good"
        assert summary["counters"]["EXECUTORS"] == 2
        assert summary["counters"]["SENT"] == 2, "the packages come from the job"
        assert cluster.applications() == [f"twinlog probe {summary['id']}"]

        secret = cluster.settings.read_text().split()[-1]
        assert cluster.settings.stat().st_mode & 0o077 == 0
        assert [file for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()] == [
            cluster.settings
        ]
        stranger = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, cwd=tmp_path, check=False, env=environ,
        )
        assert stranger.returncode == 2, stranger.stderr + stranger.stdout
        assert f"Spark cannot be started on {cluster.url}" in stranger.stderr + stranger.stdout
        assert len(cluster.applications()) == 1
