"""`python -m bench.cpu --dfs hdfs`: how much CPU one write takes, by process and thread, and what else it waits for.

One pair, synchronous, single-row writes over `--connections`. CPU is what the kernel counts for each thread before and after
(/proc, ticks of 10 ms, so only the sums of some seconds mean anything): it depends little on what else the machine does, unlike
the latencies beside it. Threads of one name are added up.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from bench import measure
from bench.load_generator import LoadPlan
from bench.pair import BenchError, Pair
from bench.requests import BENCH_TABLE, Workload

Spent = Counter[tuple[str, str]]  # (process, thread) -> microseconds
_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_SECONDS = 5.0  # Java compiles what is used often


def spent(pair: Pair) -> Spent:
    """CPU so far of the pair's processes and of all that they rest on."""
    parents = {pid: _stat(Path(f"/proc/{pid}/stat"))[1] for pid in _pids()}
    names = {pid: f"site {site}" for site, pid in pair.pids.items()}
    found: Spent = Counter()
    for pid in parents:
        line: list[int] = [pid]
        while line[-1] in parents:
            line.append(parents[line[-1]])
        if pair.root_pid not in line:
            continue
        name = names.get(pid) or _daemon(pid)
        for task in Path(f"/proc/{pid}/task").iterdir():
            thread, _, taken = _stat(task / "stat")
            is_loop = int(task.name) == pid and pid in names
            found[name, "event loop" if is_loop else thread] += taken
    return found


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and (entry / "stat").exists()]


def _stat(path: Path) -> tuple[str, int, int]:
    """(name, parent, microseconds of CPU); of a thread or process that is gone nothing."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return "", 0, 0
    name, fields = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
    return name, int(fields[1]), (int(fields[11]) + int(fields[12])) * 1_000_000 // _TICKS


def _daemon(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    except OSError:
        return "gone"
    if words and words[-1].endswith("Node"):
        site = next((site for site in "ab" for word in words if f"/hdfs/{site}/" in word), "?")
        return f"{words[-1].rpartition('.')[2]} {site}"
    return "others"


def run(pair: Pair, connections: int, seconds: float) -> None:
    pair.create_table("single", BENCH_TABLE)
    workload = Workload("put", "single", keys=measure.KEYS)
    pair.set_mode("sync")
    measure.load(LoadPlan(pair.host, pair.port, connections, workload, seconds=_WARM_SECONDS))
    before = spent(pair)
    result = measure.load(LoadPlan(pair.host, pair.port, connections, workload, seconds=seconds, warm_up_s=0.0))
    used = spent(pair) - before
    print(f"{result.per_second:,.0f} writes a second over {connections}, p50, p99 {result.p50_ms:.2f}, {result.p99_ms:.1f} ms")
    print("| CPU of | us a write |\n|---|---|")
    for process in dict.fromkeys(name for name, _ in sorted(used)):
        threads = Counter({thread: taken for (name, thread), taken in used.items() if name == process})
        print(f"| **{process}** | **{threads.total() / result.count:.0f}** |")
        for thread, taken in threads.most_common():
            if taken >= result.count:
                print(f"| {thread} | {taken / result.count:.0f} |")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.cpu", description=__doc__)
    parser.add_argument("--dfs", choices=("directory", "hdfs"), default="hdfs")
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="twinlog-cpu-") as folder,
            Pair(Path(folder) / "pair", ("--dfs", chosen.dfs)) as pair,
        ):
            run(pair, chosen.connections, chosen.seconds)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
