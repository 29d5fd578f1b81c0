"""`python -m bench.encryption.run`: what encrypted logs cost a write, and the time until its append is durable.

Three pairs, each measured in turn and in the other order each time: plain, with an encrypted remote log, with both logs
encrypted. The load generator shares the machine.
"""

from __future__ import annotations

import argparse
import base64
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.load_generator import LoadPlan
from bench.measure import load, spread
from bench.pair import POLL_S, READY_S, STOP_S, TWINLOG, BenchError
from bench.requests import BENCH_TABLE, Workload
from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from gateway.demo.files import write_files
from gateway.demo.servers import child_environ
from twinlog.errors import TwinlogError
from twinlog.sites import Sites

KEYS = 100_000
LOGS: dict[str, tuple[str, ...]] = {"plain": (), "remote log": ("remote_log",), "both logs": ("remote_log", "wal")}
_APPENDS = ("twinlog_remote_append_seconds_sum", "twinlog_remote_append_seconds_count")


class Round(NamedTuple):
    per_second: float
    p50_ms: float
    p99_ms: float
    append_ms: float  # the mean of the remote appends
    cpu_us: float  # of the active's process, for one write


class Measured(NamedTuple):
    """A pair that runs: the active's port and process, and the way to ask it."""

    port: int
    pid: int
    sites: Sites

    def appends(self) -> list[float]:
        metrics = self.sites.metrics("a")
        return [metrics[name] for name in _APPENDS]

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def running(folder: Path, encrypted: Sequence[str]) -> Iterator[Measured]:
    """A demo's pair with a key for each of the logs `encrypted`."""
    folder.mkdir()
    (folder / "bench.key").write_text(base64.b64encode(secrets.token_bytes(32)).decode())
    ports = dict(zip("ab", free_ports(2), strict=True))
    children: list[subprocess.Popen[bytes]] = []
    try:
        for site, config in write_files(folder, ports, engine="rocksdb").items():
            with config.open("a", encoding="utf-8") as file:
                for log in encrypted:
                    file.write(f'\n[{log}]\nencryption_keys = ["bench=file:{folder}/bench.key"]\n')
            with (folder / site / "site.log").open("wb") as log_file:
                command = [*TWINLOG, "serve", "--config", str(config)]
                children.append(start_child(command, log_file, folder=folder, left=signal.SIGTERM, environ=child_environ()))
        sites = Sites({site: f"http://127.0.0.1:{port}" for site, port in ports.items()}, look_s=30.0)
        _wait_sync(sites, folder)
        sites.ask("a", "POST", "/v1/tables", {"name": "single", **BENCH_TABLE})
        yield Measured(ports["a"], children[0].pid, sites)
        sites.close()
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(STOP_S)


def _wait_sync(sites: Sites, folder: Path) -> None:
    until_s = time.monotonic() + READY_S
    while time.monotonic() < until_s:
        try:
            roles = [sites.ask(site, "GET", "/v1/cluster")["role"] for site in "ab"]
        except TwinlogError:
            roles = []
        if roles == ["ACTIVE", "STANDBY"]:
            return
        time.sleep(POLL_S)
    raise BenchError(f"the pair did not open within {READY_S:.0f} s; see {folder}/*/site.log")


def one(pair: Measured, name: str, number: int, seconds: float, connections: int) -> Round:
    before, cpu_s = pair.appends(), pair.cpu_s()
    workload = Workload("put", "single", keys=KEYS, seed=number)
    result = load(LoadPlan("127.0.0.1", pair.port, connections, workload, seconds=seconds, warm_up_s=0.0))
    if result.failures or not result.count or result.p50_ms is None or result.p99_ms is None:
        raise BenchError(f"{name}: {result.count} writes succeeded, and failed: {result.failures}")
    spent_s, appends = (after - at for after, at in zip(pair.appends(), before, strict=True))
    each_us = 1e6 * (pair.cpu_s() - cpu_s) / result.count
    return Round(result.per_second, result.p50_ms, result.p99_ms, 1000 * spent_s / appends, each_us)


def rounds(pairs: dict[str, Measured], count: int, seconds: float, connections: int) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {name: [] for name in pairs}
    for number in range(count):
        for name in list(pairs) if number % 2 == 0 else list(pairs)[::-1]:
            each = one(pairs[name], name, number, seconds, connections)
            found[name].append(each)
            sys.stdout.write(f"round {number + 1}: {name:10} {_figures(each)}\n")
            sys.stdout.flush()
    return found


def _figures(each: Round) -> str:
    return (
        f"{each.per_second:8,.0f} writes/s, p50 {each.p50_ms:5.1f} ms, p99 {each.p99_ms:6.1f} ms, "
        f"remote append {each.append_ms:5.2f} ms, {each.cpu_us:5.0f} us of CPU for one"
    )


def _median(values: list[float]) -> float:
    found = spread(values)
    assert found is not None, "no round"
    return found["median"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="encryption", description="Measure PUT with encrypted logs, interleaved.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=64)
    chosen = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-encryption-") as folder, ExitStack() as stack:
            pairs = {
                name: stack.enter_context(running(Path(folder) / name.replace(" ", "-"), encrypted))
                for name, encrypted in LOGS.items()
            }
            rounds(pairs, 1, chosen.seconds, chosen.connections)  # what is slow once
            found = rounds(pairs, chosen.rounds, chosen.seconds, chosen.connections)
    except BenchError as error:
        sys.stderr.write(f"bench.encryption.run: {error}\n")
        return 1
    for name, each in found.items():
        medians = Round(*(_median([one[place] for one in each]) for place in range(len(Round._fields))))
        ratio = _median([one[0] / plain[0] for one, plain in zip(each, found["plain"], strict=True)])
        sys.stdout.write(f"medians: {name:10} {_figures(medians)}, {ratio:.1%} of plain (median of the rounds' ratios)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
