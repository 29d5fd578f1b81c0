"""`python -m chaos hdfs`: one real HDFS or two on this machine, in the foreground, until SIGINT or SIGTERM.

What always holds: hdfs.json in the folder is there, whole, exactly while all clusters are ready; every daemon is stopped
when the command ends; the folder is kept, and the next start continues from it at the same addresses. A daemon that dies
is reported and not started again: it may be an experiment. Exit codes: 0 after a signal, 1 when something failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
from rich.console import Console

from chaos.servers import hdfs_jars
from chaos.servers.daemon import Daemon
from chaos.servers.hdfs_cluster import HdfsCluster
from gateway.stopping import Stopped, ignore_signals, stopping
from twinlog.errors import TwinlogError

NAMES = ("a", "b")
WATCH_S = 0.5


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos hdfs", description="A real HDFS on 127.0.0.1, until Ctrl-C.")
    parser.add_argument("--dir", type=Path, metavar="D", help="where it lies; kept, and continued by the next start")
    parser.add_argument("--clusters", type=int, choices=(1, 2), default=1, help="2: one for each site (default 1)")
    parser.add_argument("--data-nodes", type=int, default=1, metavar="N", help="of each cluster (default 1)")
    parser.add_argument("--fetch", action="store_true", help="only bring the servers' jar into the cache")
    chosen = parser.parse_args(given)
    if chosen.dir is None and not chosen.fetch:
        parser.error("--dir is missing: say where the HDFS is to lie")
    if chosen.data_nodes < 1:
        parser.error("--data-nodes must be at least 1")
    return chosen


def main(given: list[str]) -> int:
    chosen = arguments(given)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    try:
        with stopping():
            console.print(f"the servers' jar: {hdfs_jars.fetch()}")
            return 0 if chosen.fetch else _run(console, chosen.dir, chosen.clusters, chosen.data_nodes)
    except Stopped:
        return 0
    except TwinlogError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _run(console: Console, folder: Path, count: int, data_nodes: int) -> int:
    note = folder / "hdfs.json"
    note.unlink(missing_ok=True)
    with ExitStack() as running:
        clusters: dict[str, HdfsCluster] = {}
        for name in NAMES[:count]:
            console.print(f"starting the HDFS {name} in {folder / name}")
            clusters[name] = running.enter_context(HdfsCluster(folder / name, data_nodes))
        document = {
            name: {
                "uri": cluster.uri, "web_url": cluster.web_url, "user": cluster.user,
                "pids": {daemon.name: daemon.pid for daemon in cluster.daemons},
            }
            for name, cluster in clusters.items()
        }
        temporary = note.with_suffix(".part")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(document)))
        temporary.replace(note)
        running.callback(note.unlink, missing_ok=True)
        for name, cluster in clusters.items():
            console.print(f"HDFS {name}: {cluster.uri}, WebHDFS {cluster.web_url}, user {cluster.user}")
        console.print(f"ready; {note} has it for programs. Ctrl-C stops everything.")
        running.callback(ignore_signals)
        _watch(console, [daemon for cluster in clusters.values() for daemon in cluster.daemons])
    return 1


def _watch(console: Console, daemons: list[Daemon]) -> None:
    """Returns when none is left."""
    while daemons:
        time.sleep(WATCH_S)
        for daemon in [each for each in daemons if not each.is_running]:
            daemons.remove(daemon)
            console.print(f"{daemon.name} in {daemon.folder} has ended; the end of its log:\n{daemon.log_tail()}")


