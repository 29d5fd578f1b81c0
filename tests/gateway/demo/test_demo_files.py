"""The configurations that a demo writes are ones that a site takes, whatever its storage and its DFS."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.access.grants import EVERYTHING, parse_grants
from gateway.access.token_file import load_tokens
from gateway.access.tokens import TokenIndex
from gateway.config.loading import load_operator_config, load_site_config
from gateway.config.security import config_warnings
from gateway.demo.files import CERTS, write_files
from gateway.demo.servers import Databases, HdfsRoot
from spark_jobs.audit.sites import load_pair
from twinlog.addresses import resolve_tls
from twinlog.wire.tls import Tls

URLS = {"a": "postgresql+psycopg://twinlog@127.0.0.1:5433/twinlog_a", "b": "postgresql+psycopg://twinlog@127.0.0.1:5433/twinlog_b"}
HDFS = {site: HdfsRoot(f"hdfs://127.0.0.1:900{n}/twinlog", f"127.0.0.1:987{n}") for n, site in enumerate("ab", 1)}


@pytest.mark.parametrize("sync", ["hsync", "hflush"])
def test_each_site_has_its_own_hdfs_and_its_peers(tmp_path: Path, sync: str) -> None:
    paths = write_files(tmp_path, {"a": 8401, "b": 8402}, engine="sqlite", hdfs=HDFS, sync=sync)
    for site, peer in (("a", "b"), ("b", "a")):
        config = load_site_config(paths[site], {})
        assert (config.dfs.own.url, config.dfs.peer.url) == (HDFS[site].url, HDFS[peer].url)
        assert config.dfs.own.options == {"dfs.namenode.http-address": HDFS[site].web}
        assert load_pair(paths[site]).sites[peer].hdfs == {"dfs.namenode.http-address": HDFS[peer].web}, "audits find it"
        assert (config.dfs.own.sync, config.dfs.peer.sync) == (sync, sync)
        assert config.engine.kind == "sqlite"


def test_each_site_has_its_own_database(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret\n")
    paths = write_files(tmp_path, {"a": 8401, "b": 8402}, engine="postgresql", databases=Databases(URLS, f"file:{secret}"))
    for site in URLS:
        config = load_site_config(paths[site], {})
        assert config.engine.kind == "postgresql"
        assert config.engine.url == URLS[site]
        assert "s3cret" not in paths[site].read_text()
        assert config.dfs.own.kind == "directory"


def test_with_tls_each_site_has_its_listeners_and_the_operators_file_the_ca(tmp_path: Path) -> None:
    ports, peers = {"a": 8401, "b": 8402}, {"a": 9401, "b": 9402}
    paths = write_files(tmp_path, ports, engine="sqlite", peer_ports=peers)
    made = {path: path.read_bytes() for path in (tmp_path / CERTS).iterdir()}
    for site, peer in (("a", "b"), ("b", "a")):
        config = load_site_config(paths[site], {})
        assert config.peer_http is not None
        assert (config.http.url, config.peer_http.port) == (f"https://127.0.0.1:{ports[site]}", peers[site])
        assert (config.peer.url, config.peer.public_url) == (
            f"https://127.0.0.1:{peers[peer]}", f"https://127.0.0.1:{ports[peer]}"
        )
        assert config_warnings(config) == []
        assert load_pair(paths[site]).sites[peer].url == f"https://127.0.0.1:{ports[peer]}"
        assert load_pair(paths[site]).sites[site].tls == Tls(str(tmp_path / CERTS / "ca.pem"))
    operator = str(tmp_path / "operator.toml")
    assert resolve_tls(operator) == Tls(str(tmp_path / CERTS / "ca.pem"))
    assert load_pair(operator).sites["a"].tls == resolve_tls(operator)
    write_files(tmp_path, ports, engine="sqlite", peer_ports=peers)
    assert {path: path.read_bytes() for path in (tmp_path / CERTS).iterdir()} == made, "a second start keeps its certificates"


def test_a_demo_with_identities_keeps_its_token_where_its_owner_alone_reads(tmp_path: Path) -> None:
    first = write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb", access=True)
    token = (tmp_path / "token").read_text().strip()
    assert write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb", access=True) == first
    assert (tmp_path / "token").read_text().strip() == token, "kept for the next start"
    for name in ("token", "token.header", "tokens.json"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    found = TokenIndex(load_tokens(tmp_path / "tokens.json")).find(token)
    assert found is not None
    assert parse_grants(found.grants) == EVERYTHING
    for path in (*first.values(), tmp_path / "operator.toml", tmp_path / "tokens.json"):
        assert token not in path.read_text()
    for path in first.values():
        access = load_site_config(path, {}).access
        assert access is not None
        assert access.tokens == tmp_path / "tokens.json"
    assert load_operator_config(tmp_path / "operator.toml", {}).token == token
    (tmp_path / "token").unlink()
    write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb", access=True)
    assert (tmp_path / "token").read_text().strip() != token, "a token that is lost is made anew, and the old one is revoked"
    assert TokenIndex(load_tokens(tmp_path / "tokens.json")).find(token) is None
