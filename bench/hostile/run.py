"""`python -m bench.hostile.run`: what one client can do to everybody else, into out/hostile.json and a table.

For each attack (attacks.py) a pair of its own is started, with 1024 file descriptors; a bystander (bystander.py) writes and
reads small rows while the attack runs. The marks: the active's memory stays below 600 MB, the bystander's p99 below 250 ms, no
request of his fails, and the epoch lives. The first line, without an attack, shows what the machine does by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.hostile.attacks import ATTACKS, OF_TLS, TABLE, Answers
from bench.hostile.bystander import TABLE as BYSTANDER_TABLE
from bench.hostile.bystander import Seen
from bench.pair import BenchError, Pair
from bench.requests import BENCH_TABLE
from twinlog.errors import TwinlogError

MEMORY_MB_MAX, P99_MS_MAX = 600.0, 250.0
DESCRIPTORS = 1024
_OWN_DESCRIPTORS = 4096
_LIMITED = ("sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh")
_NOBODY = "nobody"


async def measure(name: str, pair: Pair, seconds: float) -> dict[str, Any]:
    """Runs one attack beside the bystander."""
    pid = pair.pids["a"]
    answers: Answers = Counter()
    cpu_s = _cpu_s(pid)
    attack = asyncio.ensure_future(ATTACKS[name](pair.port, answers)) if name != _NOBODY else None
    bystander = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.hostile.bystander", str(pair.port), str(seconds), *([pair.ca] if pair.ca else ()),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await bystander.communicate()
    if attack is not None:
        attack.cancel()
        await asyncio.gather(attack, return_exceptions=True)
    seen = msgspec.json.decode(said, type=Seen)
    peak_mb = _peak_mb(pid)
    alive = await asyncio.to_thread(_still_active, pair)
    kept = alive and seen.failures == 0 and seen.p99_ms <= P99_MS_MAX and peak_mb <= MEMORY_MB_MAX
    return {
        "attack": name, "kept": kept, "peak_mb": peak_mb, "epoch_alive": alive, "bystander": msgspec.to_builtins(seen),
        "answers": dict(answers), "journal_kib": _journal_kib(pair), "load": os.getloadavg()[0],
        "cpu_s": round(_cpu_s(pid) - cpu_s, 2),
    }


def _still_active(pair: Pair) -> bool:
    try:
        document = pair.cluster()
    except TwinlogError:
        return False
    return bool(document["role"] == "ACTIVE" and document["epoch"] == 1)


def _cpu_s(pid: int) -> float:
    """The CPU time that the process has taken, of all its threads; not a number: it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return float("inf")
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _journal_kib(pair: Pair) -> float:
    return sum(path.stat().st_size for path in (pair.folder / "a").rglob("journal.db*")) / 1024


def show(lines: list[dict[str, Any]], console: Console) -> None:
    table = Table("attack", "kept", "peak MB", "p50 ms", "p99 ms", "max ms", "failed", "epoch", "load")
    for line in lines:
        seen = line["bystander"]
        table.add_row(
            line["attack"], "yes" if line["kept"] else "NO", f"{line['peak_mb']:.0f}", f"{seen['p50_ms']:.1f}",
            f"{seen['p99_ms']:.0f}", f"{seen['max_ms']:.0f}", f"{seen['failures']} of {seen['count']}",
            "lives" if line["epoch_alive"] else "ENDED", f"{line['load']:.1f}",
        )
    Console(width=120).print(table)
    for line in lines:
        answers = ", ".join(f"{status}: {count}" for status, count in sorted(line["answers"].items()))
        journal = f"journal {line['journal_kib']:.0f} KiB; the active took {line['cpu_s']:.1f} s of CPU"
        console.print(f"{line['attack']}: {answers or 'nothing was asked'}; {journal}", markup=False)


def main(given: list[str] | None = None) -> int:
    """Ends with 1 where a mark is missed."""
    parser = argparse.ArgumentParser(prog="bench.hostile.run", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help=f"only attacks named so: {', '.join(ATTACKS)}")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("out"))
    chosen = parser.parse_args(given)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_OWN_DESCRIPTORS, hard), hard))
    lines = []
    console = Console()
    for name in [_NOBODY, *(name for name in ATTACKS if chosen.only in name)]:
        with tempfile.TemporaryDirectory(prefix="twinlog-hostile-", ignore_cleanup_errors=True) as folder, console.status(name):
            try:
                options = ("--tls",) if name in OF_TLS else ()
                with Pair(Path(folder) / "pair", options, prefix=_LIMITED) as pair:
                    for table in (TABLE, BYSTANDER_TABLE):
                        pair.create_table(table, BENCH_TABLE)
                    Path(f"/proc/{pair.pids['a']}/clear_refs").write_text("5")  # the peak from here on
                    lines.append(asyncio.run(measure(name, pair, chosen.seconds)))
            except BenchError as error:
                console.print(f"bench: {name}: {error}", style="red", markup=False)
                return 1
    chosen.out.mkdir(parents=True, exist_ok=True)
    document = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "seconds": chosen.seconds, "lines": lines}
    (chosen.out / "hostile.json").write_text(json.dumps(document, indent=2) + "\n")
    show(lines, console)
    return 0 if all(line["kept"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
