"""The two gateways as processes of this machine: configured, started, stopped, killed, paused, and lost with their disks.

What always holds: a gateway is started by the product's own command, or by the same with a planted bug; it is tied to this
process; its peer and its clients reach it through a link, the harness itself directly; each process that is signalled
was started here.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from chaos.harness.steps.table import TrapTable
from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from gateway.demo.files import write_files
from gateway.demo.servers import child_environ
from twinlog.errors import TwinlogError, Unavailable
from twinlog.sites import ALIVE, Sites

SITES = ("a", "b")
OTHER = {"a": "b", "b": "a"}
SEGMENT_BYTES = 256 << 10  # small, so that segments come and go within a run
FLUSH_INTERVAL_S = 2.0  # likewise: what a storage has applied is durable soon, and the logs are trimmed
START_S = 60.0
STOP_S = 30.0
GONE_S = 5.0  # that a process takes to end after its SIGKILL
POLL_S = 0.01


@dataclass
class Lives:
    """The lives of one site's gateway. `wanted`: it is meant to run, and so a death is news."""

    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    wanted: bool = False
    starts: int = 0
    exits: list[int] = field(default_factory=list)


class RealSites:
    """`links`: link -> the port of its proxy. `bug`: a planted one, of every gateway. `environ`: what the gateway of each
    site gets besides. `traps`: where faults happen at steps, the table of each site. `foreseen`: how the last line of a
    traceback begins that a gateway may log."""

    def __init__(
        self, folder: Path, bug: str = "", environ: Mapping[str, Mapping[str, str]] | None = None,
        traps: Mapping[str, TrapTable] | None = None,
    ) -> None:
        self.folder, self.bug, self._environ, self.traps = folder, bug, environ or {}, traps or {}
        ports = free_ports(6)
        self.ports = {"a": ports[0], "b": ports[1]}
        self.links = {"c>a": ports[2], "c>b": ports[3], "a>b": ports[4], "b>a": ports[5]}
        self.upstream = {"c>a": ports[0], "c>b": ports[1], "a>b": ports[1], "b>a": ports[0]}
        self.lives = {site: Lives() for site in SITES}
        self._died: list[tuple[str, int]] = []
        self.foreseen = {"twinlog.errors."}
        self.direct = Sites(self.urls, look_s=2.0)

    @property
    def urls(self) -> dict[str, str]:
        return {site: f"http://127.0.0.1:{port}" for site, port in self.ports.items()}

    @property
    def client_urls(self) -> dict[str, str]:
        """Through the clients' links."""
        return {site: f"http://127.0.0.1:{self.links[f'c>{site}']}" for site in SITES}

    @property
    def operator_config(self) -> Path:
        return self.folder / "operator.toml"

    def configure(self) -> None:
        """Writes both files; each site knows the other one by the link to it."""
        configs = write_files(self.folder, self.ports, engine="rocksdb")
        for site, path in configs.items():
            peer = OTHER[site]
            there = f'url = "http://127.0.0.1:{self.ports[peer]}"'
            text = path.read_text().replace(there, f'url = "http://127.0.0.1:{self.links[f"{site}>{peer}"]}"')
            sizes = f"\n[wal]\nsegment_bytes = {SEGMENT_BYTES}\n\n[remote_log]\nsegment_bytes = {SEGMENT_BYTES}\n"
            text = text.replace("[engine]\n", f"[engine]\nflush_interval_s = {FLUSH_INTERVAL_S}\n")
            path.write_text(text + sizes, encoding="utf-8")

    def data_dir(self, site: str) -> Path:
        return self.folder / site / "data"

    def start(self, site: str) -> None:
        """Returns at once. Nothing to do while it runs."""
        life = self.lives[site]
        if self.is_running(site):
            return
        self._look(site)
        command = [sys.executable, "-m", *self._module(site), "serve", "--config", str(self.folder / site / "site.toml")]
        environ = {**child_environ(), **self._environ.get(site, {})}
        with (self.folder / site / "site.log").open("ab") as log:
            life.process = start_child(command, log, folder=self.folder, environ=environ)
        life.paused, life.wanted = False, True
        life.starts += 1

    def _module(self, site: str) -> list[str]:
        """The product's command, or who runs it with something of the harness in its process."""
        if self.traps:
            return ["chaos.harness.steps.launch", str(self.traps[site].path), self.bug]
        return ["chaos.harness.bugs.launch", self.bug] if self.bug else ["twinlog"]

    def start_and_wait(self, site: str) -> None:
        """Returns when it answers. Raises Unavailable when it does not in time."""
        self.start(site)
        self.wait_for_answer(site)

    def wait_for_answer(self, site: str) -> None:
        """Or until somebody ends it. Raises Unavailable when it does not answer in time, or ends by itself."""
        until_s = time.monotonic() + START_S
        while True:
            try:
                self.direct.ask(site, "GET", ALIVE)
                return
            except TwinlogError as error:
                if not self.lives[site].wanted:
                    return
                if not self.is_running(site) or time.monotonic() > until_s:
                    process = self.lives[site].process
                    ended = "" if process is None or process.returncode is None else f"; it ended with {process.returncode}"
                    raise Unavailable(f"site {site} does not answer: {error.message}{ended}") from error
            time.sleep(POLL_S)

    def is_running(self, site: str) -> bool:
        """True also while it is paused."""
        process = self.lives[site].process
        return process is not None and process.poll() is None

    def is_paused(self, site: str) -> bool:
        """True also when it stopped itself."""
        pid = self.pid(site)
        if self.lives[site].paused or pid is None:
            return self.lives[site].paused
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        except OSError:  # it ended meanwhile
            return False

    def pid(self, site: str) -> int | None:
        process = self.lives[site].process
        return process.pid if process is not None and self.is_running(site) else None

    def kill(self, site: str) -> None:
        """SIGKILL; returns when it is gone."""
        self._end(site, signal.SIGKILL)

    def terminate(self, site: str) -> bool:
        """SIGTERM, and SIGKILL where that is not heeded in time. Whether it was heeded."""
        return self._end(site, signal.SIGTERM)

    def _end(self, site: str, number: signal.Signals) -> bool:
        life = self.lives[site]
        life.wanted = False
        if life.process is None or not self.is_running(site):
            return True
        life.process.send_signal(number)
        life.process.send_signal(signal.SIGCONT)
        heeded = True
        try:
            life.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            heeded = False
            life.process.kill()
            life.process.wait()
        life.exits.append(life.process.returncode)
        return heeded

    def pause(self, site: str) -> None:
        """SIGSTOP; when this returns, none of its threads runs."""
        process = self.lives[site].process
        if process is None or not self.is_running(site):
            raise Unavailable(f"site {site} does not run, and cannot be paused")
        process.send_signal(signal.SIGSTOP)
        self.lives[site].paused = True
        until_s = time.monotonic() + STOP_S
        while os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > until_s:
                raise Unavailable(f"site {site} did not stop within {STOP_S:.0f} s of SIGSTOP")
            time.sleep(POLL_S)

    def resume(self, site: str) -> None:
        process = self.lives[site].process
        self.lives[site].paused = False
        if process is not None and self.is_running(site):
            process.send_signal(signal.SIGCONT)

    def lose(self, site: str) -> None:
        """Its gateway, its data and what is on its DFS are gone; an empty DFS stands where the old one was."""
        self.kill(site)
        shutil.rmtree(self.data_dir(site), ignore_errors=True)
        shutil.rmtree(self.folder / site / "dfs", ignore_errors=True)
        (self.folder / site / "dfs").mkdir(parents=True)

    def died(self) -> Sequence[tuple[str, int]]:
        """Site and exit code of each gateway that ended although nobody ended it, also of those that were started again."""
        for site in SITES:
            self._look(site)
        return self._died

    def excuse(self, site: str) -> None:
        """It may have ended: it could not start on what it found."""
        self.lives[site].wanted = False

    def excuse_kill(self, site: str) -> None:
        """It was made to kill itself, once."""
        process, killed = self.lives[site].process, (site, -signal.SIGKILL)
        if killed not in self.died() and process is not None:
            with suppress(subprocess.TimeoutExpired):  # somebody has started it again, who had seen it dead
                process.wait(GONE_S)
        if killed in self.died():
            self._died.remove(killed)

    def _look(self, site: str) -> None:
        life = self.lives[site]
        if life.wanted and life.process is not None and (code := life.process.poll()) is not None:
            life.wanted = False
            life.exits.append(code)
            self._died.append((site, code))

    def end(self) -> None:
        """Whatever runs is stopped."""
        for site in SITES:
            self.kill(site)
        self.direct.close()

    def unforeseen(self, site: str) -> list[str]:
        """Errors in the gateway's log that the product does not know: those with a traceback that ends in none of its own."""
        found = []
        log = self.folder / site / "site.log"
        for line in log.read_text(errors="replace").splitlines() if log.exists() else ():
            try:
                event = msgspec.json.decode(line)
            except msgspec.DecodeError:
                event = {}
            told = str(event.get("traceback") or "").strip().splitlines() if isinstance(event, dict) else []
            if told and not told[-1].startswith(tuple(self.foreseen)):
                found.append(f"{event.get('event')}: {' | '.join(part.strip() for part in told[-3:])}")
        return list(dict.fromkeys(found))
