"""A configuration is right as a whole, or every fault of it is told at once."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from gateway.config import loading
from gateway.config.loading import load_operator_config, load_site_config
from gateway.config.model import SiteConfig
from gateway.config.reading import REMOVED, effective
from switchover.register.sql import CoordinatorSettings
from tools.sources import ROOT
from twinlog.errors import ConfigError

GOOD = """
pair = "shop"
site = "a"
data_dir = "data"
[peer]
site = "b"
url = "http://127.0.0.1:8402"
[dfs.own]
path = "dfs"
[dfs.peer]
path = "../b/dfs"
"""


POSTGRESQL = """
[engine]
kind = "postgresql"
url = "postgresql+psycopg://u@h/d"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "site.toml"
    path.write_text(text, encoding="utf-8")
    return path


def faults(path: Path, environ: dict[str, str] | None = None) -> dict[str, dict[str, str]]:
    with pytest.raises(ConfigError) as caught:
        load_site_config(path, environ or {})
    found = caught.value.fields["faults"]
    assert isinstance(found, list)
    assert str(len(found)) in caught.value.message
    return {fault["key"]: fault for fault in found}


def test_traces_are_off_unless_they_are_asked_for_and_every_fault_of_theirs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_site_config(write(tmp_path, GOOD), {}).traces is None
    good = '[traces]\nendpoint = "http://127.0.0.1:4318/v1/traces"\n'
    found = faults(write(tmp_path, GOOD + '[traces]\nendpoint = "collector:4318"\nratio = 1.5\nrate = 1\n'))
    assert set(found) == {"traces.endpoint", "traces.ratio", "traces.rate"}
    assert set(faults(write(tmp_path, GOOD + "[traces]\nratio = 0.5\n"))) == {"traces.endpoint"}
    monkeypatch.setattr(loading, "missing_package", lambda: "opentelemetry.sdk")
    found = faults(write(tmp_path, GOOD + good + "[lease]\nlease_s = 0.1\nnoop_interval_s = 9\n"))
    assert {"traces", "lease.noop_interval_s"} <= set(found)
    assert "extra `traces`" in found["traces"]["allowed"]
    monkeypatch.setattr(loading, "missing_package", lambda: None)
    config = load_site_config(write(tmp_path, GOOD + good), {})
    assert config.traces is not None
    assert config.traces.ratio == 0.01


def test_a_minimal_file_gives_every_default_and_absolute_paths(tmp_path: Path) -> None:
    config = load_site_config(write(tmp_path, GOOD), {})
    assert config.data_dir == tmp_path.resolve() / "data"
    assert config.dfs.peer.path == tmp_path.resolve().parent / "b/dfs"
    assert config.engine.folder(config.data_dir) == config.data_dir / "engine"
    assert config.coordinator is None
    assert (config.policy, config.initial_active, config.http.url) == ("protect", "a", "http://127.0.0.1:8401")
    assert (config.lease.lease_s, config.lease.drift_margin, config.lease.noop_interval_s) == (1.0, 0.2, 0.25)


def test_the_environment_is_put_over_the_file_and_the_sources_say_so(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "[lease]\nlease_s = 2.0\n")
    environ = {"TWINLOG_HTTP__PORT": "9000", "TWINLOG_POLICY": "performance", "TWINLOG_DFS__PEER__PATH": "/elsewhere"}
    config = load_site_config(path, environ | {"TWINLOG_CONFIG": "x", "HOME": "/"})
    assert (config.http.port, config.policy, str(config.dfs.peer.path)) == (9000, "performance", "/elsewhere")
    shown = {key: (value, source) for key, value, source in effective(config)}
    assert shown["http.port"] == (9000, "environment TWINLOG_HTTP__PORT")
    assert shown["lease.lease_s"] == (2.0, str(path))
    assert shown["wal.segment_bytes"][1] == "default"


def test_a_list_is_given_in_the_file_or_with_commas(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD + "[http]\nallowed_hosts = ['orders.example', 'b']\n")
    http = load_site_config(path, {"TWINLOG_HTTP__CORS_ORIGINS": "https://a.example, http://[::1]:80"}).http
    assert (http.allowed_hosts, http.cors_origins) == (("orders.example", "b"), ("https://a.example", "http://[::1]:80"))


