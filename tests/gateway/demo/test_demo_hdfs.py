"""`twinlog demo --dfs hdfs`: two gateways, each a process with Java in it, over two real HDFS; and all of it ends."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.ports import free_ports
from gateway.cli.log import LogKind, segment_files
from gateway.config.loading import load_site_config
from gateway.demo.child import start_child
from tests.gateway.documented import opened
from tools.sources import ROOT

pytestmark = [pytest.mark.pair, pytest.mark.long]
TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}


@pytest.mark.usefixtures("hdfs")
def test_a_demo_on_two_hdfs_starts_writes_and_ends(tmp_path: Path) -> None:
    port_a, port_b = free_ports(2)
    command = [
        sys.executable, "-m", "twinlog", "demo", "--dir", str(tmp_path), "--port-a", str(port_a), "--port-b", str(port_b),
        "--dfs", "hdfs", "--no-load", "--json",
    ]
    with (tmp_path / "demo.out").open("wb") as said:
        demo = start_child(command, said, folder=ROOT, left=signal.SIGTERM)
    try:
        note = tmp_path / "demo.json"
        until = time.monotonic() + 300
        while not note.exists():
            assert demo.poll() is None, (tmp_path / "demo.out").read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        sites = msgspec.json.decode(note.read_bytes())["sites"]
        with opened(sites["a"]["url"]) as client:
            assert client.post("/v1/tables", json=TABLE).status_code == 201
            assert client.put("/v1/tables/t/rows/1", json={"v": "x"}).json()["mode"] == "sync"
        config = load_site_config(Path(sites["a"]["config"]), {})
        assert [file.place for file in segment_files(config, LogKind.PEER)] == [LogKind.PEER], "the log commands read HDFS"
    finally:
        demo.terminate()
        assert demo.wait(60) == 0
    assert "aborted" not in "".join((tmp_path / site / "site.log").read_text() for site in "ab").lower()
    for name in ("a", "b"):
        assert not any(daemon.is_running for daemon in HdfsCluster(tmp_path / "hdfs" / name).daemons)
