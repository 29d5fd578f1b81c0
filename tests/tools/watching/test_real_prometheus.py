"""A real Prometheus watches a real pair through a failover: what should fire fires, nothing else does, and all ends."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.crash.processes import Processes, open_pair
from tests.tools.watching.prometheus_rig import Prometheus, prometheus
from tools.watching.dashboards import DASHBOARDS, dashboard
from tools.watching.draw import rules_yaml
from twinlog import Client
from twinlog.errors import TwinlogError

pytestmark = [pytest.mark.pair, pytest.mark.long]
FASTER = 30  # so much shorter are the times for which an expression must hold
PAIR = "demo"
EVER = "max by (alertname, site) (max_over_time(ALERTS{alertstate='firing'}[1h]))"
LOST_ACTIVE = {("TwinlogSiteDown", "a"), ("TwinlogNoActive", "")}
PANELS = [panel for _, panels in DASHBOARDS.values() for panel in panels]
CHANGED = "Time of role changes"  # with a switchover, the only one that says how long writes paused
LATER = {"Alerts that fire", "Problems", CHANGED}
NEVER_SHOWN = {"Answers with 5xx"}  # while a site is lost, a client is told to wait, or which site to ask
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


@contextmanager
def _load(pair: Processes) -> Iterator[None]:
    """A client that writes all the time, and knows both sites."""
    over = threading.Event()

    def write() -> None:
        with Client(f"twinlog://{PAIR}?a={pair.urls['a']}&b={pair.urls['b']}") as client:
            for number in range(1_000_000):
                if over.wait(0.02):
                    return
                with suppress(TwinlogError):
                    client.put("t", f"load-{number % 100}", {"v": number, "pad": ""})

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_each_query_of_the_dashboards_is_answered(watched: Watched) -> None:
    """Those that have an answer whenever a pair runs are not empty; Prometheus refuses what it cannot read."""
    asked = [(panel, expr) for panel in PANELS for expr, _ in panel.queries]
    assert len(asked) > 40

    def empty() -> list[str]:
        return [
            f"{panel.title}: {expr}" for panel, expr in asked
            if not watched.prometheus.query(_query(expr)) and not panel.empty_while
        ]

    watched.prometheus.until("rates have two samples, and the disk was looked at", lambda: not empty())


def test_a_failover_fires_what_it_should_and_all_is_quiet_after_the_rejoin(watched: Watched) -> None:
    """Under load, so that each query of each panel has data somewhere in that time."""
    pair, server = watched
    assert server.firing() == set()
    since_s = time.time()
    with _load(pair):
        server.until("rates of the load", lambda: not _without_data(server, since_s) - LATER)
        pair.kill("a")
        server.until("the loss of the active fires", lambda: server.firing() >= LOST_ACTIVE)
        assert pair.operate("b", "failover", "b")["state"] == "succeeded"
        assert pair.write("b")
        server.until("one copy fires, and no active is over", lambda: server.firing() == TAKEN_OVER)
        pair.start("a")
        pair.until_roles("STANDBY", "ACTIVE")
        server.until("all is quiet again", lambda: not server.firing())
        assert not pair.write("a")  # a problem, which names the active
        server.until("each panel has data", lambda: not _without_data(server, since_s) - {CHANGED})
        found = server.query(EVER)
        assert pair.operate("a", "switchover", "a")["state"] == "succeeded"  # it is in no alert: all of them are read
        server.until("the switchover is there", lambda: not _without_data(server, since_s))
        assert _legends_without_label(server, since_s) == []
    ever = {(each["metric"]["alertname"], each["metric"].get("site", "")) for each in found}
    assert ever == LOST_ACTIVE | TAKEN_OVER | ({("TwinlogTrouble", "a")} & ever)


def test_the_variable_of_the_dashboards_has_the_pair_as_its_value(watched: Watched) -> None:
    """A dashboard has no other one, but the data source, which Grafana fills in by itself."""
    variables = [one for name in DASHBOARDS for one in dashboard(name)["templating"]["list"] if one["type"] != "datasource"]
    assert [one["name"] for one in variables] == ["pair"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[0]["query"]["query"]).groups()  # type: ignore[union-attr]
    assert watched.prometheus.ask(f"label/{label}/values", **{"match[]": metric}) == [PAIR]


def _legends_without_label(server: Prometheus, since_s: float) -> list[str]:
    """The legends that name a label which the series of their query do not have: Grafana would draw nothing in its place."""
    return [
        f"{panel.title}: {legend}" for panel in PANELS if panel.title not in NEVER_SHOWN for expr, legend in panel.queries
        if not set(re.findall(r"\{\{(\w+)\}\}", legend)) <= server.labels(_query(expr), since_s)
    ]


def _without_data(server: Prometheus, since_s: float) -> set[str]:
    """The titles of panels of which a query shows nothing, as Grafana asks it."""
    return {
        panel.title for panel in PANELS if panel.title not in NEVER_SHOWN
        if not all(server.has_data(_query(expr), since_s) for expr, _ in panel.queries)
    }