@pytest.mark.parametrize(("text", "key", "said", "allowed"), [
    (GOOD + "[wal]\ndata_dir = 'x'\n", "wal.data_dir", "belongs above the first section, as data_dir", "data_dir = ..."),
    ("allowed_hosts = ['x']\n" + GOOD, "allowed_hosts", "belongs in the section [http], as http.allowed_hosts",
     "[http], and below it: allowed_hosts = ..."),
    (GOOD + "[http.lease]\n", "http.lease", "this section is [lease]", "[lease]"),
    (GOOD + "[oidc]\nissuer = 'x'\n", "oidc", "this section is [access.oidc]", "[access.oidc]"),
    (GOOD.replace("[peer]\n", "[http.peer]\n"), "http.peer", "this section is [peer]", "[peer]"),
    (GOOD.replace("[dfs.", "[http.dfs."), "http.dfs", "this section is [dfs]", "[dfs]"),
    ("port = 1\n" + GOOD, "port", "did you mean http.port or peer_http.port?", "pair"),
])
def test_a_key_at_a_wrong_place_is_named_with_its_place(
    tmp_path: Path, text: str, key: str, said: str, allowed: str,
) -> None:
    found = faults(write(tmp_path, text))
    assert said in found[key]["problem"]
    assert allowed in found[key]["allowed"]
    assert set(found) == {key}, "what is misplaced is not missing, too"


def test_five_faults_are_told_at_once_with_file_key_and_what_is_allowed(tmp_path: Path) -> None:
    without_pair = GOOD.replace('pair = "shop"\n', "")
    path = write(tmp_path, without_pair + "[http]\nprot = 1\nport = 70000\n[lease]\nnoop_interval_s = 0.9\n")
    found = faults(path, {"TWINLOG_COMMIT__QUEUE_BYTES_MAX": "lots"})
    assert set(found) == {"pair", "http.prot", "http.port", "commit.queue_bytes_max"}, "without `pair` checks across keys wait"
    assert "did you mean http.port?" in found["http.prot"]["problem"]
    assert found["http.port"]["allowed"] == "a whole number from 1 to 65535"
    assert found["http.port"]["file"] == str(path)
    assert found["commit.queue_bytes_max"]["file"] == "TWINLOG_COMMIT__QUEUE_BYTES_MAX"
    complete = write(tmp_path, "pair = 'p'\npolicy = 'protct'\n" + path.read_text())
    found = faults(complete, {"TWINLOG_COMMIT__QUEUE_BYTES_MAX": "lots"})
    assert set(found) == {"policy", "http.prot", "http.port", "commit.queue_bytes_max", "lease.noop_interval_s"}
    assert "did you mean 'protect'?" in found["policy"]["problem"]


