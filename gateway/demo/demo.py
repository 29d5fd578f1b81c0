"""`twinlog demo`: a whole pair on this machine, each site a process of its own, with a real table in it.

What always holds: nothing is started while a port is in use; demo.json appears, whole, only when both sites answer and one
is active; whatever was started is stopped, by its process id, when the demo ends for whatever reason; DIR is kept, and the
next start continues from it, whichever site was active. A site that dies is reported and not started again: that is what a
demo of failover is about.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.markup import escape

from gateway.config.loading import load_site_config
from gateway.demo.child import start_child
from gateway.demo.files import CERTS, HEADER, client_address, site_urls, token_of, write_files
from gateway.demo.servers import Databases, child_environ, two_databases, two_hdfs
from gateway.stopping import Stopped, ignore_signals, run_until_stopped, stopping
from gateway.tls.issuing import CA
from twinlog.decoding import OBJECT, decoded
from twinlog.errors import ConfigError, TwinlogError, Unavailable, reason, words
from twinlog.sites import Sites
from twinlog.terminal import Exit, notes, out, print_json
from twinlog.wire.tls import Tls

READY_DEADLINE_S = 60.0
STOP_DEADLINE_S = 15.0
POLL_S = 0.1
LOAD_ROWS = 50_000
LOAD_DEADLINE_S = 60.0
LOG_TAIL_LINES = 5


@dataclass(frozen=True, slots=True)
class DemoPlan:
    directory: Path
    ports: dict[str, int]  # site -> port
    dfs: str = "directory"
    dfs_sync: str = "hsync"  # of hdfs
    engine: str = "rocksdb"
    load: bool = True
    peer_ports: dict[str, int] | None = None  # of the listeners for the other site, with which all is TLS; None: without TLS
    access: bool = False

    @property
    def urls(self) -> dict[str, str]:
        return site_urls(self.ports, is_tls=self.peer_ports is not None)

    @property
    def ca(self) -> str:
        return str(self.directory / CERTS / CA) if self.peer_ports is not None else ""

    @property
    def token(self) -> str:
        """Returns where its token is; empty: the sites ask nobody who they are."""
        return token_of(self.directory) if self.access else ""


def run_demo(plan: DemoPlan, *, as_json: bool) -> int:
    """Run until a signal. The exit code: 0 after a signal, 1 when a site died or did not get ready."""
    for setting, given, known in (
        ("--dfs", plan.dfs, ("directory", "hdfs")), ("--engine", plan.engine, ("rocksdb", "postgresql", "sqlite")),
        ("--dfs-sync", plan.dfs_sync, ("hsync", "hflush")),
    ):
        if given not in known:
            raise ConfigError(f"{setting} {given}: this release knows {', '.join(known)}")
    wanted = {f"--port-{site}": port for site, port in plan.ports.items()}
    wanted |= {f"--peer-port-{site}": port for site, port in (plan.peer_ports or {}).items()}
    for option, port in wanted.items():
        twins = [other for other, its in wanted.items() if its == port]
        if len(twins) > 1:
            raise ConfigError(f"{' and '.join(twins)} are both {port}: give them different ports")
        _check_free(plan.directory, option, port)
    note = plan.directory / "demo.json"
    note.unlink(missing_ok=True)
    processes: dict[str, subprocess.Popen[bytes]] = {}
    with stopping(), ExitStack() as around:
        try:
            hdfs = around.enter_context(two_hdfs(plan.directory)) if plan.dfs == "hdfs" else None
            databases = around.enter_context(two_databases(plan.directory)) if plan.engine == "postgresql" else None
            configs = write_files(
                plan.directory, plan.ports, engine=plan.engine, databases=databases, hdfs=hdfs, sync=plan.dfs_sync,
                access=plan.access, peer_ports=plan.peer_ports,
            )
            for path in configs.values():
                load_site_config(path)
            for site, path in configs.items():
                processes[site] = _start(plan.directory, site, path)
            cluster = _wait_ready(plan, processes)
            document = _document(plan, processes, configs)
            _write_whole(note, msgspec.json.format(msgspec.json.encode(document), indent=2))
            _announce(document, cluster, databases, loads=plan.load, as_json=as_json)
            if plan.load:
                _load(note, as_json=as_json)
            if not as_json:
                out().print("Ctrl-C stops both sites; the data stays.")
            return _watch(plan.directory, processes)
        except Stopped:
            return Exit.OK
        finally:
            ignore_signals()
            _stop(processes)
            note.unlink(missing_ok=True)


def _check_free(directory: Path, option: str, port: int) -> None:
    """Raises ConfigError when something uses the port that `option` gives."""
    site = option[-1]
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"port {port} cannot be used for site {site} ({reason(error)}): stop what uses "
                f"it{_earlier(directory, site)}, or give {option}"
            ) from error


def _earlier(directory: Path, site: str) -> str:
    """Returns the sites that a killed demo could not stop, as demo.json names them."""
    try:
        entry = decoded(OBJECT, (directory / "demo.json").read_bytes(), ValueError)["sites"][site]
        return f" (perhaps pid {entry['pid']}, site {site} of an earlier demo in {directory})"
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def log_path(directory: Path, site: str) -> Path:
    return directory / site / "site.log"


def _start(directory: Path, site: str, config: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "twinlog", "serve", "--config", str(config)]
    with log_path(directory, site).open("ab") as log:
        return start_child(command, log, folder=directory, left=signal.SIGTERM, environ=child_environ())


def _wait_ready(plan: DemoPlan, processes: dict[str, subprocess.Popen[bytes]]) -> dict[str, Any]:
    """Until both sites answer, one is active and the other follows. The active's cluster document."""
    with closing(Sites(plan.urls, tls=Tls(plan.ca), token=plan.token)) as pair:
        return _wait_active(plan, processes, pair)


