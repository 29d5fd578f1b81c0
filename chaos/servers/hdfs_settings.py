"""The files that make a Hadoop server small, quick to recover, and bound to ports of its own on 127.0.0.1.

Heartbeats come every second and a silent DataNode is given up after 12 s (two rechecks and ten heartbeats), because
tests wait for both. Blocks may be as small as 4 KiB, so that a quota or a lost block needs little data. The rest is
Hadoop's own default, durability included.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import msgspec

from chaos.servers.ports import free_ports

HOST = "127.0.0.1"
METRICS_S = 1  # how old a counter may be that a daemon tells
_LOG4J = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
"""


class Ports(msgspec.Struct):
    """Kept in the cluster's folder: a client's address holds good over restarts."""

    rpc: int
    web: int
    data_nodes: list[tuple[int, int, int]]  # data, web, ipc


def load_ports(file: Path, data_nodes: int) -> Ports:
    """Those of `file`, with enough for so many DataNodes; new ones are free ones, and are written there."""
    try:
        ports = msgspec.json.decode(file.read_bytes(), type=Ports)
    except FileNotFoundError:
        rpc, web = free_ports(2)
        ports = Ports(rpc, web, [])
    while len(ports.data_nodes) < data_nodes:
        data, web, ipc = free_ports(3)
        ports.data_nodes.append((data, web, ipc))
    file.write_bytes(msgspec.json.encode(ports))
    return ports


def write_name_node(folder: Path, ports: Ports, data: Path, replication: int, more: Mapping[str, object] | None = None) -> None:
    """`more`: over what is set here."""
    _write(folder, {
        **_common(ports, replication),
        "dfs.namenode.name.dir": data.as_uri(),
        "dfs.namenode.rpc-address": f"{HOST}:{ports.rpc}",
        "dfs.namenode.http-address": f"{HOST}:{ports.web}",
        "dfs.namenode.heartbeat.recheck-interval": 1000,
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.redundancy.considerLoad": "false",  # of three nodes one that writes is "too busy" easily
        "dfs.namenode.fs-limits.min-block-size": 4096,
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.redundancy.interval.seconds": "1s",
        **(more or {}),
    })


def write_data_node(
    folder: Path, ports: Ports, number: int, data: Path, replication: int, more: Mapping[str, object] | None = None
) -> None:
    """`number` counts from 0; `more`: over what is set here."""
    own, web, ipc = ports.data_nodes[number]
    _write(folder, {
        **_common(ports, replication),
        "dfs.datanode.data.dir": data.as_uri(),
        "dfs.datanode.address": f"{HOST}:{own}",
        "dfs.datanode.http.address": f"{HOST}:{web}",
        "dfs.datanode.ipc.address": f"{HOST}:{ipc}",
        "dfs.datanode.hostname": HOST,
        **(more or {}),
    })


def _common(ports: Ports, replication: int) -> dict[str, object]:
    return {
        "fs.defaultFS": f"hdfs://{HOST}:{ports.rpc}",
        "dfs.replication": replication,
        "dfs.heartbeat.interval": 1,
        "hadoop.security.token.service.use_ip": "true",
    }


def _write(folder: Path, settings: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    root = ElementTree.Element("configuration")
    for name, value in settings.items():
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        ElementTree.SubElement(entry, "value").text = str(value)
    ElementTree.indent(root)
    for name in ("core-site.xml", "hdfs-site.xml"):
        ElementTree.ElementTree(root).write(folder / name, encoding="utf-8", xml_declaration=True)
    (folder / "log4j2.properties").write_text(_LOG4J)
    (folder / "hadoop-metrics2.properties").write_text(f"*.period={METRICS_S}\n")