@pytest.mark.parametrize(
    ("addition", "environ", "key"),
    [
        ("", {"TWINLOG_PEER__SITE": "a"}, "peer.site"),
        ("", {"TWINLOG_PAIR": "../up"}, "pair"),
        ("", {"TWINLOG_PEER__URL": "ftp://x"}, "peer.url"),
        ("", {"TWINLOG_PEER__URL": "http://me:pw@x"}, "peer.url"),
        ("", {"TWINLOG_PEER__URL": "http://x:port"}, "peer.url"),
        ("", {"TWINLOG_HTTP__HOST": "0.0.0.0"}, "http.advertised_url"),
        ("", {"TWINLOG_DFS__PEER__PATH": "dfs"}, "dfs.peer.path"),
        ("", {"TWINLOG_POLICY": "available"}, "policy"),
        ("", {"TWINLOG_DATA_DIR": ""}, "data_dir"),
        ("", {"TWINLOG_HTP__PORT": "1"}, "TWINLOG_HTP__PORT"),
        ("[coordinator]\nurl = 'sqlite:///relative.db'\n", {}, "coordinator.url"),
        ("[coordinator]\nurl = 'postgresql://u:secret@h/d'\n", {}, "coordinator.url"),
        ("[coordinator]\nurl = 'env:NOT_SET'\n", {}, "coordinator.url"),
        ("[coordinator]\nurl = 'file:absent'\n", {}, "coordinator.url"),
        ("[coordinator]\nurl = 5\n", {}, "coordinator.url"),
        ("[coordinator]\nurl = 'postgresql://u@h/d'\n", {}, "coordinator.url"),
        ("[journal]\nurl = 'postgres://u@h/d'\n", {}, "journal.url"),
        ("[engine]\nkind = 'mysql'\n", {}, "engine.kind"),
        ("[engine]\nkind = 'postgresql'\n", {}, "engine.url"),
        ("[engine]\nkind = 'postgresql'\nurl = 'postgresql://u@h/d'\n", {}, "engine.url"),
        ("[engine]\nkind = 'postgresql'\nurl = 'postgresql+psycopg2://u@h/d'\n", {}, "engine.url"),
        ("[engine]\nkind = 'postgresql'\nurl = 'sqlite:////x.db'\n", {}, "engine.url"),
        ("[engine]\nkind = 'postgresql'\nurl = 'postgresql+psycopg://u:secret@h/d'\n", {}, "engine.url"),
        (POSTGRESQL + "password = 'secret'\n", {}, "engine.password"),
        (POSTGRESQL + "[http]\nkey_bytes_max = 4096\n", {}, "http.key_bytes_max"),
        ("[engine]\nurl = 'postgresql+psycopg://u@h/d'\n", {}, "engine.url"),
        ("[engine]\nkind = 'sqlite'\npassword = 'env:PW'\n", {"PW": "x"}, "engine.password"),
        ("[http]\nport = true\n", {}, "http.port"),
        ("[http]\nallowed_hosts = 'a.example'\n", {}, "http.allowed_hosts"),
        ("[http]\nallowed_hosts = ['a.example:80']\n", {}, "http.allowed_hosts"),
        ("[http]\nallowed_hosts = ['*']\n", {}, "http.allowed_hosts"),
        ("[http]\ncors_origins = ['*']\n", {}, "http.cors_origins"),
        ("[http]\ncors_origins = ['https://a.example/']\n", {}, "http.cors_origins"),
        ("[http]\ncors_origins = [5]\n", {}, "http.cors_origins"),
        ("", {"TWINLOG_HTTP__CORS_ORIGINS": "https://a.example,,"}, "http.cors_origins"),
        ("[http]\nport = 80.5\n", {}, "http.port"),
        ("[http]\nrequest_deadline_s = 100\n", {}, "http.request_deadline_s"),
        ("[http]\nrow_bytes_max = 8_000_000\nbody_bytes_max = 1_000_000\n", {}, "http.row_bytes_max"),
        ("[commit]\nqueue_bytes_max = 100_000\n", {}, "commit.frame_bytes_max"),
        ("[lease]\nlease_s = nan\n", {}, "lease.lease_s"),
        ("wal = 3\n", {}, "dfs.peer.wal"),
        ("[unknown]\n", {}, "unknown"),
    ],
)
def test_each_wrong_value_is_a_fault_of_its_key(tmp_path: Path, addition: str, environ: dict[str, str], key: str) -> None:
    assert key in faults(write(tmp_path, GOOD + addition), environ)


@pytest.mark.parametrize("key", REMOVED)
def test_a_key_that_was_removed_says_which_line_to_delete(tmp_path: Path, key: str) -> None:
    section, _, name = key.partition(".")
    found = faults(write(tmp_path, GOOD + f"[{section}]\n{name} = 1\n"))
    assert (list(found), found[key]["problem"], found[key]["allowed"]) == (
        [key], "was removed: it had no effect of its own", "nothing: delete the line"
    )


def test_figures_that_are_not_the_users_to_set_are_no_keys(tmp_path: Path) -> None:
    text = "trim_interval_s = 1\nsources = {}\n" + GOOD + "[commit]\nroll_retry_s = 1\n[replication]\nbase = {}\n"
    assert set(faults(write(tmp_path, text))) == {"trim_interval_s", "sources", "commit.roll_retry_s", "replication.base"}


def test_a_check_across_keys_is_silent_when_the_other_key_is_faulty(tmp_path: Path) -> None:
    text = GOOD + "[http]\nrequest_deadline_s = 100\nrequest_deadline_max_s = 'x'\n"
    assert set(faults(write(tmp_path, text))) == {"http.request_deadline_max_s"}


def test_secrets_are_found_by_reference_and_masked(tmp_path: Path) -> None:
    secret = "postgresql+psycopg://u:s3cret@host/db"
    by_env = load_site_config(write(tmp_path, GOOD + "[coordinator]\nurl = 'env:DB'\n"), {"DB": secret})
    (tmp_path / "url.txt").write_text(secret + "\n", encoding="utf-8")
    by_file = load_site_config(write(tmp_path, GOOD + "[coordinator]\nurl = 'file:url.txt'\n"), {})
    assert by_env.coordinator == by_file.coordinator == CoordinatorSettings(url=secret)
    for config in (by_env, by_file):
        assert "s3cret" not in repr(config)
        assert "s3cret" not in repr(list(effective(config)))
        assert dict((key, value) for key, value, _ in effective(config))["coordinator.url"] == "postgresql+psycopg://***@host/db"


