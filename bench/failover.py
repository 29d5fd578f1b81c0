"""`make bench-failover`: how long nobody can write when the active dies and its rows are in the remote log alone.

For each time a new pair: replication to b is cut, `--rows` rows are written at a one by one, a is killed (SIGKILL), and
`twinlog failover --to b` runs at once. Measured from the kill to the first write that b acknowledges, and by the steps of the
operation as b's journal has them. Every row is read back at b, or the run fails. With `--dfs hdfs` on real HDFS, one a site.
`--lost hung`: a is stopped (SIGSTOP) instead, its connections stay open. `--by monitor`: no command, `twinlog monitor --act`.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench import measure
from bench.gate import Gate
from bench.load_generator import LoadPlan
from bench.pair import TWINLOG, BenchError
from bench.requests import BENCH_TABLE, Workload, row
from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.ports import free_ports
from gateway.demo.files import write_files
from gateway.demo.servers import HdfsRoot
from twinlog import Client
from twinlog.errors import TwinlogError
from twinlog.sites import Sites

TABLE = "rows"
CONNECTIONS = 64
READY_S = 120.0
FAILOVER_S = 120.0
SIGNALS = {"killed": signal.SIGKILL, "hung": signal.SIGSTOP}
POLL_S = 0.005
SCAN_ROWS = 5_000


class Trial:
    """One pair, one failover. `hdfs`: by site; None: directories. `lost`: killed or hung; `by`: command or monitor."""

    def __init__(self, folder: Path, hdfs: dict[str, HdfsRoot] | None, rows: int, lost: str, by: str) -> None:
        self.folder, self.rows, self.lost, self.by = folder, rows, lost, by
        self.ports = dict(zip("ab", free_ports(2), strict=True))
        self.urls = {site: f"http://127.0.0.1:{port}" for site, port in self.ports.items()}
        self.sites = Sites(self.urls)
        self.configs = write_files(folder, self.ports, engine="rocksdb", hdfs=hdfs)
        for config in self.configs.values() if by == "monitor" else ():
            config.write_text(config.read_text().replace('policy = "protect"', 'policy = "available"'))

    def run(self) -> dict[str, float]:
        """Part -> seconds, in the order in which they pass; `all` is from the kill to the first acknowledged write."""
        with ExitStack() as stack:
            stack.callback(self.sites.close)
            gate = stack.enter_context(Gate(self.ports["b"]))
            config = self.configs["a"]
            config.write_text(config.read_text().replace(f'url = "{self.urls["b"]}"', f'url = "http://127.0.0.1:{gate.port}"'))
            sites = {site: stack.enter_context(self._run(site, "serve", self.configs[site])) for site in "ab"}
            _until("the pair is open and b follows", READY_S, lambda: self._role("a") == "ACTIVE" and self._is_followed())
            with Client(self.urls) as client:
                client.create_table({"name": TABLE, **BENCH_TABLE})
            _until("b knows the table", READY_S, self._knows_table)
            operator = self.folder / "operator.toml"
            if self.by == "monitor":
                stack.enter_context(self._run("monitor", "monitor", operator, "--act", "--json"))
                _until("the monitor finds nothing to do", READY_S, lambda: "all is well" in self._log("monitor").read_text())
            gate.shut()
            workload = Workload("put", TABLE, first_key=0)
            load = measure.load(LoadPlan("127.0.0.1", self.ports["a"], CONNECTIONS, workload, requests_max=self.rows))
            if load.count != self.rows:
                raise BenchError(f"of {self.rows} rows {load.count} were acknowledged; failures: {load.failures}")
            os.kill(sites["a"].pid, SIGNALS[self.lost])
            lost_ms = time.time() * 1000
            if self.by == "command":
                stack.enter_context(self._run("command", "failover", operator, "--to", "b", "--yes"))
            written_ms = self._first_write()
            _until("the failover has ended", FAILOVER_S, lambda: self._failover()["state"] != "running")
            operation = self._failover()
            if operation["state"] != "succeeded":
                raise BenchError(f"the failover ended as {operation['state']}: {operation['error']}")
            self._check_rows()
            return _parts(lost_ms, written_ms, operation, self.by)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _failover(self) -> dict[str, Any]:
        found = self.sites.ask("b", "GET", "/v1/operations")["operations"]
        operation: dict[str, Any] = next(one for one in found if one["kind"] == "failover")
        return operation

    @contextmanager
    def _run(self, name: str, verb: str, config: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        with self._log(name).open("wb") as log:
            process = subprocess.Popen([*TWINLOG, verb, "--config", str(config), *options], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _role(self, site: str) -> str | None:
        try:
            return str(self.sites.ask(site, "GET", "/v1/cluster").get("role"))
        except TwinlogError:
            return None

    def _metric(self, site: str, name: str) -> float:
        return self.sites.metrics(site).get(f"twinlog_{name}", -1.0)

    def _is_followed(self) -> bool:
        return self._role("b") == "STANDBY" and self._metric("a", "replication_lag_records") == 0

    def _knows_table(self) -> bool:
        return self._metric("b", "applied_seq") >= self._metric("a", "committed_seq")

    def _first_write(self) -> float:
        """Wall milliseconds of the first acknowledged write at b."""
        content = {name: value for name, value in row(self.rows).items() if name != "id"}
        until_s = time.monotonic() + FAILOVER_S
        while time.monotonic() < until_s:
            try:
                self.sites.ask("b", "PUT", f"/v1/tables/{TABLE}/rows/{self.rows}", content)
                return time.time() * 1000
            except TwinlogError:
                time.sleep(POLL_S)
        raise BenchError(f"b took no write within {FAILOVER_S:.0f} s after the kill; see {self.folder}/b.log")

    def _check_rows(self) -> None:
        with Client({"b": self.urls["b"]}) as client:
            found = {stored["id"]: stored for stored in client.scan(TABLE, page_rows=SCAN_ROWS)}
        wrong = [key for key in range(self.rows + 1) if found.get(key) != row(key)]
        if wrong or len(found) != self.rows + 1:
            raise BenchError(f"{len(wrong)} of {self.rows + 1} rows are missing or wrong at b, such as {wrong[:5]}")


def _parts(lost_ms: float, written_ms: float, operation: dict[str, Any], by: str) -> dict[str, float]:
    parts = {f"the {by} asks for it": (operation["created_ms"] - lost_ms) / 1000}
    for step in operation["steps"]:
        if step["started_ms"] < written_ms:
            parts[step["name"]] = (min(step["finished_ms"], written_ms) - step["started_ms"]) / 1000
    return {**parts, "the rest": (written_ms - lost_ms) / 1000 - sum(parts.values()), "all": (written_ms - lost_ms) / 1000}


def _until(what: str, deadline_s: float, holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + deadline_s
    while not holds():
        if time.monotonic() > until_s:
            raise BenchError(f"not within {deadline_s:.0f} s: {what}")
        time.sleep(10 * POLL_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.failover", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--dfs", choices=("directory", "hdfs"), default="directory")
    parser.add_argument("--rows", type=int, default=20_000, help="that only the remote log has")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--lost", choices=tuple(SIGNALS), default="killed", help="how site a is lost")
    parser.add_argument("--by", choices=("command", "monitor"), default="command", help="who asks for the failover")
    chosen = parser.parse_args()
    found: list[dict[str, float]] = []
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-failover-") as name, ExitStack() as stack:
            folder, clusters = Path(name), {}
            if chosen.dfs == "hdfs":
                clusters = {site: stack.enter_context(HdfsCluster(folder / "hdfs" / site)) for site in "ab"}
            for number in range(chosen.times):
                for cluster in clusters.values():
                    cluster.make_folder(f"/{number}")
                hdfs = {
                    site: HdfsRoot(f"{cluster.uri}/{number}", urlsplit(cluster.web_url).netloc)
                    for site, cluster in clusters.items()
                }
                found.append(Trial(folder / str(number), hdfs or None, chosen.rows, chosen.lost, chosen.by).run())
                print(", ".join(f"{part} {seconds:.2f}" for part, seconds in found[-1].items()), flush=True)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(
        f"\n{chosen.rows:,} rows in the remote log alone, {chosen.dfs}, {chosen.lost}, by {chosen.by}; seconds, "
        f"median of {len(found)}, lowest to highest"
    )
    for part in found[0]:
        seconds = [trial.get(part, 0.0) for trial in found]
        print(f"| {part} | {statistics.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
