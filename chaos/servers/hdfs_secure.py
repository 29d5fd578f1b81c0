"""A real HDFS that lets nobody in without a Kerberos ticket, and the key distribution centre that gives them out.

What always holds: the centre (MIT's, Debian: krb5-kdc) listens on 127.0.0.1 only, keeps all it has in the cluster's folder and
is a daemon like the others. Reads nothing of the machine's own Kerberos. The rest is that of hdfs_cluster.py.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path

from chaos.servers.daemon import Daemon
from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.hdfs_settings import HOST, load_ports, write_data_node, write_name_node
from twinlog.errors import DfsError

REALM = "TWINLOG.TEST"
SERVICE = f"nn/localhost@{REALM}"
TOOLS = ("krb5kdc", "kdb5_util", "kadmin.local")
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
_KRB5 = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {host}:{port}
 }}
"""
_KDC = """\
[kdcdefaults]
 kdc_listen = ""
 kdc_tcp_listen = {host}:{port}
[realms]
 {realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
 }}
"""


def missing() -> str | None:
    """Returns the reason why there can be no centre on this machine; None when there can."""
    lacking = [tool for tool in TOOLS if shutil.which(tool, path=_PATH) is None]
    return f"{', '.join(lacking)} not found: install krb5-kdc and krb5-admin-server (Debian, Ubuntu)" if lacking else None


class Kdc:
    """In `folder`, new; `config` is the krb5.conf that leads to it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        port = load_ports(folder / "ports.json", 0).rpc
        self.config = folder / "krb5.conf"
        self.config.write_text(_KRB5.format(realm=REALM, host=HOST, port=port))
        (folder / "kdc.conf").write_text(_KDC.format(realm=REALM, host=HOST, port=port, folder=folder))
        self._environment = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "of no use to anybody")
        given = [f"{name}={value}" for name, value in self._environment.items()]
        self.daemon = Daemon("kdc", ["env", *given, str(shutil.which("krb5kdc", path=_PATH)), "-n"], folder)

    def keytab(self, principal: str, life: str = "1 day") -> Path:
        """Makes a principal and returns its keytab; its tickets live for `life`."""
        path = self._folder / f"{principal.partition('@')[0].replace('/', '.')}.keytab"
        self._run("kadmin.local", "-q", f'addprinc -randkey -maxlife "{life}" {principal}')
        self._run("kadmin.local", "-q", f"ktadd -norandkey -k {path} {principal}")
        return path

    def _run(self, tool: str, *arguments: str) -> None:
        command = [str(shutil.which(tool, path=_PATH)), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False,
                              env={**os.environ, **self._environment})
        if done.returncode != 0:
            raise DfsError(f"{tool} failed in {self._folder}: {done.stderr}")


class SecureHdfsCluster(HdfsCluster):
    """One DataNode; all that is said to it and to the NameNode is encrypted. `client_conf_dir` holds what a client must know,
    and `open_conf_dir` the same but for the encryption; whoever has the keytab of SERVICE is the superuser."""

    def __init__(self, folder: Path) -> None:
        self.kdc = Kdc(folder.absolute() / "kdc")
        super().__init__(folder)
        self.keytab = self.kdc.keytab(SERVICE)
        client = {
            "hadoop.security.authentication": "kerberos", "dfs.namenode.kerberos.principal": SERVICE,
            "hadoop.rpc.protection": "privacy", "dfs.data.transfer.protection": "privacy",
        }
        servers = {
            **client, "dfs.block.access.token.enable": "true", "dfs.namenode.keytab.file": self.keytab,
            "dfs.datanode.kerberos.principal": SERVICE, "dfs.datanode.keytab.file": self.keytab,
            "ignore.secure.ports.for.testing": "true",  # its ports are not below 1024, and its web pages without TLS
            "dfs.web.authentication.kerberos.principal": SERVICE, "dfs.web.authentication.kerberos.keytab": self.keytab,
        }
        write_name_node(self._conf("namenode"), self._ports, self._data("namenode"), 1, servers)
        write_data_node(self._conf("datanode1"), self._ports, 0, self._data("datanode1"), 1, servers)
        self.client_conf_dir = self._conf("client")
        write_name_node(self.client_conf_dir, self._ports, self._data("none"), 1, client)
        self.open_conf_dir = self._conf("open")
        in_the_clear = {**client, "hadoop.rpc.protection": "authentication"}
        write_name_node(self.open_conf_dir, self._ports, self._data("none"), 1, in_the_clear)

    @property
    def daemons(self) -> list[Daemon]:
        return [self.kdc.daemon, *super().daemons]

    def start(self) -> None:
        """The centre first: already the formatting NameNode logs in."""
        if not self.kdc.daemon.is_running:
            self.kdc.daemon.start()
        super().start()

    def _check_serves(self) -> None:
        """WebHDFS would want a ticket."""
        socket.create_connection((HOST, self._ports.rpc), 1.0).close()

    def _command(self, name: str, main: str) -> list[str]:
        java, *rest = super()._command(name, main)
        return [java, f"-Djava.security.krb5.conf={self.kdc.config}", *rest]