def test_the_password_of_the_storage_is_found_by_reference(tmp_path: Path) -> None:
    config = load_site_config(write(tmp_path, GOOD + POSTGRESQL + "password = 'env:PW'\n"), {"PW": "s3cret"})
    assert (config.engine.url, config.engine.password) == ("postgresql+psycopg://u@h/d", "s3cret")
    assert "s3cret" not in repr(config)
    assert "s3cret" not in repr(list(effective(config)))


def test_the_example_with_postgresql_is_right(tmp_path: Path) -> None:
    example = (ROOT / "docs" / "site-postgresql.toml").read_text(encoding="utf-8")
    (tmp_path / "coordinator.url").write_text("postgresql+psycopg://c@h/c\n", encoding="utf-8")
    environ = {"TWINLOG_A_PASSWORD": "s3cret", "TWINLOG_A_JOURNAL": "postgresql+psycopg://j:pw@h/j"}
    config = load_site_config(write(tmp_path, example), environ)
    assert (config.engine.kind, config.engine.password) == ("postgresql", "s3cret")
    assert config.journal.address(config.data_dir) == environ["TWINLOG_A_JOURNAL"]


def test_a_section_may_come_from_the_environment_alone(tmp_path: Path) -> None:
    environ = {"TWINLOG_COORDINATOR__URL": f"sqlite:///{tmp_path}/c.db"}
    config = load_site_config(write(tmp_path, GOOD), environ)
    assert config.coordinator == CoordinatorSettings(url=environ["TWINLOG_COORDINATOR__URL"])


@pytest.mark.parametrize("content", [None, b"not = = toml", b"\xff\xfe"])
def test_an_absent_or_broken_file_is_a_fault_too(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "site.toml"
    if content is not None:
        path.write_bytes(content)
    assert faults(path)[""]["file"] == str(path)


def test_the_operator_knows_both_sites(tmp_path: Path) -> None:
    path = write(tmp_path, 'pair = "p"\n[sites.a]\nurl = "http://x:1/"\n[sites.b]\nurl = "http://x:2"\n')
    assert load_operator_config(path, {}).urls == {"a": "http://x:1", "b": "http://x:2"}
    same = write(tmp_path, 'pair = "p"\n[sites.a]\nurl = "http://x:1/"\n[sites.b]\nurl = "http://x:1"\n')
    with pytest.raises(ConfigError):
        load_operator_config(same, {})


def test_the_configuration_is_frozen(tmp_path: Path) -> None:
    config = load_site_config(write(tmp_path, GOOD), {})
    with pytest.raises(AttributeError):
        config.policy = "x"  # type: ignore[misc]
    assert isinstance(config, SiteConfig)


HDFS = """
pair = "shop"
site = "a"
data_dir = "data"
[peer]
site = "b"
url = "http://127.0.0.1:8402"
[dfs]
jvm_heap_bytes = 134217728
[dfs.own]
path = "dfs"
[dfs.peer]
kind = "hdfs"
url = "hdfs://nn.example.org:8020/twinlog"
"""


def test_an_hdfs_with_hadoops_own_files_and_keys(tmp_path: Path) -> None:
    (tmp_path / "hadoop").mkdir()
    keys = 'conf_dir = "hadoop"\nuser = "twinlog"\n[dfs.peer.options]\n"dfs.replication" = 2\n"ipc.client.tcpnodelay" = true\n'
    config = load_site_config(write(tmp_path, HDFS + keys), {"TWINLOG_DFS__PEER__SYNC": "hflush"})
    peer = config.dfs.peer
    assert (peer.kind, peer.url, peer.path, peer.conf_dir) == ("hdfs", "hdfs://nn.example.org:8020/twinlog", None,
                                                              tmp_path.resolve() / "hadoop")
    assert peer.options == {"dfs.replication": "2", "ipc.client.tcpnodelay": "true"}
    assert (peer.user, peer.sync, peer.deadline_s, config.dfs.jvm_heap_bytes) == ("twinlog", "hflush", 5.0, 128 << 20)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("hdfs://nn.example.org:8020/twinlog", "", "dfs.peer.url"),
        ("hdfs://nn.example.org:8020/twinlog", "http://nn.example.org:9870/twinlog", "dfs.peer.url"),
        ("hdfs://nn.example.org:8020/twinlog", "hdfs://nn.example.org:8020", "dfs.peer.url"),
        ('kind = "hdfs"', 'kind = "directory"\npath = "x"', "dfs.peer.url"),
        ('kind = "hdfs"', 'kind = "hdfs"\npath = "x"', "dfs.peer.path"),
        ('kind = "hdfs"', 'kind = "hdfs"\nconf_dir = "absent"', "dfs.peer.conf_dir"),
        ('kind = "hdfs"', 'kind = "hdfs"\noptions = "x"', "dfs.peer.options"),
        ('kind = "hdfs"', 'kind = "hdfs"\noptions = {a = []}', "dfs.peer.options"),
        ('kind = "hdfs"', 'kind = "hdfs"\nsync = "fsync"', "dfs.peer.sync"),
        ('kind = "hdfs"', 'kind = "hdfs"\nkerberos_principal = "x@Y"', "dfs.peer.kerberos_keytab"),
        ('path = "dfs"', 'kind = "hdfs"\nurl = "hdfs://nn.example.org:8020/twinlog/"', "dfs.peer.url"),
        ("134217728", "1000", "dfs.jvm_heap_bytes"),
    ],
)
def test_each_wrong_value_of_an_hdfs_is_a_fault(tmp_path: Path, old: str, new: str, key: str) -> None:
    assert key in faults(write(tmp_path, HDFS.replace(old, new)))