def _wait_active(
    plan: DemoPlan, processes: dict[str, subprocess.Popen[bytes]], pair: Sites
) -> dict[str, Any]:
    until_s = time.monotonic() + READY_DEADLINE_S
    while True:
        answers = pair.ask_all("/v1/cluster")
        documents = {site: answer for site, answer in answers.items() if isinstance(answer, dict)}
        roles = {str(document.get("role")) for document in documents.values()}
        active = next((d for d in documents.values() if str(d.get("role")).endswith("ACTIVE")), None)
        if len(documents) == len(plan.ports) and active is not None and "STANDBY" in roles:
            return active
        for site, process in processes.items():
            if process.poll() is not None:
                raise Unavailable(_death(plan.directory, site, process))
        if time.monotonic() >= until_s:
            seen = ", ".join(f"{site}: {_seen(answer)}" for site, answer in answers.items())
            raise Unavailable(
                f"the pair is not ready after {READY_DEADLINE_S:.0f} s ({seen}); look into {log_path(plan.directory, 'a')} "
                f"and {log_path(plan.directory, 'b')}"
            )
        time.sleep(POLL_S)


def _seen(answer: dict[str, Any] | Exception) -> str:
    if isinstance(answer, Exception):
        return words(answer)
    waiting = answer.get("waiting_for")
    return f"{answer.get('role')}" + (f", waits for {waiting}" if waiting else "")


def _document(plan: DemoPlan, processes: dict[str, subprocess.Popen[bytes]], configs: dict[str, Path]) -> dict[str, Any]:
    return {
        **({"token": plan.token} if plan.access else {}),
        "sites": {
            site: {"url": plan.urls[site], "pid": processes[site].pid, "config": str(configs[site])} for site in plan.ports
        },
        "operator_config": str(plan.directory / "operator.toml"),
        "client": client_address(plan.urls), **({"ca": plan.ca} if plan.ca else {}),
    }


