"""`twinlog advise` and `twinlog monitor` as an operator meets them: screens, JSON, exit codes, what they ask of the sites."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import Result

from gateway.cli import monitor as cli_monitor
from gateway.config.loading import check_pair_at, load_operator_config, monitor_thresholds
from remote_log.replication.messages import StatusReply
from switchover.monitor.findings import Thresholds
from switchover.monitor.views import SiteView
from switchover.monitor.watcher import Watcher
from switchover.preflight.checks import Check
from switchover.preflight.preflight import ChecksDocument
from switchover.register.port import PairState
from tests.gateway.cli.cli_rig import invoke
from tests.gateway.dict_service import OWN
from tests.gateway.two_sites import TwoSites
from twinlog import sites as sites_client
from twinlog.errors import ConfigError, PeerError

REGISTER = PairState(state_id=2, epoch=1, epoch_allocated=1, active="a", opened_by="p1")
HEARD = StatusReply(
    site="a", role="ACTIVE", epoch=1, mode="sync", applied_seq=0, durable_seq=0, committed_seq=0, waiting_for=""
)
ACTIVE = replace(OWN, lease_left_s=0.5, policy="available", serves_reads=True, serves_writes=True)
STANDBY = replace(ACTIVE, site="b", role="STANDBY", lease_left_s=None, heard_s=0.1, remote_log_mark=7)


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoSites]:
    monkeypatch.setattr(cli_monitor, "LOOKS_APART_S", 0.0)
    monkeypatch.setenv("COLUMNS", "110")
    with TwoSites() as pair:
        shows(pair, "a", SiteView(own=ACTIVE, peer=replace(HEARD, site="b", role="STANDBY"), register=REGISTER))
        shows(pair, "b", SiteView(own=STANDBY, peer=HEARD, register=REGISTER))
        yield pair


def shows(pair: TwoSites, site: str, view: SiteView) -> None:
    async def answer() -> SiteView:
        return view

    pair.doors[site].operations.view = answer  # type: ignore[method-assign]


def lose_a(pair: TwoSites, lease_s: float = STANDBY.lease_s) -> None:
    pair.stop("a")
    own = replace(STANDBY, lease_s=lease_s)
    shows(pair, "b", SiteView(own=own, peer=None, peer_error="site a refuses connections", register=REGISTER))


def run(pair: TwoSites, *arguments: str) -> Result:
    result = invoke(*arguments, "--config", pair.address)
    assert "Traceback" not in result.output
    return result


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no hung site: no test here has one."""
    monkeypatch.setitem(sites_client._TIMEOUTS_S, sites_client.ALIVE, 60.0)
    monkeypatch.setitem(sites_client._TIMEOUTS_S, "/v1/view", 60.0)


def test_a_whole_pair_needs_nothing(sites: TwoSites) -> None:
    result = run(sites, "advise")
    assert (result.exit_code, "There is nothing to do." in result.stdout) == (0, True)
    assert json.loads(run(sites, "advise", "--json").stdout)["kind"] == "nothing"


def test_a_lost_active_calls_for_a_failover_with_its_witnesses_and_the_command(sites: TwoSites) -> None:
    lose_a(sites)
    result = run(sites, "advise")
    assert result.exit_code == 1
    for words in ("failover to b", "answers neither the monitor nor site b", "site b: site a refuses connections",
                  "twinlog failover --to b", "seen just now"):
        assert words in result.stdout, words
    assert sites.doors["b"].operations.documents == {}, "nothing was asked for"


def test_a_site_that_cannot_take_over_is_no_failover(sites: TwoSites) -> None:
    lose_a(sites)
    sites.doors["b"].operations.judged = [Check("mode.sync", "failed", "17 records", "bring it back")]
    sites.doors["b"].operations.checks = _failed_checks(sites)  # type: ignore[method-assign]
    found = json.loads(run(sites, "advise", "--json").stdout)
    assert (found["kind"], found["command"]) == ("look", "twinlog validate --for failover --to b")
    assert "site b: mode.sync: 17 records" in found["evidence"]


def _failed_checks(pair: TwoSites) -> Any:
    async def checks(kind: str) -> ChecksDocument:
        return ChecksDocument(kind, "b", False, pair.doors["b"].operations.judged, None)

    return checks


def test_nobody_answers_has_an_exit_code_of_its_own(sites: TwoSites) -> None:
    for site in "ab":
        sites.stop(site)
    result = run(sites, "advise")
    assert result.exit_code == 4
    assert "unknown" in result.stdout


class _Enough(KeyboardInterrupt):
    """As Ctrl-C."""


@pytest.fixture
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run_some(self: Watcher) -> None:
        for _ in range(3):
            await self.round()
        raise _Enough

    monkeypatch.setattr(Watcher, "run", run_some)
    monkeypatch.setattr("gateway.config.loading.monitor_thresholds", lambda address: Thresholds(failover_after_s=0))


@pytest.mark.usefixtures("few_rounds")
def test_monitor_tells_each_change_once_and_acts_only_when_told_to(sites: TwoSites) -> None:
    lose_a(sites, lease_s=0.0)  # three looks end at once
    result = run(sites, "monitor")
    assert result.exit_code == 130
    assert result.stdout.count("type: twinlog failover --to b") == 1
    assert "not done: it only observes (--act)" in result.stdout
    assert sites.doors["b"].operations.documents == {}
    lines = [json.loads(line) for line in run(sites, "monitor", "--act", "--json").stdout.splitlines()]
    assert [line["act"] for line in lines] == [True, False]
    asked = list(sites.doors["b"].operations.documents.values())
    assert [(one.kind, one.to, one.options["automatic"]) for one in asked] == [("failover", "b", True)]
    assert asked[0].actor.startswith("monitor ")


def test_a_site_of_another_release_is_no_witness(sites: TwoSites) -> None:
    class Old:
        def ask(self, *_: object) -> dict[str, Any]:
            return {"own": {"site": "a"}}

    with pytest.raises(PeerError, match="as this release does"):
        asyncio.run(cli_monitor.PairProbe(Old(), lambda pair: None).view("a"))  # type: ignore[arg-type]


def test_thresholds_are_the_operators(tmp_path: Path) -> None:
    file = tmp_path / "operator.toml"
    text = 'pair = "shop"\n[sites.a]\nurl = "http://a:1"\n[sites.b]\nurl = "http://b:1"\n[monitor]\nfailover_after_s = 45\n'
    file.write_text(text)
    assert monitor_thresholds(str(file)).failover_after_s == 45
    check_pair_at(str(file))("shop")
    check_pair_at("demo.json")("any")
    with pytest.raises(ConfigError, match="lead to pair other"):
        check_pair_at(str(file))("other")
    assert monitor_thresholds("twinlog://shop?a=http://a:1&b=http://b:1") == Thresholds()
    file.write_text(text + "interval_s = 20\nactions_max = 0\nfailover_afer_s = 1\n")
    with pytest.raises(ConfigError) as caught:
        load_operator_config(file)
    assert {fault["key"] for fault in caught.value.fields["faults"]} == {
        "monitor.gap_max_s", "monitor.actions_max", "monitor.failover_afer_s"
    }
