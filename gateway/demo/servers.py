"""The servers below a demo's sites, other than plain folders: two real HDFS, or a PostgreSQL with a database for each site.

What always holds: they are ready, with their roots or databases, before a site starts; they are stopped after the sites;
their folder is kept, and the next demo continues from it. Each is a process of its own: `python -m chaos hdfs`, `postgres`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from gateway.demo.child import start_child
from twinlog.decoding import OBJECT, decoded
from twinlog.errors import Unavailable, words
from twinlog.terminal import notes

ROOT = "/twinlog"
READY_DEADLINE_S = 240.0
STOP_DEADLINE_S = 60.0
POLL_S = 0.1
LOG_TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class Databases:
    """`urls`: site -> the address of its database; `password`: of all, by reference."""

    urls: dict[str, str]
    password: str


@dataclass(frozen=True, slots=True)
class HdfsRoot:
    """A site's folder on its HDFS by `url`; `web`: HOST:PORT of its NameNode for WebHDFS, which audits read by."""

    url: str
    web: str


@contextmanager
def two_hdfs(directory: Path) -> Iterator[dict[str, HdfsRoot]]:
    """Site -> its root. Raises Unavailable when they do not get ready."""
    with _servers(directory, "hdfs", "two HDFS, one for each site", "--clusters", "2") as clusters:
        for cluster in clusters.values():
            _make_root(cluster)
        yield {site: HdfsRoot(cluster["uri"] + ROOT, urlsplit(cluster["web_url"]).netloc) for site, cluster in clusters.items()}


@contextmanager
def two_databases(directory: Path) -> Iterator[Databases]:
    """A database for each site, on any port. Raises Unavailable when PostgreSQL does not get ready."""
    if os.geteuid() == 0:  # PostgreSQL then runs as another user, who passes through the folder without reading it
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(directory.stat().st_mode | 0o011)
    with _servers(directory, "postgres", "a PostgreSQL with a database for each site", "--port", "0") as note:
        yield Databases(note["urls"], note["password"])


def child_environ() -> dict[str, str]:
    """Ours, with this source tree, and without settings: a site takes its file's."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TWINLOG_")}
    root = str(Path(__file__).resolve().parents[2])
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environ.get("PYTHONPATH"))))
    return environ


@contextmanager
def _servers(directory: Path, name: str, what: str, *options: str) -> Iterator[dict[str, Any]]:
    """`python -m chaos NAME` in DIR/NAME; what its note NAME.json says when they are ready."""
    folder = directory / name
    folder.mkdir(parents=True, exist_ok=True)
    note, log_file = folder / f"{name}.json", folder / f"{name}.log"
    note.unlink(missing_ok=True)
    notes().print(f"Starting {what}; this takes a while ...")
    command = [sys.executable, "-m", "chaos", name, "--dir", str(folder), *options]
    with log_file.open("ab") as log:
        process = start_child(command, log, folder=directory, left=signal.SIGTERM, environ=child_environ())
    try:
        _wait_ready(process, note, log_file, what)
        yield decoded(OBJECT, note.read_bytes(), lambda what: Unavailable(f"{note} cannot be read: {what}"))
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_ready(process: subprocess.Popen[bytes], note: Path, log: Path, what: str) -> None:
    until_s = time.monotonic() + READY_DEADLINE_S
    while not note.exists():
        if process.poll() is not None or time.monotonic() > until_s:
            tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:])
            raise Unavailable(f"{what}: not ready; the end of {log}:\n{tail}")
        time.sleep(POLL_S)


def _make_root(cluster: dict[str, str]) -> None:
    parameters = {"op": "MKDIRS", "user.name": cluster["user"]}
    try:
        httpx.put(f"{cluster['web_url']}/webhdfs/v1{ROOT}", params=parameters, timeout=30, trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        raise Unavailable(f"cannot make {ROOT} on {cluster['uri']}: {words(error)}") from error
