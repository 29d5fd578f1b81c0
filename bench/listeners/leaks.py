"""`python -m bench.listeners.leaks`: what a site still holds after a million requests with TLS and a token.

One pair with TLS to clients, TLS between its sites, and a token in each request. Legs of PUT and of GET follow each other over
connections that stay open for a leg; after every `--look` requests the resident memory and the open descriptors of both sites
are read. The keys are few, so that the storage has its size soon. The verdict compares the last look with that at half of the
requests: before that caches and the storage's memory fill. It fails above GROWTH_MB, or DESCRIPTORS more.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.load_generator import LoadPlan
from bench.measure import load
from bench.pair import BenchError, Pair
from bench.requests import ARROW, BATCH_ROWS, BENCH_TABLE, Workload

KEYS = 10_000
LEG = 10_000  # requests of one kind, over connections of their own
GROWTH_MB = 32.0
DESCRIPTORS = 16  # files of the storage and of the logs come and go


@dataclass(frozen=True, slots=True)
class Look:
    """Both sites after so many requests: MiB of resident memory, and open descriptors."""

    requests: int
    memory_mb: dict[str, float]
    descriptors: dict[str, int]

    def text(self) -> str:
        sites = (
            f"site {site} {self.memory_mb[site]:7.1f} MiB {self.descriptors[site]:4} descriptors" for site in self.memory_mb
        )
        return f"{self.requests:9,} requests  {'  '.join(sites)}"


def look(pair: Pair, requests: int) -> Look:
    descriptors = {site: sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) for site, pid in pair.pids.items()}
    return Look(requests, pair.memory_mb(), descriptors)


def looks(pair: Pair, requests: int, every: int, connections: int) -> list[Look]:
    """Sends `requests`, PUT and GET in turn, and looks each time when `every` more are answered."""
    rows = Workload("batch", "single", ARROW, first_key=0)  # for every GET to find its own
    load(LoadPlan(pair.host, pair.port, 1, rows, requests_max=KEYS // BATCH_ROWS, ca=pair.ca, token=pair.token))
    found = [look(pair, 0)]
    sent = 0
    while sent < requests:
        for kind in ("put", "get"):
            workload = Workload(kind, "single", keys=KEYS, seed=sent)
            result = load(LoadPlan(pair.host, pair.port, connections, workload, requests_max=LEG, ca=pair.ca, token=pair.token))
            if result.failures or result.count != LEG:
                raise BenchError(f"{kind}: {result.count} of {LEG} requests succeeded, and failed: {result.failures}")
            sent += LEG
        if sent % every == 0:
            found.append(look(pair, sent))
            sys.stdout.write(f"{found[-1].text()}\n")
            sys.stdout.flush()
    return found


def growth(found: list[Look]) -> list[str]:
    """Says what the last look has more than that at half of the requests, where it is too much."""
    first, last = found[len(found) // 2], found[-1]
    faults = []
    for site in last.memory_mb:
        more_mb = last.memory_mb[site] - first.memory_mb[site]
        more = last.descriptors[site] - first.descriptors[site]
        if more_mb > GROWTH_MB:
            faults.append(f"site {site} has {more_mb:.1f} MiB more than after {first.requests:,} requests")
        if more > DESCRIPTORS:
            faults.append(f"site {site} has {more} descriptors more than after {first.requests:,} requests")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="leaks", description="Memory and descriptors of a pair over many authorised requests."
    )
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--look", type=int, default=100_000, help="a multiple of 20,000")
    parser.add_argument("--connections", type=int, default=64)
    chosen = parser.parse_args()
    started_s = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="twinlog-leaks-") as folder,
            Pair(Path(folder) / "pair", ("--tls", "--access")) as pair,
        ):
            pair.create_table("single", BENCH_TABLE)
            found = looks(pair, chosen.requests, chosen.look, chosen.connections)
    except BenchError as error:
        sys.stderr.write(f"bench.listeners.leaks: {error}\n")
        return 1
    faults = growth(found)
    minutes = (time.monotonic() - started_s) / 60
    sys.stdout.write(f"{chosen.requests:,} requests in {minutes:.0f} minutes: {'; '.join(faults) or 'nothing grows'}\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
