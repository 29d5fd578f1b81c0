"""The two gateways as processes of this machine: configured, started, stopped, killed, paused, and lost with their disks.

What always holds: a gateway is started by the product's own command, or by the same with a planted bug; it is tied to this
process; its peer and its clients reach it through a link, the harness itself directly; each process that is signalled
was started here. A gateway may end by itself only where a fault has given it a reason, and then it has to say why.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from chaos.harness.pair.asked import OTHER as OTHER
from chaos.harness.pair.asked import SITES as SITES
from chaos.harness.pair.asked import AskedSites
from chaos.harness.pair.credentials import Credentials
from chaos.harness.pair.files.spoiled import Spoiled
from chaos.harness.pair.parts import GATEWAY_LINKS, PLAIN, Parts
from chaos.harness.pair.servers.servers import Servers
from chaos.harness.steps.table import TrapTable
from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from gateway.demo.files import write_files
from gateway.demo.servers import child_environ
from twinlog.errors import TwinlogError, Unavailable
from twinlog.sites import ALIVE

SEGMENT_BYTES = 256 << 10  # small, so that segments come and go within a run
FLUSH_INTERVAL_S = 2.0  # likewise: what a storage has applied is durable soon, and the logs are trimmed
START_S = 120.0
STOP_S = 30.0
GONE_S = 5.0  # that a process takes to end after its SIGKILL
POLL_S = 0.01
_DEFECT = "This is a defect of twinlog"  # how the product says that it does not know an error
_LAST_LINES = 12


@dataclass
class Lives:
    """The lives of one site's gateway. `wanted`: it is meant to run, and so a death is news. `coming`: somebody starts it.
    `may_refuse`: a fault has given it a reason to end; `refused`: what it said when it last did, until it is started again.
    `starved`: which of its starts a fault left without memory, descriptors or threads. `tree`, `config`: the source tree and
    the file that it is started with, where a fault has changed them."""

    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    wanted: bool = False
    coming: bool = False
    starts: int = 0
    may_refuse: bool = False
    refused: str = ""
    starved: int = 0
    tree: Path | None = None
    config: Path | None = None
    exits: list[int] = field(default_factory=list)


class RealSites(AskedSites):
    """`links`: link -> the address of its proxy; `upstream`: link -> that of the one who is called. `bug`: a planted one, of
    every gateway. `environ`: what the gateway of each site gets besides. `before_kill` gets the process that is about to be
    killed. `traps`: where faults happen at steps, the table of each site. `servers` are started by their own `start`, before
    `configure`. `policy`: of both. `foreseen`: how the last line of a traceback begins that a gateway may log."""

    def __init__(
        self, folder: Path, bug: str = "", environ: Mapping[str, Mapping[str, str]] | None = None, parts: Parts = PLAIN,
        before_kill: Callable[[int], object] = lambda pid: None, traps: Mapping[str, TrapTable] | None = None,
        policy: str = "protect",
    ) -> None:
        self.folder, self.bug, self._environ, self._before_kill = folder, bug, environ or {}, before_kill
        self.traps, self._policy = traps or {}, policy
        self.servers = Servers(parts, folder)
        listen = self.servers.listen
        self.credentials = Credentials(folder) if parts.secured else None
        free = (f"127.0.0.1:{port}" for port in free_ports(4 + len(GATEWAY_LINKS)))
        self._addresses = dict(zip(SITES, free, strict=False))
        self._peer_addresses = dict(zip(SITES, free, strict=False))  # of a secured pair
        self.links = {**dict(zip(GATEWAY_LINKS, free, strict=True)), **listen}
        self.upstream = {**{link: self._called_at(link) for link in GATEWAY_LINKS}, **self.servers.upstream}
        self.lives = {site: Lives() for site in SITES}
        self._died: dict[tuple[str, int], int] = {}  # site and which of its starts -> exit code
        self.foreseen = {"twinlog.errors."}
        self.starting = threading.Lock()  # while somebody holds it, no gateway starts
        self.spoiled = Spoiled()
        self.mute: list[str] = []  # refusals that do not say why
        known = self.credentials
        super().__init__(self.urls, *(() if known is None else (known.tls, known.of_operators)))

    @property
    def parts(self) -> Parts:
        return self.servers.parts

    @property
    def ports(self) -> dict[str, int]:
        return _ports(self._addresses)

    @property
    def _scheme(self) -> str:
        return "http" if self.credentials is None else "https"

    def _called_at(self, link: str) -> str:
        """Clients call a site at its public listener, and so does the other site, unless there is one for it."""
        of_sites = self._peer_addresses if self.credentials is not None and link[0] in SITES else self._addresses
        return of_sites[link[2]]

    @property
    def urls(self) -> dict[str, str]:
        return {site: f"{self._scheme}://{address}" for site, address in self._addresses.items()}

    @property
    def client_urls(self) -> dict[str, str]:
        """Through the clients' links."""
        return {site: f"{self._scheme}://{self.links[f'c>{site}']}" for site in SITES}

    @property
    def operator_config(self) -> Path:
        return self.folder / "operator.toml"

    def configure(self) -> None:
        """Writes both files; each site knows the other one by the link to it."""
        secured = self.credentials is not None
        configs = write_files(
            self.folder, self.ports, engine=self.parts.engine, databases=self.servers.databases(), hdfs=self.servers.roots(),
            access=secured, peer_ports=_ports(self._peer_addresses) if secured else None,
        )
        for site, path in configs.items():
            peer = OTHER[site]
            called, link = f"{self._scheme}://{self._called_at(f'{site}>{peer}')}", self.links[f"{site}>{peer}"]
            text = path.read_text().replace(f'url = "{called}"', f'url = "{self._scheme}://{link}"')
            text = text.replace('policy = "protect"', f'policy = "{self._policy}"')
            text = self.servers.configured(site, text)
            if self.parts.coordinator == "no":
                text = text[:text.index("[coordinator]")]
            sizes = f"\n[wal]\nsegment_bytes = {SEGMENT_BYTES}\n\n[remote_log]\nsegment_bytes = {SEGMENT_BYTES}\n"
            text = text.replace("[engine]\n", f"[engine]\nflush_interval_s = {FLUSH_INTERVAL_S}\n")
            path.write_text(text + sizes, encoding="utf-8")

    @property
    def coordinator(self) -> Path:
        """The file in which the register is, of a pair with a coordinator in SQLite."""
        return self.folder / "coordinator.db"

    def data_dir(self, site: str) -> Path:
        return self.folder / site / "data"

    def start(self, site: str) -> None:
        """Returns at once. Nothing to do while it runs."""
        life = self.lives[site]
        config = life.config or self.folder / site / "site.toml"
        command = [sys.executable, "-m", *self._module(site), "serve", "--config", str(config)]
        environ = {**child_environ(), **self.servers.environ(site), **self._environ.get(site, {})}
        environ |= {"PYTHONPATH": str(life.tree)} if life.tree else {}
        with self.starting, (self.folder / site / "site.log").open("ab") as log:
            if self.is_running(site):
                return
            self._look(site)
            life.process = start_child(command, log, folder=self.folder, environ=environ)
            life.paused, life.wanted, life.refused = False, True, ""
            life.starts += 1

    def revive(self) -> Sequence[str]:
        dead = [site for site in SITES if not self.is_running(site) and not self.refusal(site)]
        for site in dead:
            self.start(site)
        return dead

    def _module(self, site: str) -> list[str]:
        """The product's command, or who runs it with something of the harness in its process."""
        if self.traps:
            return ["chaos.harness.steps.launch", str(self.traps[site].path), self.bug]
        return ["chaos.harness.bugs.launch", self.bug] if self.bug else ["twinlog"]

    def start_and_wait(self, site: str) -> None:
        """Returns when it answers, on new servers where they were lost. Raises Unavailable when it does not in time."""
        self.lives[site].coming = True
        try:
            self.servers.build(site)
            self.start(site)
        finally:
            self.lives[site].coming = False
        self.wait_for_answer(site)

    def start_and_hear(self, site: str) -> str:
        """Returns when it answers, or when it has ended because it may refuse: what it said then. Raises Unavailable."""
        try:
            self.start_and_wait(site)
        except Unavailable:
            if not self.refusal(site):
                raise
        return self.refusal(site)

    def foresee_nothing(self) -> None:
        """The pair is whole: from now on a gateway that ends by itself is news again, and no copy that lies aside is newer."""
        self.spoiled.newest.clear()
        for life in self.lives.values():
            life.may_refuse = False

    def refusal(self, site: str) -> str:
        """The last words of a gateway that ended by itself, and may; an empty text unless that was its last deed."""
        self._look(site)
        return self.lives[site].refused

    def wait_for_answer(self, site: str) -> None:
        """Or until somebody ends it. Raises Unavailable when it does not answer in time, or ends by itself."""
        until_s = time.monotonic() + START_S
        while True:
            try:
                self.direct.ask(site, "GET", ALIVE)
                return
            except TwinlogError as error:
                life = self.lives[site]
                if not life.wanted and not life.coming:
                    return
                if not (self.is_running(site) or life.coming) or time.monotonic() > until_s:
                    process = life.process
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
        pid = self.pid(site)
        if pid is not None:
            self.lives[site].wanted = False
            self._before_kill(pid)
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

    def empty(self, site: str) -> None:
        """Its gateway is stopped, and its data directory is empty."""
        self.terminate(site)
        shutil.rmtree(self.data_dir(site), ignore_errors=True)
        self.spoiled.forget(site)

    def lose(self, site: str) -> None:
        """Its gateway, its servers, its data and what is on its DFS are gone. An empty directory stands where that was; servers
        are built when the gateway is started again."""
        self.kill(site)
        self.servers.lose(site)
        self.empty(site)
        shutil.rmtree(self.folder / site / "dfs", ignore_errors=True)
        (self.folder / site / "dfs").mkdir(parents=True)

    def died(self) -> Sequence[tuple[str, int]]:
        """Site and exit code of each gateway that ended although nobody ended it, also of those that were started again."""
        for site in SITES:
            self._look(site)
        return [(site, code) for (site, _), code in self._died.items()]

    def ended(self) -> str:
        """A gateway that ended by itself in its last life, and what it said; an empty text: none."""
        self.died()
        for site, life in self.lives.items():
            if (code := self._died.get((site, life.starts))) is not None:
                return f"the gateway of site {site} ended with {code} and said: {self._last_words(site) or 'nothing'}"
        return ""

    def excuse(self, site: str, start: int = 0) -> None:
        """It may have ended: it could not start on what it found. Its end may have been seen before. `start`: in which of its
        lives; 0: in the last one."""
        life = self.lives[site]
        if start in (0, life.starts):
            life.wanted = False
        self._died.pop((site, start or life.starts), None)

    def excuse_end(self, site: str, code: int) -> None:
        """It was made to end with that exit code, once."""
        process = self.lives[site].process
        if (site, code) not in self.died() and process is not None:
            with suppress(subprocess.TimeoutExpired):  # somebody has started it again, who had seen it dead
                process.wait(GONE_S)
        self._look(site)
        for life in [life for life, ended in self._died.items() if life[0] == site and ended == code][:1]:
            del self._died[life]

    def _look(self, site: str) -> None:
        life = self.lives[site]
        if life.wanted and life.process is not None and (code := life.process.poll()) is not None:
            life.wanted = False
            life.exits.append(code)
            if not life.may_refuse:
                self._died[site, life.starts] = code
                return
            life.refused = self._last_words(site)
            if code <= 0 or not life.refused or _DEFECT in life.refused:
                self.mute.append(f"The gateway of site {site} ended with {code} and said: {life.refused or 'nothing'}")
                life.refused = life.refused or f"exit code {code}"

    def _last_words(self, site: str) -> str:
        """The last text that it printed, which is no line of its log."""
        lines = (self.folder / site / "site.log").read_text(errors="replace").splitlines()[-_LAST_LINES:]
        last: list[str] = []
        for line in lines:
            last = [] if line.startswith("{") else [*last, line.strip()]
        return " ".join(filter(None, last))

    def end(self) -> None:
        """Whatever runs is stopped."""
        for site in SITES:
            self._end(site, signal.SIGKILL)
        self.servers.stop()
        self.close()

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


def _ports(addresses: Mapping[str, str]) -> dict[str, int]:
    return {site: int(address.rpartition(":")[2]) for site, address in addresses.items()}
