"""The two sites of a job, read from every kind of file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.config.loading import load_site_config
from gateway.demo.files import write_files
from spark_jobs.audit.sites import load_pair
from tests.gateway.two_sites import TwoSites
from twinlog.errors import ConfigError, InvalidInput, PeerError

HDFS = """
kind = "hdfs"
url = "hdfs://cluster-{site}/twinlog"
[dfs.{which}.options]
"dfs.replication" = "3"
"""


def site(folder: Path, name: str, more: str = "", dfs: str | None = None) -> Path:
    peer = "b" if name == "a" else "a"
    path = folder / name / "site.toml"
    path.parent.mkdir(parents=True)
    own, of_peer = ('path = "dfs"', f'path = "../{peer}/dfs"') if dfs is None else (
        dfs.format(site=name, which="own"), dfs.format(site=peer, which="peer"))
    path.write_text(
        f'pair = "shop"\nsite = "{name}"\ndata_dir = "data"\n[http]\nport = 84{name == "b":02d}\n'
        f'[peer]\nsite = "{peer}"\nurl = "http://{peer}.example.org:8401/"\n{more}\n'
        f"[dfs.own]\n{own}\n[dfs.peer]\n{of_peer}\n"
    )
    return path


def test_a_site_and_what_it_knows_of_its_peer(tmp_path: Path) -> None:
    pair = load_pair(site(tmp_path, "a"))
    own, peer = pair.sites["a"], pair.sites["b"]
    assert (pair.name, pair.own) == ("shop", "a")
    assert (own.url, own.wal, own.remote_log) == (
        "http://127.0.0.1:8400", str(tmp_path / "a/data/wal"), str(tmp_path / "a/dfs/shop/0"))
    assert (own.engine, own.engine_url) == ("rocksdb", "")
    assert (peer.url, peer.wal, peer.remote_log) == ("http://b.example.org:8401", "", str(tmp_path / "b/dfs/shop/0"))


def test_the_peers_file_tells_the_rest(tmp_path: Path) -> None:
    pair = load_pair(site(tmp_path, "b"), site(tmp_path, "a", '[engine]\nkind = "sqlite"\n'))
    assert pair.own == "b"
    assert pair.sites["a"].engine_url == f"sqlite:///{tmp_path}/a/data/engine/rows.db"
    assert pair.sites["a"].wal == str(tmp_path / "a/data/wal")


def test_a_password_by_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "s/e:c@r t")
    engine = '[engine]\nkind = "postgresql"\nurl = "postgresql+psycopg://me@db:5433/shop"\npassword = "env:SHOP_PASSWORD"\n'
    source = load_pair(site(tmp_path, "a", engine)).sites["a"]
    assert source.engine_url == "postgresql+psycopg://me:s%2Fe%3Ac%40r t@db:5433/shop"
    assert "s%2F" not in repr(source)
    monkeypatch.delenv("SHOP_PASSWORD")
    with pytest.raises(ConfigError, match="environment variable SHOP_PASSWORD, which is not set here"):
        load_pair(tmp_path / "a/site.toml")


def test_hdfs_of_both_sites(tmp_path: Path) -> None:
    pair = load_pair(site(tmp_path, "a", dfs=HDFS))
    assert [one.remote_log for one in pair.sites.values()] == ["hdfs://cluster-a/twinlog/shop/0", "hdfs://cluster-b/twinlog/shop/0"]
    assert pair.sites["b"].hdfs == {"dfs.replication": "3"}


def test_hdfs_by_hadoops_own_files(tmp_path: Path) -> None:
    """The right one of several name services is read; options rank above files; the user is kept."""
    conf = tmp_path / "a" / "hadoop"
    values = {
        "dfs.nameservices": "cluster-a,cluster-b", "dfs.ha.namenodes.cluster-a": "n1,n2", "dfs.replication": "2",
        "dfs.namenode.http-address.cluster-a.n1": "n1.example.org:9870", "dfs.namenode.http-address.cluster-b.n1": "other:9870",
    }
    own = site(tmp_path, "a", dfs=HDFS.replace("[dfs", 'conf_dir = "hadoop"\nuser = "twinlog"\n[dfs'))
    conf.mkdir()
    (conf / "hdfs-site.xml").touch()
    with pytest.raises(ConfigError, match=r"hdfs-site\.xml cannot be read: no element found"):
        load_pair(own)
    properties = "".join(f"<property><name>{name}</name><value> {value} </value></property>" for name, value in values.items())
    (conf / "hdfs-site.xml").write_text(f"<?xml version='1.0'?><configuration>{properties}</configuration>")
    assert load_pair(own).sites["a"].hdfs == {
        "dfs.nameservices": "cluster-a,cluster-b", "dfs.ha.namenodes.cluster-a": "n1,n2", "dfs.replication": "3",
        "dfs.namenode.http-address.cluster-a.n1": "n1.example.org:9870", "user": "twinlog",
    }


def test_the_environment_is_over_the_first_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINLOG_HTTP__PORT", "9999")
    pair = load_pair(site(tmp_path, "a"), site(tmp_path, "b"))
    assert [one.url for one in pair.sites.values()] == ["http://127.0.0.1:9999", "http://127.0.0.1:8401"]


def test_a_demo_and_an_operator(tmp_path: Path) -> None:
    demo = tmp_path / "demo.json"
    demo.write_text(json.dumps({"sites": {name: {"config": str(site(tmp_path, name))} for name in "ab"}}))
    assert [one.wal for one in load_pair(demo).sites.values()] == [str(tmp_path / name / "data/wal") for name in "ab"]
    operator = tmp_path / "operator.toml"
    operator.write_text('pair = "shop"\n[sites.a]\nurl = "http://a:1/"\n[sites.b]\nurl = "http://b:1"\n')
    assert [one.url for one in load_pair(operator).sites.values()] == ["http://a:1", "http://b:1"]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    own = site(tmp_path, "a")
    for content, problem in (
        ("pair = ", "is not TOML"), ('pair = "x"', "names no site"), ('pair = "x"\nsite = "a"', "has no data_dir"),
    ):
        path = tmp_path / "wrong.toml"
        path.write_text(content)
        with pytest.raises(ConfigError, match=problem):
            load_pair(path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_pair(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="is site 'a': give the configuration of the other site"):
        load_pair(own, own)
    other = site(tmp_path / "else", "b")
    other.write_text(other.read_text().replace('"shop"', '"other"'))
    with pytest.raises(ConfigError, match="is of the pair 'other'"):
        load_pair(own, other)
    demo = tmp_path / "demo.json"
    demo.write_text("[]")
    with pytest.raises(ConfigError, match="is no table"):
        load_pair(demo)


def test_sites_are_given_by_addresses_as_to_every_other_verb(tmp_path: Path) -> None:
    with TwoSites() as pair:
        for address in (pair.address, ",".join(pair.urls[name] for name in "ab")):
            found = load_pair(address)
            assert (found.name, found.own) == ("test", "a")
            assert [(one.url, one.wal) for one in found.sites.values()] == [(pair.urls[name], "") for name in "ab"]
        pair.stop("a")
        assert load_pair(pair.address).name == found.name, "one site that answers is enough for the name"
        pair.stop("b")
        with pytest.raises(PeerError, match="no site answers"):
            load_pair(pair.address)
    with pytest.raises(InvalidInput, match="needs both"):
        load_pair("twinlog://shop?a=http://127.0.0.1:1")
    with pytest.raises(ConfigError, match="is an address; here a file is wanted"):
        load_site_config(Path("http://127.0.0.1:1,http://127.0.0.1:2"))


def test_keys_of_logs_are_taken_as_references_and_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beside the file, whether they are there or not: the executor that needs one reads it."""
    path = write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb")["a"]
    with path.open("a", encoding="utf-8") as file:
        file.write('\n[wal]\nencryption_keys = ["w1=file:w1.key", "plain"]\n')
    monkeypatch.setenv("TWINLOG_REMOTE_LOG__ENCRYPTION_KEYS", "k2=env:K2, k1=file:/keys/k1")
    pair = load_pair(path)
    assert pair.sites["a"].wal_keys == f"w1=file:{path.parent / 'w1.key'},plain"
    assert pair.sites["a"].remote_log_keys == pair.sites["b"].remote_log_keys == "k2=env:K2,k1=file:/keys/k1"
