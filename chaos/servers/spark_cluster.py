"""A real standalone Spark cluster on this machine, out of the PySpark package: one master and some workers as child processes.

What always holds: all of it lies in one folder and listens on 127.0.0.1; whoever speaks to it needs the secret that stands in
`spark-defaults.conf` of that folder (give a job SPARK_CONF_DIR), which nobody else may read; `start` returns when the master
counts every worker alive; every wait has a deadline and raises Unavailable with the end of a log. Executors are children of
their worker, and end with it. All calls block.
"""

from __future__ import annotations

import secrets
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from chaos.servers.daemon import Daemon
from chaos.servers.ports import free_ports
from remote_log.dfs.hdfs.jvm import java_program, pyspark_jars
from twinlog.errors import Unavailable

HOST = "127.0.0.1"
READY_DEADLINE_S = 300.0
ANSWER_DEADLINE_S = 30.0
POLL_S = 0.1
_DEPLOY = "org.apache.spark.deploy"
# A small heap, one collector thread and only the quick compiler: these live for seconds, next to others.
_JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.net.preferIPv4Stack=true"


class SparkCluster:
    """`workers` workers of `cores` cores and `memory_mb` MB for executors each."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, memory_mb: int = 512) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._port, self._web, *webs = free_ports(2 + workers)
        self._keep_secret()
        master = ("--host", HOST, "--port", str(self._port), "--webui-port", str(self._web))
        self.master = self._daemon("master", f"{_DEPLOY}.master.Master", *master)
        self.workers = [
            self._daemon(
                f"worker-{number}", f"{_DEPLOY}.worker.Worker", "--host", HOST, "--webui-port", str(web), "--cores", str(cores),
                "--memory", f"{memory_mb}m", "--work-dir", str(self.folder / f"work-{number}"), self.url,
            ) for number, web in enumerate(webs)
        ]

    @property
    def settings(self) -> Path:
        """The file with Spark's settings, and the secret, for everybody who takes part."""
        return self.folder / "spark-defaults.conf"

    def _keep_secret(self) -> None:
        self.settings.touch(mode=0o600)
        self.settings.write_text(f"spark.authenticate true\nspark.authenticate.secret {secrets.token_hex(32)}\n")

    @property
    def url(self) -> str:
        """Returns the address for `--master`."""
        return f"spark://{HOST}:{self._port}"

    def start(self) -> None:
        """Raises Unavailable."""
        try:
            for daemon in (self.master, *self.workers):
                daemon.start()
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.stop()

    def applications(self) -> list[str]:
        """Names of the applications that have run to their end."""
        return [one["name"] for one in self._state()["completedapps"]]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _daemon(self, name: str, class_name: str, *arguments: str) -> Daemon:
        """Returns a daemon with Spark's home, where a worker finds its executors' programs, and this interpreter for their
        Python."""
        home = pyspark_jars().parent
        environ = (
            f"SPARK_HOME={home}", f"SPARK_CONF_DIR={self.folder}", f"PYSPARK_PYTHON={sys.executable}", f"SPARK_LOCAL_IP={HOST}",
            f"JAVA_HOME={java_program().parents[1]}", f"SPARK_DAEMON_JAVA_OPTS={_JAVA_OPTIONS}", "SPARK_DAEMON_MEMORY=256m",
        )
        return Daemon(name, ["env", *environ, f"{home}/bin/spark-class", class_name, *arguments], self.folder)

    def _wait_ready(self) -> None:
        until_s = time.monotonic() + READY_DEADLINE_S
        while True:
            for daemon in (self.master, *self.workers):
                daemon.check()
            try:
                if self._state()["aliveworkers"] == len(self.workers):
                    return
            except (httpx.HTTPError, ValueError, KeyError):
                pass  # it is not that far yet
            if time.monotonic() > until_s:
                raise Unavailable(f"not every Spark worker is alive after {READY_DEADLINE_S:.0f} s:\n{self.master.log_tail()}")
            time.sleep(POLL_S)

    def _state(self) -> dict[str, Any]:
        answer = httpx.get(f"http://{HOST}:{self._web}/json/", timeout=ANSWER_DEADLINE_S, trust_env=False)
        found: dict[str, Any] = answer.json()
        return found
