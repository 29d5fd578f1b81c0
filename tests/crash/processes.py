"""A pair of real processes under test: start, kill, wait for what they say, write with a record of every answer."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx

from chaos.servers.ports import free_ports
from gateway.demo.files import write_files
from tests.crash import serve_site
from tests.gateway.documented import opened
from tests.storage.noise import noise

_spawning = multiprocessing.get_context("forkserver")  # a process that has everything imported, and is forked for each site
_spawning.set_forkserver_preload(["tests.crash.serve_site"])
COLUMNS = [{"name": "k", "type": "string"}, {"name": "v", "type": "int64"}, {"name": "pad", "type": "string"}]
TABLE = {"name": "t", "columns": COLUMNS, "primary_key": ["k"]}
DEADLINE_S = 3.0  # of a write
OTHER = {"a": "b", "b": "a"}


@dataclass
class Record:
    """The client's knowledge: acknowledged values, values whose outcome is unknown, values that were definitely refused."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    unknown: dict[str, set[int]] = field(default_factory=dict)
    refused: set[tuple[str, int]] = field(default_factory=set)


class Processes:
    def __init__(self, directory: Path, *, coordinator: bool = True) -> None:
        self.directory = directory
        self.ports = dict(zip("ab", free_ports(2), strict=True))
        self.urls = {site: f"http://127.0.0.1:{port}" for site, port in self.ports.items()}
        self.configs = write_files(directory, self.ports, engine="rocksdb")
        for config in () if coordinator else self.configs.values():
            config.write_text(config.read_text().partition("[coordinator]")[0])
        self.running: dict[str, BaseProcess] = {}
        self.http = opened(timeout_s=60.0)
        self.record = Record()
        self.last: tuple[int, str] = (0, "")  # status and outcome of the last answered write
        self._next = 0

    # ---- processes
    def start(self, site: str, failpoint: str = "", nth: int = 1) -> None:
        arguments = (str(self.configs[site]), str(self.directory / f"{site}.log"), failpoint, nth)
        process = _spawning.Process(target=serve_site.main, args=arguments, daemon=True)
        process.start()
        self.running[site] = process

    def kill(self, site: str) -> None:
        process = self.running.pop(site)
        process.kill()
        process.join()

    def died(self, site: str) -> bool:
        """Returns whether the process ended at its failpoint."""
        return self.running[site].exitcode == serve_site.DIED

    def close(self) -> None:
        for site in list(self.running):
            self.kill(site)
        self.http.close()

    # ---- looking
    def cluster(self, site: str) -> dict[str, Any]:
        try:
            document: dict[str, Any] = self.http.get(f"{self.urls[site]}/v1/cluster").json()
        except (httpx.HTTPError, ValueError):
            return {}
        return document

    def role(self, site: str) -> str | None:
        role: str | None = self.cluster(site).get("role")
        return role

    def until(self, what: str, ready: Callable[[], bool], timeout_s: float = 180.0) -> None:
        end_s = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() > end_s:
                logs = {site: (self.directory / f"{site}.log").read_text()[-1500:] for site in self.running}
                raise AssertionError(f"{what}: not in {timeout_s} s; {self.cluster('a')}\n{self.cluster('b')}\n{logs}")
            time.sleep(0.02)  # a poll of what a process says, bounded by the time-out

    def until_roles(self, a: str, b: str) -> None:
        self.until(f"a {a}, b {b}", lambda: self.role("a") == a and self.role("b") == b)

    # ---- doing
    def create_table(self, site: str) -> None:
        self.http.post(f"{self.urls[site]}/v1/tables", json=TABLE).raise_for_status()

    def write(self, site: str, padding: int = 0) -> bool:
        """One row with a value of its own; what the answer means is recorded. Whether it was acknowledged.

        `padding`: so many bytes of another column, to fill logs quickly.
        """
        self._next += 1
        key, value = f"k{self._next % 7}", self._next
        try:
            row = {"v": value, "pad": noise(padding)}
            deadline = {"Twinlog-Deadline-S": str(DEADLINE_S)}
            answer = self.http.put(f"{self.urls[site]}/v1/tables/t/rows/{key}", json=row, headers=deadline)
        except httpx.ConnectError:
            self.record.refused.add((key, value))
            return False
        except httpx.HTTPError:
            self.record.unknown.setdefault(key, set()).add(value)
            return False
        self.last = answer.status_code, str(answer.json().get("outcome", ""))
        if answer.status_code == 200:
            self.record.acknowledged[key] = value
            self.record.unknown.pop(key, None)  # a later acknowledged write supersedes them, unless they come after it
            return True
        if self.last[1] == "unknown":
            self.record.unknown.setdefault(key, set()).add(value)
        else:
            self.record.refused.add((key, value))
        return False

    def operate(self, site: str, kind: str, to: str | None, **options: Any) -> dict[str, Any]:
        """Ask for an operation and follow it to its end, or to the death of the site (then the last state seen)."""
        body = {"kind": kind, "to": to, "options": options, "dry_run": False}
        document: dict[str, Any]
        try:
            while "running" in (document := self.http.post(f"{self.urls[site]}/v1/operations", json=body).json()):
                time.sleep(0.02)  # the restart that made the site what it is still writes its end into the journal
            while document.get("state") == "running":
                time.sleep(0.02)  # a poll, ended by the operation or the process
                document = self.http.get(f"{self.urls[site]}/v1/operations/{document['id']}").json()
        except httpx.HTTPError:
            return {"state": "lost"}
        return document

    # ---- checking
    def rows(self, site: str) -> dict[str, int]:
        answer = self.http.get(f"{self.urls[site]}/v1/tables/t/rows", params={"stale": "true"})
        assert answer.status_code == 200, answer.text
        return {row["k"]: row["v"] for row in answer.json()["rows"]}

    def check(self, active: str) -> None:
        """P1, P3, P5 at the active; P4 and P6 once the follower has caught up."""
        rows = self.rows(active)
        for key, value in self.record.acknowledged.items():
            possible = {value} | self.record.unknown.get(key, set())
            assert rows.get(key) in possible, f"{key}: acknowledged {value}, unknown {possible}, stored {rows.get(key)}"
        for key, value in self.record.refused:
            assert rows.get(key) != value, f"{key}={value} was refused, and is there"
        other = OTHER[active]
        if other in self.running and self.running[other].is_alive():
            def level() -> bool:
                ours, theirs = self.cluster(active), self.cluster(other)
                return bool(theirs) and theirs["role"] == "STANDBY" and ours["committed_seq"] - theirs["applied_seq"] <= 3

            self.until("the follower catches up", level)
            self.until("both sites hold the same rows", lambda: self.rows(other) == self.rows(active))
        for key, value in rows.items():  # what is visible now has settled: it may not change by itself any more
            if key in self.record.unknown:
                self.record.acknowledged[key] = value
        self.record.unknown.clear()


@contextmanager
def open_pair(root: Path, **settings: Any) -> Iterator[Processes]:
    """Two processes that have opened, with the table; ended at the end."""
    made = Processes(root, **settings)
    made.start("a")
    made.start("b")
    try:
        made.until_roles("ACTIVE", "STANDBY")
        made.create_table("a")
        yield made
    finally:
        made.close()
