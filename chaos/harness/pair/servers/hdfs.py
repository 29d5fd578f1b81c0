"""HDFS of one site: a NameNode and a DataNode, and what a gateway needs so that all its calls pass the links.

What always holds: the NameNode names its DataNode `localhost` with the DataNode's own port; everybody but the gateways finds
the DataNode itself there. The Java machine of a gateway finds `localhost` at an address of its own (HOSTS), where the link to
that DataNode listens at the same port. So each gateway has a link of its own to each DataNode.
Source: reference hdfs-clients.md ("Through a proxy").
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from chaos.harness.pair.servers.server import Server
from chaos.servers.daemon import Daemon
from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.hdfs_settings import HOST, write_data_node
from gateway.demo.servers import ROOT

NAME = "localhost"  # of both DataNodes
HOSTS = {"a": "127.0.1.1", "b": "127.0.1.2"}  # where the gateway of a site finds NAME
OPTION = "dfs.client.use.datanode.hostname"


class LinkedCluster(HdfsCluster):
    """HdfsCluster with one DataNode, which is called NAME."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        named = {"dfs.datanode.hostname": NAME}
        write_data_node(self._conf("datanode1"), self._ports, 0, self._data("datanode1"), 1, named)


class OneDaemon:
    """Server. A NameNode has started when it answers; whether a DataNode can be used is its NameNode's affair."""

    def __init__(self, cluster: HdfsCluster, daemon: Daemon) -> None:
        self._cluster, self._daemon = cluster, daemon
        self._one_at_a_time = threading.Lock()
        self.is_paused = False

    @property
    def is_running(self) -> bool:
        return self._daemon.is_running

    def start(self) -> None:
        with self._one_at_a_time:
            if self.is_running:
                return
            self._daemon.start()
            if self._daemon is self._cluster.name_node:
                self._cluster.wait(lambda status: status.answers or not self.is_running, "the NameNode answers")
                self._daemon.check()

    def terminate(self) -> None:
        with self._one_at_a_time:
            self._daemon.stop()
            self.is_paused = False

    def kill(self) -> None:
        with self._one_at_a_time:
            self._daemon.kill()
            self.is_paused = False

    def pause(self) -> None:
        with self._one_at_a_time:
            self._daemon.pause()
            self.is_paused = True

    def resume(self) -> None:
        with self._one_at_a_time:
            self.is_paused = False
            self._daemon.resume()


class SiteHdfs:
    """SiteServers. `folder`: the site's own. `java_options`: of the Java machine in the gateway of this site."""

    def __init__(self, site: str, folder: Path) -> None:
        (folder / "hdfs").mkdir()
        hosts = {NAME: HOSTS[site], socket.gethostname(): HOST}  # they replace the system's names altogether
        (folder / "hosts").write_text("".join(f"{address} {name}\n" for name, address in hosts.items()), encoding="utf-8")
        self.java_options = f"-Djdk.net.hosts.file={folder / 'hosts'}"
        self.cluster = LinkedCluster(folder / "hdfs")
        name_node, data_node = self.cluster.name_node, self.cluster.data_nodes[0]
        self.servers: Mapping[str, Server] = {
            f"nn-{site}": OneDaemon(self.cluster, name_node), f"dn-{site}": OneDaemon(self.cluster, data_node),
        }

    @property
    def name_node_port(self) -> int:
        return int(self.cluster.uri.rpartition(":")[2])

    @property
    def data_node_port(self) -> int:
        return self.cluster.data_node_ports[0]

    def start(self) -> None:
        self.cluster.start()
        self.cluster.make_folder(ROOT)

    def lose(self) -> None:
        for server in self.servers.values():
            server.kill()
        for daemon in self.cluster.daemons:
            self.cluster.wipe(daemon)

    def stop(self) -> None:
        for server in self.servers.values():
            server.kill()
