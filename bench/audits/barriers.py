"""Measures how long a barrier holds writes back at the active: a demo pair with many rows, idle and under single-row writes.

    python -m bench.audits.barriers [--rows 1000000] [--writers 16] [--times 7]

The figures, in milliseconds: `answer`, from the request for a barrier to its answer; `gap`, the longest time without any
acknowledgement around it; `usual`, the longest such time in stretches of the same length without a barrier; `other site`, until
that one holds its snapshot too. Idle there are no acknowledgements, so a single write is sent behind the barrier: `write`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from statistics import median

import pyarrow as pa  # type: ignore[import-untyped]

from bench.pair import Pair
from twinlog import AsyncClient, Client, Patience
from twinlog.addresses import resolve_address
from twinlog.errors import NotFound

OTHER = "b"  # site a begins as the active
TABLE = {
    "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"],
}
BATCH, TEXT_BYTES = 10_000, 100
AROUND_S = 0.1
QUIET_S = 2.0
POLL_S, POLLS_MAX = 0.002, 10_000


def fill(urls: Mapping[str, str], rows: int) -> None:
    with Client(urls) as client:
        for first in range(0, rows, BATCH):
            keys = pa.array(range(first, min(first + BATCH, rows)), pa.int64())
            texts = pa.array([f"{number:0{TEXT_BYTES}}" for number in range(first, first + len(keys))])
            client.upsert_arrow("t", pa.table({"k": keys, "v": texts}))


class Load:
    """Single-row writes by so many clients; `at_s`: when each was acknowledged."""

    def __init__(self, client: AsyncClient, writers: int, rows: int) -> None:
        self.at_s: list[float] = []
        self._client, self._rows = client, rows
        self._tasks = [asyncio.create_task(self._write(seed)) for seed in range(writers)]

    async def _write(self, seed: int) -> None:
        draw = random.Random(seed)
        while True:
            await self._client.put("t", draw.randrange(self._rows), {"v": "x" * TEXT_BYTES})
            self.at_s.append(time.perf_counter())

    def gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time without an acknowledgement between the two."""
        inside = [begin_s, *(at_s for at_s in self.at_s if begin_s < at_s < end_s), end_s]
        return max(later - earlier for earlier, later in pairwise(inside))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def take(client: AsyncClient, name: str) -> tuple[float, float, float]:
    """Returns when the barrier was asked for, when it was answered, and when the other site held it."""
    begin_s = time.perf_counter()
    await client.take_barrier(name)
    answered_s = time.perf_counter()
    for _ in range(POLLS_MAX):
        try:
            await client.barrier(name, OTHER)
            break
        except NotFound:
            await asyncio.sleep(POLL_S)
    held_s = time.perf_counter()
    for site in client.view.urls:
        await client.release_barrier(name, site)
    return begin_s, answered_s, held_s


async def idle(client: AsyncClient, times: int) -> dict[str, list[float]]:
    told: dict[str, list[float]] = {"answer": [], "other site": [], "write": []}
    for number in range(times):
        await asyncio.sleep(QUIET_S)
        barrier = asyncio.create_task(take(client, f"idle-{number}"))
        await asyncio.sleep(0.001)
        begin_s = time.perf_counter()
        await client.put("t", 1, {"v": "x"})
        told["write"].append(time.perf_counter() - begin_s)
        asked_s, answered_s, held_s = await barrier
        told["answer"].append(answered_s - asked_s)
        told["other site"].append(held_s - asked_s)
    return told


async def loaded(client: AsyncClient, times: int, writers: int, rows: int) -> tuple[dict[str, list[float]], float]:
    """And how many writes were acknowledged a second."""
    told: dict[str, list[float]] = {"answer": [], "other site": [], "gap": [], "usual": []}
    load = Load(client, writers, rows)
    await asyncio.sleep(QUIET_S)
    for number in range(times):
        await asyncio.sleep(QUIET_S)
        asked_s, answered_s, held_s = await take(client, f"loaded-{number}")
        await asyncio.sleep(AROUND_S)
        told["answer"].append(answered_s - asked_s)
        told["other site"].append(held_s - asked_s)
        length_s = answered_s + AROUND_S - asked_s
        told["gap"].append(load.gap_s(asked_s, asked_s + length_s))
        told["usual"].append(load.gap_s(asked_s - 2 * length_s, asked_s - length_s))
    begin_s, count = load.at_s[0], len(load.at_s)
    await load.stop()
    return told, count / (load.at_s[-1] - begin_s)


def shown(told: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Milliseconds."""
    return {
        name: {"median": round(1000 * median(values), 1), "most": round(1000 * max(values), 1)} for name, values in told.items()
    }


async def measure(urls: Mapping[str, str], rows: int, writers: int, times: int) -> dict[str, object]:
    async with AsyncClient(urls, Patience(attempt_timeout_s=30), connections_max=writers + 8) as client:
        quiet = shown(await idle(client, times))
        told, writes_s = await loaded(client, times, writers, rows)
        return {"rows": rows, "idle": quiet, "loaded": {**shown(told), "writes a second": round(writes_s)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--times", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinlog-barriers-") as folder, Pair(Path(folder) / "pair") as pair:
        urls = resolve_address(str(pair.note))
        pair.create_table("t", TABLE)
        fill(urls, chosen.rows)
        told = asyncio.run(measure(urls, chosen.rows, chosen.writers, chosen.times))
    sys.stdout.write(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
