"""The story: a load of all flights lives through the loss of a site, a failover, a rejoin and a switchover back.

It prints what it does and ends with a table of what it measured; it exits non-zero when anything acknowledged is missing,
when the sites differ, or when the remote log does not drain. Real processes, real SIGKILL, the commands an operator would type;
with `--dfs hdfs` a real HDFS for each site. Whatever was started is stopped at the end, also after a failure or a signal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.demo.child import start_child
from gateway.demo.files import write_files
from gateway.demo.servers import HdfsRoot, two_hdfs
from tools.story_checks import (
    Findings,
    compare_storages,
    directory_log_bytes,
    hdfs_log_bytes,
    longest_gap_s,
    read_acks,
    read_back,
)
from twinlog.errors import TwinlogError
from twinlog.sites import Sites

TWINLOG = [sys.executable, "-m", "twinlog"]
SEGMENT_BYTES = (16 << 20) + 4096  # one open segment, and the header of the next one
MEMORY_MB_MAX = 400
JAVA_MB_MAX = 256 + 100  # dfs.jvm_heap_bytes, and what Java takes besides
POLL_S = 0.05
console = Console()


class StoryFailed(Exception):
    """A step did not do what it must; the message says which."""


class Story:
    def __init__(self, directory: Path, ports: dict[str, int], rate: int, rows: int) -> None:
        self.directory, self.ports, self.rate, self.rows = directory, ports, rate, rows
        self.urls = {site: f"http://127.0.0.1:{port}" for site, port in ports.items()}
        self.sites = Sites(self.urls)
        self.operator = directory / "operator.toml"
        self.acks = directory / "acks.jsonl"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.memory_mb: dict[str, float] = {}
        self.hdfs: Mapping[str, HdfsRoot] | None = None  # by site
        self.began_s = time.monotonic()

    # ---- telling and running
    def tell(self, text: str) -> None:
        console.print(f"[dim]{time.monotonic() - self.began_s:7.1f} s[/]  {text}")

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / f"{name}.log").open("ab") as log:
            process = start_child([*TWINLOG, *arguments], log, folder=Path.cwd())
        self.processes[name] = process
        return process

    def command(self, *arguments: str) -> dict[str, Any]:
        """An operator's command with --json; its answer. Raises StoryFailed when it fails."""
        started_s = time.monotonic()
        done = subprocess.run(
            [*TWINLOG, *arguments, "--config", str(self.operator), "--json"], capture_output=True, text=True, check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise StoryFailed(f"twinlog {' '.join(arguments)} ended with {done.returncode}: {done.stdout}{done.stderr}")
        self.tell(f"[green]twinlog {' '.join(arguments)}[/]  took {time.monotonic() - started_s:.1f} s")
        answer: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
        return answer

    def cluster(self, site: str) -> dict[str, Any] | None:
        try:
            return self.sites.ask(site, "GET", "/v1/cluster")
        except TwinlogError:
            return None

    def until(self, what: str, ready: Callable[[], bool], timeout_s: float) -> None:
        end_s = time.monotonic() + timeout_s
        while not ready():
            if time.monotonic() >= end_s:
                raise StoryFailed(f"{what}: not within {timeout_s:.0f} s; a: {self.cluster('a')}, b: {self.cluster('b')}")
            loader = self.processes.get("load")
            if loader is not None and loader.poll() not in (None, 0):
                raise StoryFailed(f"the load ended with {loader.returncode}: see {self.directory / 'load.log'}")
            self._note_memory()
            time.sleep(POLL_S)

    def _note_memory(self) -> None:
        for site in ("a", "b"):
            process = self.processes.get(site)
            if process is not None and process.poll() is None:
                for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        self.memory_mb[site] = max(self.memory_mb.get(site, 0.0), int(line.split()[1]) / 1024)

    def role_is(self, site: str, role: str) -> Callable[[], bool]:
        return lambda: (self.cluster(site) or {}).get("role") == role

    def acknowledged(self) -> int:
        return sum(ack["rows"] for ack in read_acks(self.acks))

    # ---- the chapters
    def serve(self, site: str) -> None:
        self.start(site, "serve", "--config", str(self.directory / site / "site.toml"))

    def open_the_pair(self) -> None:
        write_files(self.directory, self.ports, engine="rocksdb", hdfs=self.hdfs)
        self.serve("a")
        self.serve("b")
        self.until("the pair opens", lambda: self.role_is("a", "ACTIVE")() and self.role_is("b", "STANDBY")(), 60)
        self.tell("the pair is open: [b]a[/] ACTIVE, [b]b[/] STANDBY, synchronous")

    def load(self) -> None:
        options = ["--batch-rows", "100", "--in-flight", "4", "--rate", str(self.rate), "--acks", str(self.acks)]
        if self.rows:
            options += ["--rows", str(self.rows)]
        state = str(self.directory / "load.state")
        self.start("load", "load", "flights", "--config", str(self.operator), "--state", state, *options)

    def lose_a(self, at_rows: int) -> float:
        self.until("the load gets going", lambda: self.acknowledged() >= at_rows, 120)
        killed_s = time.monotonic()
        os.killpg(self.processes["a"].pid, signal.SIGKILL)
        self.processes["a"].wait()
        self.tell(f"[red]site a killed[/] (SIGKILL) after {self.acknowledged():,} acknowledged rows")
        return killed_s

    def remote_log_bytes(self) -> int:
        """Returns the size of the log on b's DFS, which a writes."""
        if self.hdfs is None:
            return directory_log_bytes(self.directory / "b" / "dfs")
        clusters = json.loads((self.directory / "hdfs" / "hdfs.json").read_bytes())
        return hdfs_log_bytes(clusters["b"])

    def stop_all(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.sites.close()


def run(story: Story) -> Findings:
    """All chapters, then the checks on what they left."""
    total = story.rows or 336_776
    story.open_the_pair()
    story.tell(f"loading {total:,} flights through the client at about {story.rate:,} rows/s")
    story.load()
    killed_s = story.lose_a(total // 5)
    story.command("failover", "--to", "b", "--yes")
    story.until("writes continue at b", lambda: any(a["monotonic_s"] > killed_s + 0.5 for a in read_acks(story.acks)), 60)
    opened_s = next(a["monotonic_s"] for a in read_acks(story.acks) if a["monotonic_s"] > killed_s + 0.5)
    story.tell("the same load continues by itself, at b")
    story.serve("a")
    story.until("a is back as standby", story.role_is("a", "STANDBY"), 60)
    story.command("rejoin", "a", "--wait", "--yes")
    story.until("b is synchronous again", story.role_is("b", "ACTIVE"), 60)
    story.tell("[b]a[/] has rejoined: b ACTIVE, a STANDBY, synchronous again")
    if story.processes["load"].poll() is not None:
        raise StoryFailed("the load ended before the switchover: choose a lower --rate, so that it happens under load")
    switch_s = time.monotonic()
    story.command("switchover", "--to", "a", "--yes")
    switched_s = time.monotonic()
    loader = story.processes["load"]
    story.until("the load ends", lambda: loader.poll() is not None, 300)
    story.until("b follows", story.role_is("b", "STANDBY"), 60)
    story.tell(f"the load has ended: {story.acknowledged():,} rows acknowledged")
    story.until("the remote log drains", lambda: story.remote_log_bytes() <= SEGMENT_BYTES, 60)
    story.until("b has applied everything", lambda: _equal(story.cluster("a"), story.cluster("b")), 60)
    remote_bytes = story.remote_log_bytes()
    acks = list(read_acks(story.acks))
    missing, wrong = asyncio.run(read_back(story.urls, acks, story.rows))
    story.stop_all()
    rows, different = asyncio.run(compare_storages(story.directory))
    return Findings(
        acknowledged=sum(a["rows"] for a in acks), expected=total, missing=missing, wrong=wrong, stored=rows,
        different=different,
        failover_gap_s=longest_gap_s(acks, killed_s - 1, opened_s + 1),
        switchover_gap_s=longest_gap_s(acks, switch_s, switched_s),
        remote_bytes=remote_bytes, remote_bytes_max=SEGMENT_BYTES, memory_mb=story.memory_mb,
        memory_mb_max=MEMORY_MB_MAX + (JAVA_MB_MAX if story.hdfs else 0),
        modes={mode: sum(1 for a in acks if a["mode"] == mode) for mode in ("sync", "async")},
    )


def _equal(a: dict[str, Any] | None, b: dict[str, Any] | None) -> bool:
    """The follower is within the noops that an idle active keeps writing."""
    return a is not None and b is not None and a["applied_seq"] - b["applied_seq"] <= 2 and a["role"] == "ACTIVE"


def show(findings: Findings) -> None:
    table = Table(title="what the story measured", show_header=True, header_style="bold")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("must be", justify="right")
    table.add_column("")
    for what, measured, bound, good in findings.rows():
        table.add_row(what, measured, bound, "[green]ok[/]" if good else "[red]WRONG[/]")
    console.print(table)


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make story", description=__doc__)
    parser.add_argument("--dir", type=Path, default=None, help="keep everything here (default: a temporary folder, removed)")
    parser.add_argument("--port-a", type=int, default=8411)
    parser.add_argument("--port-b", type=int, default=8412)
    parser.add_argument("--rate", type=int, default=10_000, help="rows a second")
    parser.add_argument("--rows", type=int, default=0, help="only the first so many flights (0: all)")
    parser.add_argument("--dfs", choices=("directory", "hdfs"), default="directory", help="where the remote logs lie")
    return parser.parse_args(given)


def _folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        chosen.mkdir(parents=True, exist_ok=True)
        if any(chosen.iterdir()):
            raise StoryFailed(f"{chosen} is not empty: the story starts from nothing; name a new folder")
        yield chosen.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix="twinlog-story-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def tell_it(options: argparse.Namespace, directory: Path) -> Findings:
    """The story in `directory`. What it started ends with it: the sites first, then their HDFS."""
    with ExitStack() as around:
        story = Story(directory, {"a": options.port_a, "b": options.port_b}, options.rate, options.rows)
        if options.dfs == "hdfs":
            story.hdfs = around.enter_context(two_hdfs(directory))
            story.tell("two HDFS are ready, one for each site")
        around.callback(story.stop_all)
        return run(story)


def _stopped(number: int, frame: object) -> None:
    raise StoryFailed(f"it was stopped by {signal.Signals(number).name}")


def main(given: list[str] | None = None) -> int:
    options = arguments(sys.argv[1:] if given is None else given)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stopped)
    try:
        for directory in _folder(options.dir):
            findings = tell_it(options, directory)
    except (StoryFailed, TwinlogError) as error:
        console.print(f"[red]the story failed:[/] {error}")
        return 1
    show(findings)
    return 0 if findings.good else 1


if __name__ == "__main__":
    raise SystemExit(main())
