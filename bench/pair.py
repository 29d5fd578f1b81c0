"""A demo pair for one measurement: started in a directory of its own, driven by `twinlog` verbs, stopped at the end.

What always holds: nothing outlives the `with` block; every wait has a deadline, and an error that says what was waited for
and where the log is.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.servers.ports import free_ports
from twinlog.addresses import address_token
from twinlog.sites import Sites
from twinlog.wire.tls import Tls

READY_S = 300.0  # two HDFS take their time
MODE_S = 120.0
STOP_S = 120.0  # the sites, then what they rest on
POLL_S = 0.05
PORT_OPTIONS = ("--port-a", "--port-b", "--peer-port-a", "--peer-port-b")  # of `twinlog demo`
TWINLOG = (sys.executable, "-m", "twinlog")
PAUSES = ("collector", "apply", "snapshot")  # metrics of what holds up the active: garbage, RocksDB's stalls, barriers
_BUCKET = re.compile(r'twinlog_(\w+)_seconds_bucket\{le="([^"]+)"\}')
VERB_OF_MODE = {"sync": "resync", "async": "degrade"}


class BenchError(Exception):
    """A measurement could not be made; the message says why."""


class Pair:
    """`with Pair(folder) as pair:` - two sites without data. `host`, `port`: the active's; `options`: of `twinlog demo`;
    `prefix`: words of a command that runs it, such as one that limits it."""

    def __init__(self, folder: Path, options: Sequence[str] = (), prefix: Sequence[str] = ()) -> None:
        self.folder, self.options, self.prefix = folder, options, prefix
        self.note = folder / "demo.json"
        self.log = folder.with_name(folder.name + ".log")
        self.host, self.port = "127.0.0.1", 0
        self.pids: dict[str, int] = {}
        self.ca = ""  # of a pair with TLS

    def __enter__(self) -> Self:
        ports = dict(zip(PORT_OPTIONS, free_ports(len(PORT_OPTIONS)), strict=True))
        self.port = ports["--port-a"]
        command = [*self.prefix, *TWINLOG, "demo", "--dir", str(self.folder), "--json", "--no-load", *self.options,
                   *(word for option, port in ports.items() for word in (option, str(port)))]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            self._wait(READY_S, "the pair", self._ready)
        except BaseException:
            self._stop()
            raise
        found = json.loads(self.note.read_text())
        self.pids = {site: int(entry["pid"]) for site, entry in found["sites"].items()}
        self.ca = found.get("ca", "")
        self._sites = Sites({"a": found["sites"]["a"]["url"]}, look_s=30.0, tls=Tls(self.ca), token=self.token)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._sites.close()
        self._stop()

    @property
    def token(self) -> str:
        """Returns where the token of the pair is; empty: it asks nobody who they are."""
        return address_token(str(self.note))

    def url(self, site: str) -> str:
        return str(json.loads(self.note.read_text())["sites"][site]["url"])

    @property
    def root_pid(self) -> int:
        """Returns the process id of the demo; its descendants are the sites and their servers."""
        return self._process.pid

    def create_table(self, name: str, definition: dict[str, Any]) -> None:
        self._sites.ask("a", "POST", "/v1/tables", {"name": name, **definition})

    def cluster(self) -> dict[str, Any]:
        """Returns the cluster document of site a. Raises TwinlogError."""
        return self._sites.ask("a", "GET", "/v1/cluster")

    def mode(self) -> str:
        return str(self.cluster()["mode"])

    def set_mode(self, mode: str) -> None:
        """Make the pair acknowledge in `mode` (sync or async), and return when it says that it does."""
        if self.mode() == mode:
            return
        verb = [*TWINLOG, VERB_OF_MODE[mode], "--config", str(self.note), "--yes", "--json"]
        done = subprocess.run(verb, capture_output=True, text=True, timeout=MODE_S, check=False)
        if done.returncode != 0:
            raise BenchError(f"twinlog {VERB_OF_MODE[mode]} ended with {done.returncode}: {done.stdout}{done.stderr}")
        self._wait(MODE_S, f"mode {mode}", lambda: self.mode() == mode)

    def durations(self) -> dict[str, dict[float, float]]:
        """Each histogram of site a by its name (remote_append, collector, ...): upper bound in seconds -> how many were at most
        so long, since the site or its epoch began."""
        found: dict[str, dict[float, float]] = {}
        for name, count in self._sites.metrics("a").items():
            if (bucket := _BUCKET.fullmatch(name)) is not None:
                found.setdefault(bucket[1], {})[float(bucket[2])] = count
        return found

    def memory_mb(self) -> dict[str, float]:
        """Resident memory of each site's process, in MiB."""
        return {site: _resident_kib(pid) / 1024 for site, pid in self.pids.items()}

    def _ready(self) -> bool:
        if self._process.poll() is not None:
            said = self.log.read_text(errors="replace")[-2000:]
            raise BenchError(f"twinlog demo ended with {self._process.returncode}:\n{said}")
        return self.note.exists()

    def _wait(self, deadline_s: float, what: str, holds: Callable[[], bool]) -> None:
        until_s = time.monotonic() + deadline_s
        while not holds():
            if time.monotonic() > until_s:
                raise BenchError(f"{what} did not come within {deadline_s:.0f} s; see {self.log} and {self.folder}/*/site.log")
            time.sleep(POLL_S)

    def _stop(self) -> None:
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise BenchError(f"/proc/{pid}/status has no VmRSS")
