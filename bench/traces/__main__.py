"""`python -m bench.traces`: how much CPU of the active one write takes, without traces and with them.

A pair for each way, all of them there the whole time; synchronous single-row writes over `--connections`, in interleaved
rounds, and the median of the rounds. CPU is that of the active's process by the kernel's count, which depends little on what
else the machine does. `--before FOLDER`: a checkout of twinlog that is measured as it is, beside this one. The spans go to a
receiver in this process, which takes them and forgets them. The sites need the extra `traces`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench import measure
from bench.load_generator import LoadPlan
from bench.measure import spread
from bench.pair import POLL_S, READY_S, STOP_S, TWINLOG, BenchError
from bench.requests import BENCH_TABLE, Workload
from chaos.servers.ports import free_ports
from gateway.demo.files import write_files
from tools.sources import ROOT
from twinlog.errors import TwinlogError
from twinlog.sites import Sites

_WARM_SECONDS = 3.0


class _Takes(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def receiver() -> Iterator[str]:
    """The address of a receiver, until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Takes)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class SmallPair:
    """`with SmallPair(folder, code, more) as pair:` two sites by the code in the folder `code`, with `more` in their files."""

    def __init__(self, folder: Path, code: Path, more: str) -> None:
        self.folder, self._code, self._more = folder, code, more
        self.port, other = free_ports(2)
        self._ports = {"a": self.port, "b": other}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        environ = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(self._code)}
        try:
            for site, config in write_files(self.folder, self._ports, engine="rocksdb").items():
                config.write_text(config.read_text() + self._more)
                log = self._stack.enter_context((self.folder / f"{site}.log").open("wb"))
                process = subprocess.Popen([*TWINLOG, "serve", "--config", str(config)], stdout=log, stderr=log, env=environ)
                self._stack.callback(_stopped, process)
                if site == "a":
                    self.pid = process.pid
            self._sites = Sites({"a": f"http://127.0.0.1:{self.port}"}, look_s=30.0)
            self._stack.callback(self._sites.close)
            self._until_sync()
            self._sites.ask("a", "POST", "/v1/tables", {"name": "single", **BENCH_TABLE})
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stack.close()

    def _until_sync(self) -> None:
        until_s = time.monotonic() + READY_S
        while time.monotonic() < until_s:
            with suppress(TwinlogError):
                if self._sites.ask("a", "GET", "/v1/cluster")["mode"] == "sync":
                    return
            time.sleep(POLL_S)
        raise BenchError(f"no pair became synchronous within {READY_S:.0f} s; see {self.folder}/*.log")


def _stopped(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(STOP_S)


def ways(endpoint: str, before: Path | None) -> dict[str, tuple[Path, str]]:
    """Returns what is measured, by its name: the folder of the code, and what the sites' files say besides."""
    found = {} if before is None else {"before traces": (before.resolve(), "")}
    found["no [traces]"] = ROOT, ""
    for ratio in ("0.0", "0.01", "1.0"):
        found[f"ratio = {ratio}"] = ROOT, f'\n[traces]\nendpoint = "{endpoint}"\nratio = {ratio}\n'
    return found


def cpu_us(pair: SmallPair, connections: int, seconds: float) -> tuple[float, float]:
    """(CPU of the active's process for each write, in microseconds; writes a second)."""
    workload = Workload("put", "single", keys=measure.KEYS)
    before = _taken_us(pair.pid)
    result = measure.load(LoadPlan("127.0.0.1", pair.port, connections, workload, seconds=seconds, warm_up_s=0.0))
    return (_taken_us(pair.pid) - before) / result.count, result.per_second


def _taken_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.traces", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--before", type=Path, help="a checkout of twinlog")
    chosen = parser.parse_args()
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="twinlog-traces-")))
            endpoint, pairs = stack.enter_context(receiver()), dict[str, SmallPair]()
            for number, (name, (code, more)) in enumerate(ways(endpoint, chosen.before).items()):
                pairs[name] = stack.enter_context(SmallPair(folder / f"pair-{number}", code, more))
                cpu_us(pairs[name], chosen.connections, _WARM_SECONDS)
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
            for number in range(chosen.rounds):
                for name in pairs if number % 2 else reversed(pairs):
                    taken[name].append(cpu_us(pairs[name], chosen.connections, chosen.seconds))
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print("| | us of CPU a write, median (lowest to highest) | writes a second |\n|---|---|---|")
    for name, rounds in taken.items():
        us, per_second = (spread([each[place] for each in rounds]) for place in (0, 1))
        assert us is not None
        assert per_second is not None
        print(f"| {name} | {us['median']:.1f} ({us['low']:.1f} to {us['high']:.1f}) | {per_second['median']:,.0f} |")
    print(f"load average of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
