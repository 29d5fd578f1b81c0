"""A real HDFS on this machine: one NameNode and some DataNodes as child processes, with every handle a fault needs.

What always holds: all of it lies in one folder and on 127.0.0.1, with ports that the folder keeps, so that a restart is
the same cluster at the same address; `start` returns when WebHDFS answers, every DataNode is live and the NameNode has
left safe mode; every wait has a deadline and raises DfsError with what it waited for. All calls block: a test on an event
loop calls them with `asyncio.to_thread`.
Source: reference hdfs-clients.md, docs/decisions/2026-11-21-a-real-hdfs-for-tests.md.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from getpass import getuser
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from chaos.servers import hdfs_jars
from chaos.servers.daemon import Daemon
from chaos.servers.hdfs_settings import HOST, load_ports, write_data_node, write_name_node
from remote_log.dfs.hdfs.jvm import java_program
from twinlog.errors import DfsError

READY_DEADLINE_S = 300.0  # generous, as the others: Java starts slowly on a machine under load
ADMIN_DEADLINE_S = 300.0
ANSWER_DEADLINE_S = 30.0
FRESH_S = 3  # a DataNode's last heartbeat; they come every second
POLL_S = 0.1
_SERVER = "org.apache.hadoop.hdfs.server"
# A small heap, one collector thread and only the quick compiler: these live for seconds, next to others.
_JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")


@dataclass(frozen=True, slots=True)
class HdfsStatus:
    """As the NameNode reports it; `answers` is False, and the rest empty, when it does not."""

    answers: bool
    safe_mode: bool = False
    live: int = 0  # DataNodes
    dead: int = 0
    free_bytes: int = 0
    missing_blocks: int = 0


class HdfsCluster:
    """`folder` is made, or holds an earlier cluster that continues. `name_node` and `data_nodes` are its daemons."""

    name_node_class = f"{_SERVER}.namenode.NameNode"

    def __init__(self, folder: Path, data_nodes: int = 1, replication: int = 1) -> None:
        self.folder = folder.absolute()
        self._replication = replication
        self._java = str(java_program())
        self._class_path = [str(path) for path in hdfs_jars.class_path()]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._ports = load_ports(self.folder / "ports.json", data_nodes)
        write_name_node(self._conf("namenode"), self._ports, self._data("namenode"), replication)
        self.name_node = self._daemon("namenode", self.name_node_class)
        self.data_nodes: list[Daemon] = []
        for _ in range(data_nodes):
            self._prepare_data_node()

    @property
    def uri(self) -> str:
        """Returns the address for Hadoop's client."""
        return f"hdfs://{HOST}:{self._ports.rpc}"

    @property
    def web_url(self) -> str:
        """Returns the address for WebHDFS."""
        return f"http://{HOST}:{self._ports.web}"

    def data_node_web_url(self, number: int) -> str:
        """`number` counts from 0."""
        return f"http://{HOST}:{self._ports.data_nodes[number][1]}"

    @property
    def data_node_ports(self) -> list[int]:
        """By which the NameNode names them."""
        return [data for data, _, _ in self._ports.data_nodes]

    @property
    def user(self) -> str:
        """The superuser: who runs the daemons."""
        return getuser()

    @property
    def daemons(self) -> list[Daemon]:
        return [self.name_node, *self.data_nodes]

    # ---- the whole
    def start(self) -> None:
        """Format when the folder is new, start what does not run, wait until all is ready. Raises DfsError."""
        if not self._data("namenode").exists():
            self._run(self.name_node_class, "-format", "-force", "-nonInteractive")
        try:
            for daemon in self.daemons:
                if not daemon.is_running:
                    daemon.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """DataNodes first: they would complain of a NameNode that is gone."""
        for daemon in reversed(self.daemons):
            daemon.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def heal(self) -> None:
        """Undo every fault of this module but lost data: all daemons run awake, and safe mode is off."""
        for daemon in self.daemons:
            if daemon.is_running:
                daemon.resume()
            else:
                daemon.start()
        self.wait(lambda status: status.answers, "the NameNode answers")
        if self.status().safe_mode:
            self.safe_mode(False)
        self.wait_ready()

    # ---- what it says of itself
    def status(self) -> HdfsStatus:
        try:
            state = _bean(self.web_url, "NameNode", "FSNamesystemState")
            info = _bean(self.web_url, "NameNode", "NameNodeInfo")
            self._check_serves()
        except (httpx.HTTPError, ValueError, LookupError, OSError):
            return HdfsStatus(False)
        return HdfsStatus(
            True, bool(info["Safemode"]), state["NumLiveDataNodes"], state["NumDeadDataNodes"], state["CapacityRemaining"],
            info["NumberOfMissingBlocks"],
        )

    def syncs(self, number: int = 0) -> tuple[int, int]:
        """Returns how often that DataNode has synced a block to its disk, and flushed one at all, as of METRICS_S ago at most.

        `number` counts from 0. Raises httpx.HTTPError when it does not answer.
        """
        activity = _bean(self.data_node_web_url(number), "DataNode", f"DataNodeActivity-{HOST}-{self.data_node_ports[number]}")
        return int(activity["FsyncCount"]), int(activity["FlushNanosNumOps"])

    def wait_ready(self, deadline_s: float = READY_DEADLINE_S) -> HdfsStatus:
        """Every DataNode that runs is live and has room, and writes are taken."""
        def is_ready(status: HdfsStatus) -> bool:
            for daemon in self.daemons:
                daemon.check()
            if status.live < len(self.data_nodes) or status.free_bytes == 0 or status.safe_mode:
                return False
            return all(self._is_served(number) for number in range(len(self.data_nodes)))

        return self.wait(is_ready, f"{len(self.data_nodes)} DataNodes are live and safe mode is off", deadline_s)

    def wait(self, holds: Callable[[HdfsStatus], bool], what: str, deadline_s: float = READY_DEADLINE_S) -> HdfsStatus:
        """Ask until `holds`; `what` is said in the error when it does not by the deadline."""
        due_s = time.monotonic() + deadline_s
        while not holds(status := self.status()):
            if time.monotonic() > due_s:
                raise DfsError(
                    f"the HDFS in {self.folder}: not within {deadline_s} s: {what}; the last it said was {status}; the end of"
                    f" the NameNode's log:\n{self.name_node.log_tail()}"
                )
            time.sleep(POLL_S)
        return status

    # ---- faults and limits
    def make_folder(self, path: str) -> None:
        try:
            self._webhdfs("PUT", path, "MKDIRS")
        except httpx.HTTPError as error:
            raise DfsError(f"cannot make {path} on the HDFS in {self.folder}: {error}") from error

    def safe_mode(self, on: bool) -> None:
        self.admin("-safemode", "enter" if on else "leave")

    def set_quota(self, path: str, space_bytes: int | None) -> None:
        """Limits the folder `path` to so many bytes, all replicas counted; None: no limit. A new block counts whole."""
        self.admin("-clrSpaceQuota", path) if space_bytes is None else self.admin("-setSpaceQuota", str(space_bytes), path)

    def add_data_node(self) -> Daemon:
        """Another DataNode, started; returns when it is live."""
        daemon = self._prepare_data_node()
        daemon.start()
        self.wait_ready()
        return daemon

    def wipe(self, daemon: Daemon) -> None:
        """Throw a daemon's disk away. It must not run; started again, a DataNode is a new one."""
        if daemon.is_running:
            raise DfsError(f"{daemon.name} runs (pid {daemon.pid}): stop or kill it first")
        shutil.rmtree(self._data(daemon.name))

    def admin(self, *arguments: str) -> str:
        """`hdfs dfsadmin ...`: its output. Raises DfsError when it fails. Takes a second or two: it starts a Java."""
        return self._run("org.apache.hadoop.hdfs.tools.DFSAdmin", *arguments)

    # ---- within
    def _check_serves(self) -> None:
        """Raises httpx.HTTPError or OSError."""
        self._webhdfs("GET", "/", "GETFILESTATUS")

    def _prepare_data_node(self) -> Daemon:
        number = len(self.data_nodes)
        name = f"datanode{number + 1}"
        self._ports = load_ports(self.folder / "ports.json", number + 1)
        write_data_node(self._conf(name), self._ports, number, self._data(name), self._replication)
        daemon = self._daemon(name, f"{_SERVER}.datanode.DataNode")
        self.data_nodes.append(daemon)
        return daemon

    def _daemon(self, name: str, main: str) -> Daemon:
        return Daemon(name, self._command(name, main), self.folder)

    def _command(self, name: str, main: str) -> list[str]:
        conf = self._conf(name)
        return [
            self._java, *_JAVA_OPTIONS, f"-Dlog4j2.configurationFile={conf / 'log4j2.properties'}",
            "-cp", ":".join([str(conf), *self._class_path]), main,
        ]

    def _run(self, main: str, *arguments: str) -> str:
        command = [*self._command("namenode", main), *arguments]
        told = " ".join([main.rpartition(".")[2], *arguments])
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=ADMIN_DEADLINE_S, check=False, cwd=self.folder
            )
        except subprocess.TimeoutExpired as error:
            raise DfsError(f"{told} did not end within {ADMIN_DEADLINE_S} s on the HDFS in {self.folder}") from error
        if done.returncode != 0:
            said = "\n".join((done.stdout + done.stderr).splitlines()[-10:])
            raise DfsError(f"{told} failed on the HDFS in {self.folder}:\n{said}")
        return done.stdout

    def _is_served(self, number: int) -> bool:
        """The DataNode's own word: to the NameNode it is live for 12 s after it died."""
        try:
            told = msgspec.json.decode(_bean(self.data_node_web_url(number), "DataNode", "DataNodeInfo")["BPServiceActorInfo"])
        except (httpx.HTTPError, ValueError, LookupError):
            return False
        return any(
            actor["ActorState"] == "RUNNING" and actor["NamenodeHaState"] == "active"
            and int(actor["LastHeartbeatResponseTime"]) <= FRESH_S for actor in told
        )

    def _webhdfs(self, method: str, path: str, operation: str) -> None:
        """Raises httpx.HTTPError."""
        _ask(method, f"{self.web_url}/webhdfs/v1{path}", op=operation, **{"user.name": self.user}).raise_for_status()

    def _conf(self, name: str) -> Path:
        return self.folder / f"{name}.conf"

    def _data(self, name: str) -> Path:
        return self.folder / f"{name}.data"


def _bean(url: str, service: str, name: str) -> dict[str, Any]:
    """Raises httpx.HTTPError, ValueError or LookupError when it does not answer, or not that."""
    bean: dict[str, Any] = _ask("GET", f"{url}/jmx", qry=f"Hadoop:service={service},name={name}").json()["beans"][0]
    return bean


def _ask(method: str, url: str, **parameters: str) -> httpx.Response:
    return httpx.request(method, url, params=parameters, timeout=ANSWER_DEADLINE_S, trust_env=False)