def test_the_example_with_hdfs_is_right_but_for_what_this_machine_lacks(tmp_path: Path) -> None:
    example = (ROOT / "docs" / "site-hdfs.toml").read_text(encoding="utf-8")
    assert set(faults(write(tmp_path, example))) == {"dfs.own.conf_dir"}
    (tmp_path / "hadoop").mkdir()
    config = load_site_config(write(tmp_path, example.replace("/etc/hadoop/a", "hadoop")), {})
    assert config.dfs.peer.options == {"dfs.replication": "3"}


KEY = base64.b64encode(bytes(range(32))).decode()


def test_keys_of_logs_are_found_by_reference_and_never_shown(tmp_path: Path) -> None:
    (tmp_path / "k1.key").write_text(KEY + "\n", encoding="utf-8")
    given = "[remote_log]\nencryption_keys = ['k2=env:K2', 'k1=file:k1.key', 'plain']\n"
    environ = {"K2": KEY, "TWINLOG_WAL__ENCRYPTION_KEYS": "w1=file:k1.key, plain"}
    config = load_site_config(write(tmp_path, GOOD + given), environ)
    assert [key.key_id for key in config.remote_log.encryption_keys] == ["k2", "k1", "plain"]
    assert [key.key_id for key in config.wal.encryption_keys] == ["w1", "plain"]
    assert config.remote_log.encryption_keys[1].secret == bytes(range(32))
    shown = {key: value for key, value, _ in effective(config)}
    assert shown["remote_log.encryption_keys"] == ["k2=***", "k1=***", "plain"]
    assert KEY not in f"{config!r} {shown}"


@pytest.mark.parametrize(("given", "problem"), [
    (f"['{KEY}']", "has no reference at place 1"), (f"['k1=file:k1.key', 'k2={KEY}']", "has no reference at place 2"),
    ("['k1=file:absent.key']", "cannot be read"), ("['k1=env:NOT_SET']", "NOT_SET, which is not set"),
    ("['k1=file:short.key']", "which is not 32 bytes in base64"), ("['k1=file:k1.key', 'k1=file:k1.key']", "names 'k1' twice"),
    (f"'{KEY}'", "is not a list of texts"), (f"['k1=file:k1.key', ['{KEY}']]", "is not a list of texts"),
])
def test_a_fault_of_a_key_is_named_and_the_key_is_not(tmp_path: Path, given: str, problem: str) -> None:
    (tmp_path / "k1.key").write_text(KEY, encoding="utf-8")
    (tmp_path / "short.key").write_text(KEY[:20], encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_site_config(write(tmp_path, f"{GOOD}[wal]\nencryption_keys = {given}\n"), {})
    (fault,) = raised.value.fields["faults"]  # type: ignore[misc]
    assert (fault["key"], problem in fault["problem"]) == ("wal.encryption_keys", True), fault
    assert KEY not in str(fault)
    assert KEY[:20] not in str(fault)
