"""Two processes, and something that goes away: what health and `twinlog status` say meanwhile, and afterwards."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.crash.processes import Processes, open_pair
from tests.gateway.cli.cli_rig import invoke


def health(pair: Processes, site: str, probe: str) -> int:
    try:
        return pair.http.get(f"{pair.urls[site]}/health/{probe}").status_code
    except httpx.HTTPError:
        return 0


def test_health_and_status_know_of_a_standbys_dfs_that_is_gone_and_that_it_is_back(tmp_path: Path) -> None:
    with open_pair(tmp_path) as pair:
        config = str(tmp_path / "operator.toml")
        assert pair.write("a")
        assert (health(pair, "a", "primary"), health(pair, "a", "ready"), health(pair, "b", "ready")) == (200, 200, 200)
        dfs = tmp_path / "b" / "dfs"
        dfs.rename(tmp_path / "b" / "away")
        pair.until("a write fails", lambda: not pair.write("a"))
        pair.until("the active is not healthy", lambda: health(pair, "a", "primary") == 503)
        assert (health(pair, "a", "ready"), health(pair, "a", "live"), health(pair, "b", "standby")) == (503, 200, 200)
        page = pair.http.get(f"{pair.urls['a']}/metrics").text
        assert "twinlog_serves_writes 0.0" in page
        assert "twinlog_mode_sync" not in page
        status = invoke("status", "--config", config)
        assert (status.exit_code, "serves nobody" in status.output, "twinlog degrade" in status.output) == (1, True, True)
        (tmp_path / "b" / "away").rename(dfs)
        pair.until("the active is healthy", lambda: health(pair, "a", "primary") == 200)
        pair.until("the status is clean", lambda: invoke("status", "--config", config).exit_code == 0)
        assert pair.write("a")
        pair.check("a")


@pytest.mark.long
def test_advise_says_failover_for_a_killed_active(tmp_path: Path) -> None:
    """The read lease is a real one, which silence must outlast before it means anything; and the standby has heard nothing for
    long, which is a lesser finding."""
    with open_pair(tmp_path) as pair:
        config = str(tmp_path / "operator.toml")
        assert pair.write("a")
        pair.until("the restart is journaled", lambda: invoke("advise", "--config", config).exit_code == 0)
        pair.kill("a")

        def silent() -> bool:
            return float(pair.http.get(f"{pair.urls['b']}/v1/view").json()["own"]["heard_s"]) > 5.0

        pair.until("the standby has heard nothing for long", silent)
        advice = invoke("advise", "--config", config)
        assert advice.exit_code == 1
        for words in ("failover to b", "twinlog failover --to b", "site b: it can take over"):
            assert words in advice.output, advice.output
        assert "not yet" not in advice.output, "it looked for as long as silence must last before it means anything"
        assert invoke("failover", "--to", "b", "--yes", "--config", config).exit_code == 0
        pair.check("b")


def test_a_switchover_that_reaches_a_stopped_site_is_refused_when_it_wakes_up(tmp_path: Path) -> None:
    """It sat in the socket's buffer: who asked has long given it up, and must not find the pair switched."""
    with open_pair(tmp_path) as pair, ThreadPoolExecutor(1) as threads:
        pair.until("the rejoin is journaled", lambda: not pair.cluster("b")["operation"])
        expires_ms = pair.cluster("b").get("now_ms", time.time() * 1000) + 1000
        pid = pair.running["b"].pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            asked = threads.submit(
                httpx.post, f"{pair.urls['b']}/v1/operations", json={"kind": "switchover", "to": "b"},
                headers={"Twinlog-Expires-Ms": str(round(expires_ms))}, timeout=60,
            )
            pair.until("it has expired", lambda: time.time() * 1000 > expires_ms)
        finally:
            os.kill(pid, signal.SIGCONT)
        answer = asked.result()
        assert (answer.status_code, "expired" in answer.json().get("detail", "")) == (409, True), answer.text
        pair.until_roles("ACTIVE", "STANDBY")
        assert [one["kind"] for one in pair.http.get(f"{pair.urls['b']}/v1/operations").json()["operations"]] == ["rejoin"]
