"""`make bench`: one pair, every case in both modes, into out/bench.json, out/bench.png and a table on the terminal.

The load generator shares the machine with both sites, so the figures are those of the whole; they are for comparing modes
and releases on one machine, not machines. docs/performance.md has the method.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import measure, report
from bench.pair import BenchError, Pair

WARM_UP_PUTS = 10_000  # after 6,000 to 8,000 appends Java has compiled the client's path


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure a pair: synchronous against asynchronous, interleaved.")
    parser.add_argument("--dfs", choices=("directory", "hdfs"), default="directory", help="where the remote logs lie")
    parser.add_argument("--dfs-sync", choices=("hsync", "hflush"), default="hsync", help="of hdfs")
    parser.add_argument("--engine", choices=("rocksdb", "postgresql", "sqlite"), default="rocksdb", help="what keeps the rows")
    parser.add_argument("--access", action="store_true", help="the sites answer only who has a token, and the load has it")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each case in each mode")
    parser.add_argument("--seconds", type=float, default=3.0, help="measured seconds of each round")
    parser.add_argument("--rows-max", type=int, default=1_000_000, help="how far the growing table grows; 0: not at all")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose name contains this, such as put")
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for bench.json and bench.png")
    chosen = parser.parse_args(given)
    if chosen.rounds < 1 or chosen.seconds <= 0 or chosen.rows_max < 0:
        parser.error("--rounds must be at least 1, --seconds above 0, --rows-max at least 0")
    if not any(chosen.only in case.name for case in measure.cases()):
        parser.error(f"--only {chosen.only}: there are {', '.join(case.name for case in measure.cases())}")
    return chosen


def settings(chosen: argparse.Namespace) -> dict[str, Any]:
    return {
        "dfs": chosen.dfs, "dfs_sync": chosen.dfs_sync, "engine": chosen.engine, "rounds": chosen.rounds,
        "seconds": chosen.seconds, "rows_max": chosen.rows_max, "access": chosen.access,
    }


def run(chosen: argparse.Namespace, folder: Path, console: Console) -> dict[str, Any]:
    """Measure on a pair in `folder`. The document that bench.json holds. Raises BenchError."""
    samples: list[measure.Sample] = []
    wanted = [case for case in measure.cases() if chosen.only in case.name]
    on = ["--dfs", chosen.dfs, "--dfs-sync", chosen.dfs_sync, "--engine", chosen.engine, *["--access"] * chosen.access]
    with console.status("starting a pair") as status, Pair(folder, on) as pair:
        measure.prepare(pair, WARM_UP_PUTS if chosen.dfs == "hdfs" else 0)
        memory = {"empty": pair.memory_mb()}
        samples.extend(measure.rounds(pair, wanted, chosen.rounds, chosen.seconds, status.update))
        memory["after the rounds"] = pair.memory_mb()
        grown = measure.growth(pair, chosen.rows_max, status.update)
        memory["at the end"] = pair.memory_mb()
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cores": os.cpu_count(), "system": platform.system(), "release": platform.release(), "python": sys.version},
        "settings": settings(chosen),
        "cases": measure.summary(samples),
        "growth": grown,
        "memory_mb": memory,
        "samples": [
            {"case": sample.case, "mode": sample.mode, "round": sample.round, "per_second": sample.result.per_second,
             "failures": sample.result.failures, "append_p50_ms": sample.append_p50_ms, "pauses": sample.pauses}
            for sample in samples
        ],
    }


def main(given: list[str] | None = None) -> int:
    chosen = arguments(sys.argv[1:] if given is None else given)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="twinlog-bench-"))
    folder.chmod(0o711)  # PostgreSQL's user must be able to reach its own folder below
    try:
        document = run(chosen, folder / "pair", console)
    except BenchError as error:
        Console(stderr=True).print(f"bench: {error}\nThe pair's files are kept in {folder}.", style="red", markup=False)
        return 1
    shutil.rmtree(folder)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "bench.json").write_text(json.dumps(document, indent=2) + "\n")
    report.plot(document, chosen.out / "bench.png")
    report.show(document, console)
    console.print(f"\n{chosen.out}/bench.json, {chosen.out}/bench.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
