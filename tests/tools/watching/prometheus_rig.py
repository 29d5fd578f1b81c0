"""Prometheus' own programs, run on files of a test."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from chaos.servers.ports import free_ports
from tests.needs import need_program

DEADLINE_S = 120.0


def promtool(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [need_program("promtool", "prometheus"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


class Prometheus:
    """A server of a test, on loopback."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=30) as answer:
            return json.load(answer)["data"]

    def query(self, expr: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("query", query=expr)["result"]
        return found

    def has_data(self, expr: str, since_s: float) -> bool:
        """Returns whether a panel over the time since then, to now, shows anything: a number that is no NaN."""
        found = self.ask("query_range", query=expr, start=str(since_s), end=str(time.time()), step="1")["result"]
        return any(value != "NaN" for each in found for _, value in each["values"])

    def labels(self, expr: str, since_s: float) -> set[str]:
        """Returns the labels that every series of a panel has over the time since then."""
        found = self.ask("query_range", query=expr, start=str(since_s), end=str(time.time()), step="1")["result"]
        every = [set(each["metric"]) for each in found]
        return set.intersection(*every) if every else set()

    def firing(self) -> set[tuple[str, str]]:
        """The alerts that fire now: name and site, or an empty text where an alert is about a pair."""
        return {
            (each["labels"]["alertname"], each["labels"].get("site", "")) for each in self.ask("alerts")["alerts"]
            if each["state"] == "firing"
        }

    def until(self, what: str, holds: Callable[[], object]) -> None:
        """Asks again and again, until it holds."""
        end_s = time.monotonic() + DEADLINE_S
        while not holds():
            if time.monotonic() > end_s:
                raise AssertionError(f"{what}: not in {DEADLINE_S:.0f} s; {self.ask('alerts')}")
            time.sleep(0.1)


@contextmanager
def prometheus(
    folder: Path, rules: str, targets: Mapping[str, str], pair: str, interval: str = "500ms"
) -> Iterator[Prometheus]:
    """A server that scrapes `targets`, addresses by site, and has `rules`. It ends with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alerts.yml").write_text(rules)
    scraped = [{"targets": [address], "labels": {"pair": pair, "site": site}} for site, address in targets.items()]
    job = {"job_name": "twinlog", "scrape_timeout": interval, "static_configs": scraped}
    (folder / "prometheus.yml").write_text(json.dumps({  # JSON is YAML
        "global": {"scrape_interval": interval, "evaluation_interval": interval}, "rule_files": ["alerts.yml"],
        "scrape_configs": [job],
    }))
    (port,) = free_ports(1)
    command: Sequence[str] = [
        need_program("prometheus", "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env={**os.environ, "GOMAXPROCS": "1"})
    try:
        server = Prometheus(f"http://127.0.0.1:{port}")
        _until_ready(server, process, folder / "prometheus.log")
        yield server
    finally:
        process.terminate()
        process.wait(60)


def _until_ready(server: Prometheus, process: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + DEADLINE_S
    while True:
        if process.poll() is not None or time.monotonic() > end_s:
            raise AssertionError(f"Prometheus did not start: {log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"{server.url}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
