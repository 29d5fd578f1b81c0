"""An HDFS with Kerberos, and a real KDC: the keytab lets in, goes on letting in when the ticket ends, and errors are clear."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.servers import hdfs_secure
from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.hdfs_secure import SERVICE, SecureHdfsCluster
from tests.needs import need
from tools.sources import ROOT

pytestmark = pytest.mark.long

NOBODY = f"nobody@{hdfs_secure.REALM}"
STRANGER = f"stranger@{hdfs_secure.REALM}"
BRIEF = f"brief@{hdfs_secure.REALM}"
LIFE_S = 12  # of BRIEF's tickets


@pytest.fixture(scope="module")
def secure_hdfs(hdfs_here: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureHdfsCluster]:
    need(hdfs_secure.missing())
    with SecureHdfsCluster(tmp_path_factory.mktemp("secure")) as cluster:
        yield cluster


class Client:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def do(self, what: str, **given: Any) -> str | None:
        """The error's message; None when there is none."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **given}).encode() + b"\n")
        self._process.stdin.flush()
        said = json.loads(self._process.stdout.readline())
        return said["message"] if said["error"] else None


@pytest.fixture(scope="module")
def one_client(secure_hdfs: SecureHdfsCluster) -> Iterator[Client]:
    """One for all: its Java takes long to load what Kerberos needs."""
    command = [
        sys.executable, "-m", "tests.remote_log.dfs.hdfs.kerberos_process", f"{secure_hdfs.uri}/r",
        str(secure_hdfs.client_conf_dir)
    ]
    environment = {**os.environ, "JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={secure_hdfs.kdc.config}"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment) as process:
        made = Client(process)
        assert made.do("be", kerberos_principal=SERVICE, kerberos_keytab=str(secure_hdfs.keytab)) is None
        assert made.do("make_root") is None
        yield made
        process.kill()


@pytest.fixture
def client(secure_hdfs: SecureHdfsCluster, one_client: Client) -> Client:
    """The superuser at first."""
    assert one_client.do("be", kerberos_principal=SERVICE, kerberos_keytab=str(secure_hdfs.keytab)) is None
    return one_client


def test_a_keytab_lets_in(client: Client) -> None:
    """Files are made, appended to, fenced and read: the DataNodes want a proof of who it is too."""
    assert client.do("log", path="/p/s") is None


def test_an_hdfs_that_wants_privacy_takes_no_call_in_the_clear(secure_hdfs: SecureHdfsCluster, client: Client) -> None:
    """All else here runs with `hadoop.rpc.protection` and `dfs.data.transfer.protection` on `privacy`."""
    open_conf_dir, keytab = str(secure_hdfs.open_conf_dir), str(secure_hdfs.keytab)
    said = client.do("be", kerberos_principal=SERVICE, kerberos_keytab=keytab, conf_dir=open_conf_dir) or client.do("probe")
    assert said is not None
    assert "No common protection layer" in said


def test_who_is_not_let_in_reads_what_to_check(secure_hdfs: SecureHdfsCluster, client: Client) -> None:
    keytab = str(secure_hdfs.keytab)
    stranger = str(secure_hdfs.kdc.keytab(STRANGER))
    login = "check dfs.peer.kerberos_principal and dfs.peer.kerberos_keytab"
    other = "wants another login: check dfs.peer.kerberos_principal, dfs.peer.kerberos_keytab, and that dfs.peer.conf_dir holds"
    for given, told in (
        ({"kerberos_principal": SERVICE, "kerberos_keytab": keytab + ".not"}, login),
        ({"kerberos_principal": NOBODY, "kerberos_keytab": keytab}, login),
        ({"kerberos_principal": STRANGER, "kerberos_keytab": stranger}, f"not permitted: let {STRANGER} own"),
        ({}, other),
        ({"conf_dir": None}, other),
        ({"conf_dir": None, "kerberos_principal": SERVICE, "kerberos_keytab": keytab}, other),
    ):
        assert client.do("be", **given) is None
        said = client.do("probe")
        assert said is not None, given
        assert told in said


def test_an_hdfs_without_kerberos_beside_it(
    hdfs: HdfsCluster, hdfs_root: str, secure_hdfs: SecureHdfsCluster, client: Client
) -> None:
    """In one Java machine Kerberos is on for everybody, and whether somebody may do without is said by who connects first."""
    plain = {"url": hdfs.uri + hdfs_root, "conf_dir": None, "user": hdfs.user}
    allowed = {"ipc.client.fallback-to-simple-auth-allowed": "true"}
    assert client.do("probe") is None
    assert client.do("be", **plain, options=allowed, beside=True) is None
    said = client.do("probe")
    assert said is not None
    assert '"ipc.client.fallback-to-simple-auth-allowed" = "true" in the options of both DFSs' in said
    assert client.do("be") is None
    secure = {"kerberos_principal": SERVICE, "kerberos_keytab": str(secure_hdfs.keytab)}
    assert client.do("be", **secure, options=allowed) is None
    assert client.do("log", path="/p/t") is None
    assert client.do("be", **plain, options=allowed, beside=True) is None
    assert client.do("log", path="/p/s") is None


def test_it_logs_in_again_before_the_ticket_ends(secure_hdfs: SecureHdfsCluster, client: Client) -> None:
    """Tickets live for hours, a gateway for months, and connections end when nobody needs them."""
    keytab = str(secure_hdfs.kdc.keytab(BRIEF, f"{LIFE_S} seconds"))
    often = {"ipc.client.connection.maxidletime": "100", "hadoop.kerberos.min.seconds.before.relogin": "1"}
    assert client.do("be", kerberos_principal=BRIEF, kerberos_keytab=keytab, options=often) is None
    assert client.do("list_for", duration_s=LIFE_S + 4) is None
