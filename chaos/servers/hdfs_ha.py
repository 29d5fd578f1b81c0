"""A real HDFS with a second NameNode that stands by: a name service, for what a client does when the active one dies.

What always holds: both NameNodes share one folder of edits, and are given their roles by `haadmin`, never by themselves (there
is no ZooKeeper); `name_node` is the one that was made active last. The rest is that of hdfs_cluster.py.
"""

from __future__ import annotations

import shutil
import socket
from contextlib import suppress
from pathlib import Path

from chaos.servers.daemon import Daemon
from chaos.servers.hdfs_cluster import HdfsCluster, HdfsStatus
from chaos.servers.hdfs_settings import HOST, Ports, load_ports, write_data_node, write_name_node

SERVICE = "pair"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
_PROXY = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
_IDS = ("namenode", "namenode2")


class HaHdfsCluster(HdfsCluster):
    """One DataNode. `client_options` and `client_conf_dir` name the name service to a client."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._addresses = {"namenode": self._ports, "namenode2": load_ports(self.folder / "ports2.json", 0)}
        self.client_options = _service(self._addresses)
        shared = {**self.client_options, "fs.defaultFS": self.uri}
        servers = {
            **shared, "dfs.namenode.shared.edits.dir": self._data("edits").as_uri(), "dfs.ha.tail-edits.period": "1s",
            "dfs.ha.fencing.methods": "shell(/bin/true)",
        }
        for name in _IDS:
            more = {**servers, "dfs.ha.namenode.id": name}
            write_name_node(self._conf(name), self._addresses[name], self._data(name), 1, more)
        write_data_node(self._conf("datanode1"), self._ports, 0, self._data("datanode1"), 1, shared)
        self.client_conf_dir = self._conf("datanode1")
        self._standby = self._daemon("namenode2", self.name_node_class)

    @property
    def uri(self) -> str:
        return f"hdfs://{SERVICE}"

    @property
    def standby_uri(self) -> str:
        return f"hdfs://{HOST}:{self._addresses[self._standby.name].rpc}"

    @property
    def web_url(self) -> str:
        return f"http://{HOST}:{self._addresses[self.name_node.name].web}"

    @property
    def daemons(self) -> list[Daemon]:
        return [*super().daemons, *([self._standby] if self._standby.is_running else [])]

    def start(self) -> None:
        """Formats a new folder and starts both NameNodes. Raises DfsError."""
        try:
            self._run(self.name_node_class, "-format", "-force", "-nonInteractive")
            shutil.copytree(self._data("namenode"), self._data("namenode2"))  # what -bootstrapStandby would fetch
            for daemon in (self.name_node, self._standby, *self.data_nodes):
                daemon.start()
            self._activate(self.name_node)
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def fail_over(self) -> None:
        """The standby becomes the active; the one that was it must be dead. Returns when writes are taken."""
        self.name_node, self._standby = self._standby, self.name_node
        self._activate(self.name_node)
        self.wait_ready()

    def _activate(self, daemon: Daemon) -> None:
        def listens(_: HdfsStatus) -> bool:
            daemon.check()
            with suppress(OSError), socket.create_connection((HOST, self._addresses[daemon.name].rpc), 1.0):
                return True
            return False

        self.wait(listens, f"{daemon.name} takes connections")
        self._run(_ADMIN, "-transitionToActive", "--forceactive", daemon.name)


def _service(addresses: dict[str, Ports]) -> dict[str, str]:
    """Returns the settings that a client needs."""
    return {
        "dfs.nameservices": SERVICE, f"dfs.ha.namenodes.{SERVICE}": ",".join(addresses),
        f"dfs.client.failover.proxy.provider.{SERVICE}": _PROXY,
        **{f"dfs.namenode.rpc-address.{SERVICE}.{name}": f"{HOST}:{ports.rpc}" for name, ports in addresses.items()},
        **{f"dfs.namenode.http-address.{SERVICE}.{name}": f"{HOST}:{ports.web}" for name, ports in addresses.items()},
    }