def _write_whole(path: Path, content: bytes) -> None:
    """A reader sees all of it or nothing."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(content + b"\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _announce(
    document: dict[str, Any], cluster: dict[str, Any], databases: Databases | None, *, loads: bool, as_json: bool,
) -> None:
    if as_json:
        print_json(document)
        return
    console = out()
    active = (cluster.get("active") or {}).get("site")
    console.print("[bold green]Both sites are up.[/]")
    for site, entry in document["sites"].items():
        role = "[bold]active[/]" if site == active else "standby"
        console.print(f"  site {site}  {entry['url']}  pid {entry['pid']}  {role}")
    console.print(f"The pair on a page: [bold]{document['sites'][active or 'a']['url']}/ui[/]", soft_wrap=True)
    where = document["operator_config"]
    url = document["sites"][active or "a"]["url"]
    console.print("\nTry:", style="bold")
    curl = "curl"
    if "ca" in document:
        curl += f" --cacert {shlex.quote(document['ca'])}"
    if "token" in document:
        curl += f" -H @{shlex.quote(str(Path(where).with_name(HEADER)))}"
    console.print(f"  {escape(curl)} {url}/v1/cluster", soft_wrap=True)
    console.print(f"  {escape(curl)} '{url}/v1/tables{'/flights/rows?limit=2' if loads else ''}'", soft_wrap=True)
    console.print(f"  export TWINLOG_CONFIG={escape(where)}", soft_wrap=True)
    other = "b" if active == "a" else "a"
    scan = "scan flights" if loads else "load flights"
    console.print(f"  twinlog status        twinlog switchover --to {other}        twinlog {scan}")
    if databases is not None:
        secret, address = databases.password.removeprefix("file:"), databases.urls[active or "a"].replace("+psycopg", "")
        console.print(f'  PGPASSWORD="$(cat {escape(shlex.quote(secret))})" psql {address}', soft_wrap=True)
    console.print()


def _load(note: Path, *, as_json: bool) -> None:
    """A real table. A fault here is reported and ends nothing."""
    from gateway.load.loading import LoadPlan, load

    plan = LoadPlan("flights", str(note), rows_max=LOAD_ROWS, deadline_s=LOAD_DEADLINE_S, state=note.parent / "load.state")
    try:
        summary = run_until_stopped(load(plan))
    except TwinlogError as error:
        notes().print(f"[yellow]The flights are not loaded:[/] {escape(error.message)}")
        return
    if as_json:
        return
    if summary["rows"]:
        out().print(f"Loaded {summary['rows']:,} flights in {summary['seconds']:.1f} s, every batch acknowledged.")


def _watch(directory: Path, processes: dict[str, subprocess.Popen[bytes]]) -> int:
    """Until a signal, or until both sites are gone. A site that dies is reported."""
    running = dict(processes)
    while running:
        for site, process in list(running.items()):
            if process.poll() is not None:
                del running[site]
                notes().print(f"[bold red]{escape(_death(directory, site, process))}[/]")
        time.sleep(POLL_S)
    return Exit.FAILED


def _death(directory: Path, site: str, process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    how = f"was killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
    path = log_path(directory, site)
    tail = path.read_text(encoding="utf-8", errors="replace").splitlines()[-LOG_TAIL_LINES:] if code > 0 else []
    return "\n".join([f"site {site} (pid {process.pid}) {how}; its log is {path}", *tail])


def _stop(processes: dict[str, subprocess.Popen[bytes]]) -> None:
    """SIGTERM to each, then SIGKILL to whoever is left at the deadline."""
    for process in processes.values():
        if process.poll() is None:
            process.terminate()
    until_s = time.monotonic() + STOP_DEADLINE_S
    for site, process in processes.items():
        try:
            process.wait(max(0.0, until_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            notes().print(f"[yellow]site {site} did not stop within {STOP_DEADLINE_S:.0f} s: it is killed[/]")
            process.kill()
            process.wait()
