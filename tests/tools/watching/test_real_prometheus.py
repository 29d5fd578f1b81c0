"""A real Prometheus watches a real pair through a failover: what should fire fires, nothing else does, and all ends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.crash.processes import Processes, open_pair
from tests.tools.watching.prometheus_rig import Prometheus, prometheus
from tools.watching.dashboards import DASHBOARDS
from tools.watching.draw import rules_yaml

pytestmark = [pytest.mark.pair, pytest.mark.long]
FASTER = 30  # so much shorter are the times for which an expression must hold
PAIR = "demo"
EVER = "max by (alertname, site) (max_over_time(ALERTS{alertstate='firing'}[1h]))"
LOST_ACTIVE = {("TwinlogSiteDown", "a"), ("TwinlogNoActive", "")}
TAKEN_OVER = {("TwinlogSiteDown", "a"), ("TwinlogOneCopy", "b"), ("TwinlogStandbyUnreachable", "b"), ("TwinlogTrouble", "b")}


class Watched(NamedTuple):
    pair: Processes
    prometheus: Prometheus


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    with open_pair(folder / "pair") as pair:
        targets = {site: urlsplit(url).netloc for site, url in pair.urls.items()}
        with prometheus(folder / "prometheus", rules_yaml(scale=1 / FASTER), targets, PAIR) as server:
            assert pair.write("a")
            ended = datetime.now(UTC).isoformat()
            audit = {"id": "one", "job": "compare", "started_at": ended, "finished_at": ended, "outcome": "good"}
            for url in pair.urls.values():
                pair.http.post(f"{url}/v1/audits", json=audit).raise_for_status()
            server.until("both sites are scraped", lambda: len(server.query("up == 1")) == 2)
            yield Watched(pair, server)


def _query(expr: str) -> str:
    return expr.replace("$pair", PAIR).replace("$__rate_interval", "1m")


def test_each_query_of_the_dashboards_is_answered(watched: Watched) -> None:
    """Those that have an answer whenever a pair runs are not empty; Prometheus refuses what it cannot read."""
    shown = [panel for _, panels in DASHBOARDS.values() for panel in panels]
    facts = [(panel.title, expr, panel.is_fact) for panel in shown for expr, _ in panel.queries]
    assert len(facts) > 40

    def empty() -> list[str]:
        return [f"{title}: {expr}" for title, expr, is_fact in facts if not watched.prometheus.query(_query(expr)) and is_fact]

    watched.prometheus.until("rates have two samples, and the disk was looked at", lambda: not empty())


def test_a_failover_fires_what_it_should_and_all_is_quiet_after_the_rejoin(watched: Watched) -> None:
    pair, server = watched
    assert server.firing() == set()
    pair.kill("a")
    server.until("the loss of the active fires", lambda: server.firing() >= LOST_ACTIVE)
    assert pair.operate("b", "failover", "b")["state"] == "succeeded"
    assert pair.write("b")
    server.until("one copy fires, and no active is over", lambda: server.firing() == TAKEN_OVER)
    pair.start("a")
    pair.until_roles("STANDBY", "ACTIVE")
    server.until("all is quiet again", lambda: not server.firing())
    ever = {(each["metric"]["alertname"], each["metric"].get("site", "")) for each in server.query(EVER)}
    assert ever == LOST_ACTIVE | TAKEN_OVER | ({("TwinlogTrouble", "a")} & ever)
