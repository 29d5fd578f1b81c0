"""`python -m bench.hdfs_appends`: what an append to a real HDFS costs through the port, by size, sync, and how many in flight.

Starts an HDFS of its own (one NameNode, one DataNode) in a temporary folder. Latency is from `append` to its answer, on the
event loop; with several in flight the port groups what is queued. Cases are interleaved over the rounds.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from pathlib import Path

import uvloop

from chaos.servers.hdfs_cluster import HdfsCluster
from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import end_process, java
from remote_log.dfs.port import DfsWriter

SIZES = (300, 8192, 100_000)
IN_FLIGHT = (1, 8)
WARM_APPENDS = 50


async def appends(writer: DfsWriter, data: bytes, in_flight: int, count: int) -> tuple[list[float], float]:
    """(latencies in s, seconds for all)."""
    latencies: list[float] = []

    async def one_after_the_other() -> None:
        for _ in range(count // in_flight):
            begun = time.perf_counter()
            await writer.append(data)
            latencies.append(time.perf_counter() - begun)

    begun = time.perf_counter()
    await asyncio.gather(*[one_after_the_other() for _ in range(in_flight)])
    return latencies, time.perf_counter() - begun


async def measure(url: str, rounds: int, count: int) -> None:
    latencies: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    rates: dict[tuple[int, str, int], list[float]] = defaultdict(list)
    for round_ in range(rounds):
        for sync in ("hsync", "hflush"):
            dfs = HdfsDfs(HdfsSettings(url, "bench", sync=sync, deadline_s=30.0), java(256 << 20))
            for size in SIZES:
                for in_flight in IN_FLIGHT:
                    writer = await dfs.create(f"/{round_}/{sync}-{size}-{in_flight}")
                    data = os.urandom(size)
                    await appends(writer, data, in_flight, WARM_APPENDS)
                    found, took_s = await appends(writer, data, in_flight, count)
                    latencies[size, sync, in_flight] += found
                    rates[size, sync, in_flight].append(len(found) / took_s)
                    await writer.close()
            await dfs.delete(f"/{round_}")
            await dfs.close()
    print("| bytes | sync | in flight | p50 ms | p99 ms | appends a second |\n|---|---|---|---|---|---|")
    for (size, sync, in_flight), found in sorted(latencies.items()):
        found.sort()
        p50, p99 = (1000 * found[int(share * len(found))] for share in (0.5, 0.99))
        rate = statistics.median(rates[size, sync, in_flight])
        print(f"| {size:,} | {sync} | {in_flight} | {p50:.2f} | {p99:.1f} | {rate:,.0f} |")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=1000, help="appends of each case in each round")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, HdfsCluster(Path(folder)) as cluster:
        cluster.make_folder("/bench")
        uvloop.run(measure(f"{cluster.uri}/bench", arguments.rounds, arguments.count))
    end_process(0)


if __name__ == "__main__":
    main()
