"""Two real HDFS on this machine for `twinlog demo --dfs hdfs`, one for each site, in a process of their own.

What always holds: they are ready, and their roots are made, before a site starts; they are stopped after the sites; their
folder is kept, and the next demo goes on from it. The process is `python -m chaos hdfs`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import msgspec

from storage.errors import Unavailable
from switchover.terminal import notes

ROOT = "/twinlog"
READY_DEADLINE_S = 240.0
STOP_DEADLINE_S = 60.0
POLL_S = 0.1
LOG_TAIL_LINES = 5


@contextmanager
def two_hdfs(directory: Path, environ: dict[str, str]) -> Iterator[dict[str, str]]:
    """Site -> the address of its root. Raises Unavailable when they do not get ready."""
    folder = directory / "hdfs"
    folder.mkdir(parents=True, exist_ok=True)
    note, log_file = folder / "hdfs.json", folder / "hdfs.log"
    note.unlink(missing_ok=True)
    notes().print("Starting two HDFS, one for each site; this takes a while ...")
    command = [sys.executable, "-m", "chaos", "hdfs", "--dir", str(folder), "--clusters", "2"]
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environ, cwd=directory
        )
    try:
        _wait_ready(process, note, log_file)
        clusters = msgspec.json.decode(note.read_bytes())
        for cluster in clusters.values():
            _make_root(cluster)
        yield {site: cluster["uri"] + ROOT for site, cluster in clusters.items()}
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_ready(process: subprocess.Popen[bytes], note: Path, log: Path) -> None:
    until_s = time.monotonic() + READY_DEADLINE_S
    while not note.exists():
        if process.poll() is not None or time.monotonic() > until_s:
            tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:])
            raise Unavailable(f"the two HDFS of the demo did not get ready; the end of {log}:\n{tail}")
        time.sleep(POLL_S)


def _make_root(cluster: dict[str, str]) -> None:
    parameters = {"op": "MKDIRS", "user.name": cluster["user"]}
    try:
        httpx.put(f"{cluster['web_url']}/webhdfs/v1{ROOT}", params=parameters, timeout=30, trust_env=False).raise_for_status()
    except httpx.HTTPError as error:
        raise Unavailable(f"cannot make {ROOT} on {cluster['uri']}: {error}") from error
