"""The parts of a pair: their servers and links, what a plan needs of them, and what is missing on a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from sqlalchemy import make_url

from chaos.harness import cli
from chaos.harness.arguments import arguments
from chaos.harness.courses import of_rows, scenarios
from chaos.harness.pair.parts import GATEWAY_LINKS, LINKS, NEEDS, SERVERS, Parts, need_of
from chaos.harness.pair.servers.postgres import PASSWORD
from chaos.harness.pair.servers.servers import COORDINATOR_URL
from chaos.harness.pair.sites import OTHER, RealSites
from chaos.servers.hdfs_jars import CACHE_VARIABLE
from gateway.config.loading import load_site_config
from tests.needs import need_hdfs
from twinlog.errors import ConfigError

ALL = Parts("hdfs", "postgresql", "server")
HDFS, ALONE, SERVER = ("--dfs", "hdfs"), ("--coordinator", "no"), ("--coordinator", "server")
SECURED = ("--secured",)


def test_a_pair_of_plain_folders_has_no_servers_and_the_gateways_links_alone() -> None:
    assert Parts().servers == ()
    assert Parts().link_targets == (*GATEWAY_LINKS, "a-b", "c-ab")


def test_every_server_has_a_link_from_each_gateway_that_calls_it() -> None:
    assert ALL.servers == SERVERS
    assert {link for link in LINKS if ">dn-b" in link} == {"a>dn-b", "b>dn-b"}
    assert "a>pg-b" not in LINKS
    assert {link for link in LINKS if link.endswith(">pg-w")} == {"a>pg-w", "b>pg-w"}
    assert set(LINKS) < set(ALL.link_targets)
    assert "b>dfs-a" in ALL.link_targets
    assert "b>dfs-a" not in Parts(engine="postgresql").link_targets


@pytest.mark.parametrize(("target", "need"), [
    ("a>nn-b", "hdfs"), ("dn-a", "hdfs"), ("b>dfs-a", "hdfs"), ("pg-b", "postgresql"), ("a>pg-a", "postgresql"), ("a>b", None),
    ("pg-w", "coordinator-server"), ("b>pg-w", "coordinator-server"), ("toxiproxy", None), ("m1", None),
    ("a-b", None), ("c-ab", None), ("active", None), ("b", None),
])
def test_a_target_tells_what_it_needs(target: str, need: str | None) -> None:
    assert need_of(target) == need


def test_what_a_plan_needs_and_a_pair_lacks_is_an_option() -> None:
    assert Parts().missing(NEEDS) == ["--dfs hdfs", "--engine postgresql", "--coordinator server", "--coordinator no",
                                      "--secured"]
    assert ALL.missing(["hdfs", "postgresql", "coordinator-server"]) == []
    assert ALL.missing(["coordinator"]) == ["--coordinator yes"], "the one in a file, which can be copied and put back"
    with pytest.raises(ConfigError, match="mine needs a pair with other parts: add --dfs hdfs"):
        Parts().check("mine", ["hdfs"])


def test_a_scenario_that_does_not_fit_is_refused_and_the_matrix_runs_those_that_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["run", "datanode-killed", "--out", str(tmp_path / "out")]) == 2
    assert "datanode-killed needs a pair with other parts: add --dfs hdfs" in capsys.readouterr().err
    fitting = {
        options: {course.scenario for course in of_rows(arguments(["matrix", *options]))}
        for options in ((), HDFS, ("--engine", "postgresql"), ALONE, (*HDFS, *ALONE), SERVER, SECURED)
    }
    assert "dfs-hangs" in fitting[()] - fitting[HDFS]
    assert "datanode-killed" in fitting[HDFS] - fitting[()]
    assert "postgres-killed" in fitting["--engine", "postgresql"] - fitting[()]
    assert "coordinator-link-cut" in fitting[SERVER] - fitting[()]
    assert "secrets-renewed" in fitting[SECURED] - fitting[()]
    assert "network-split" in fitting[*HDFS, *ALONE] - fitting[HDFS] - fitting[ALONE]
    assert {name for names in fitting.values() for name in names if "/" not in name} == set(scenarios())


@pytest.mark.parametrize(("options", "told"), [
    (["--dfs", "hdfs"], "python -m chaos hdfs --fetch"), (["--engine", "postgresql"], "apt-get install postgresql"),
    (["--coordinator", "server"], "apt-get install postgresql"),
])
def test_what_is_not_installed_ends_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: list[str], told: str
) -> None:
    monkeypatch.setattr("chaos.servers.toxiproxy.fetch", lambda: None)
    monkeypatch.setattr("chaos.servers.postgres._FOLDERS", ())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert cli.main(["run", "active-killed", "--out", str(tmp_path / "out"), *options]) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("coordinator", ["yes", "no"])
def test_a_site_without_a_coordinator_is_configured_without_one(tmp_path: Path, coordinator: Literal["yes", "no"]) -> None:
    sites = RealSites(tmp_path, parts=Parts(coordinator=coordinator))
    sites.configure()
    for site in "ab":
        config = load_site_config(tmp_path / site / "site.toml", {})
        assert (config.coordinator is not None) == (coordinator == "yes")
        assert config.policy == "protect"
        assert config.peer.url == f"http://{sites.links[f'{site}>{config.peer.site}']}"
    sites.end()


def test_both_sites_have_the_policy_of_the_plan(tmp_path: Path) -> None:
    sites = RealSites(tmp_path, policy="available")
    sites.configure()
    assert {load_site_config(tmp_path / site / "site.toml", {}).policy for site in "ab"} == {"available"}
    sites.end()


def test_each_gateway_reaches_each_server_by_a_link_of_its_own(tmp_path: Path) -> None:
    need_hdfs()
    sites = RealSites(tmp_path, parts=ALL)
    (tmp_path / "a" / PASSWORD).write_text("secret")
    (tmp_path / "b" / PASSWORD).write_text("secret")
    (tmp_path / "w" / PASSWORD).write_text("secret")
    try:
        sites.configure()
        used: list[str] = []
        for site, peer in OTHER.items():
            config = load_site_config(tmp_path / site / "site.toml", {})
            used += [config.dfs.own.url.split("/")[2], config.dfs.peer.url.split("/")[2]]
            assert used[-2:] == [sites.links[f"{site}>nn-{site}"], sites.links[f"{site}>nn-{peer}"]]
            assert make_url(config.engine.url).port == int(sites.links[f"{site}>pg-{site}"].rpartition(":")[2])
            assert config.coordinator is not None
            coordinator = make_url(config.coordinator.url)
            assert (coordinator.host, coordinator.port) == ("127.0.0.1", int(sites.links[f"{site}>pg-w"].rpartition(":")[2]))
            assert (coordinator.password, coordinator.database) == ("secret", "twinlog_w")
            assert (tmp_path / site / COORDINATOR_URL).stat().st_mode & 0o077 == 0
            assert all(dfs.options["dfs.client.use.datanode.hostname"] == "true" for dfs in (config.dfs.own, config.dfs.peer))
            named = dict(reversed(line.split()) for line in (tmp_path / site / "hosts").read_text().splitlines())
            for of in OTHER:
                link = sites.links[f"{site}>dn-{of}"]
                assert link == f"{named['localhost']}:{sites.servers.hdfs[of].data_node_port}"
                used.append(link)
            assert str(tmp_path / site / "hosts") in sites.servers.environ(site)["JAVA_TOOL_OPTIONS"]
        assert len(set(used)) == len(used)
        assert set(sites.links) == set(sites.upstream) == set(LINKS)
    finally:
        sites.end()
