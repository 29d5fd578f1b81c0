"""A Spark session with the data source `twinlog`: on a local master, or on whichever is named.

What always holds: a Java that is missing or too old, and a PySpark that is not installed, are one clear ConfigError before
anything starts; the session uses this very interpreter and this very package, on executors elsewhere too; on a local master
nothing listens but on loopback, and Spark authenticates its own connections. What Spark writes on standard error goes where
standard error points when the session is opened (run.py: a file of the audit).
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.audit.java import java_program
from twinlog.errors import ConfigError, Unavailable, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
CONNECT_DEADLINE_S = 5.0
EXECUTOR_DEADLINE_S = 90.0
POLL_S = 0.1
PACKAGES = ("spark_jobs", "storage", "remote_log", "twinlog")  # what executors import
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",  # the view log skips by it, and Spark refuses it otherwise
}


_LOCAL_SETTINGS = {  # Spark binds to every address of the machine otherwise, and serves blocks of rows there to whoever asks
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.authenticate": "true",
}


def open_session(master: str | None, app: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A new session, or the one that spark-submit made. `master` None: spark-submit's, else every core of this machine.

    `settings`: Spark's own keys, over those of this module. Raises ConfigError.
    """
    check_installed()
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        java_program()
        if (master or LOCAL).startswith("local"):
            os.environ["SPARK_LOCAL_IP"] = LOOPBACK
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        _put_on_pythonpath(_root())
    from pyspark.sql import SparkSession

    if master is not None:
        _check_reachable(master)
    builder = SparkSession.builder.appName(app)
    if master is not None or not submitted:
        builder = builder.master(master or LOCAL)
    is_local = (master or LOCAL).startswith("local") and not (submitted and master is None)
    for key, value in {**_SETTINGS, **(_LOCAL_SETTINGS if is_local else {}), **(settings or {})}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # Py4J's, Spark's own, or Java's end
        where = f"on {master}" if master else "on this machine"
        raise ConfigError(f"Spark cannot be started {where}: {in_words(error)}") from error
    if not str(spark.sparkContext.master).startswith("local"):
        _wait_executors(spark)
        spark.sparkContext.addPyFile(str(_packed()))
    from spark_jobs.data_source import TwinlogSource

    spark.dataSource.register(TwinlogSource)
    return spark


@contextmanager
def own_session(master: str | None, app: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """`open_session`, stopped at the end."""
    spark = open_session(master, app, settings)
    try:
        yield spark
    finally:
        with suppress(Exception):  # Java has ended already; what was found is written
            spark.stop()


def check_installed() -> None:
    """Raises ConfigError when there is no PySpark."""
    if importlib.util.find_spec("pyspark") is None:
        raise ConfigError("the package pyspark is not installed: install twinlog-server with its extra `spark`")


def _root() -> Path:
    """The folder that holds this package."""
    return Path(__file__).resolve().parents[2]


def _put_on_pythonpath(folder: Path) -> None:
    """Lets Spark's Python workers on this machine import `folder`, whatever folder this process runs in."""
    parts = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in parts:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, parts)])


def _packed() -> Path:
    """The packages that executors import, in one zip that Spark sends them."""
    path = Path(tempfile.mkdtemp(prefix="twinlog-")) / "twinlog.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for file in sorted((_root() / package).rglob("*.py")):
                archive.write(file, file.relative_to(_root()))
    return path


def _check_reachable(master: str) -> None:
    """Finds out at once that a standalone master is out of reach; Spark needs a minute. Raises ConfigError."""
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host, int(port)), CONNECT_DEADLINE_S):
            return
    raise ConfigError(f"no Spark master answers at {master}: start it, or correct --master")


def _wait_executors(spark: SparkSession) -> None:
    """Raises Unavailable when the cluster gives this job no executor: its tasks would wait for ever."""
    until_s = time.monotonic() + EXECUTOR_DEADLINE_S
    while len(spark.sparkContext.statusTracker().getExecutorInfos()) < 2:  # the driver is one of them
        if time.monotonic() > until_s:
            master = spark.sparkContext.master
            spark.stop()
            raise Unavailable(
                f"{master} gave this job no executor within {EXECUTOR_DEADLINE_S:.0f} s: look whether it has workers with free "
                "cores, and memory for --conf spark.executor.memory=..."
            )
        time.sleep(POLL_S)


def in_words(error: Exception) -> str:
    """Returns the message of an error of Spark or Py4J, in one line without Java's calls."""
    lines = [line.strip() for line in words(error).splitlines() if line.strip()]
    raised = next((line[2:] for line in lines if line.startswith(": ")), None)  # Py4J: what Java raised, below what was called
    return raised or lines[0]
