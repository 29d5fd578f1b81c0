"""Measures how long a barrier holds writes back at the active: a demo pair with many rows, idle and under single-row writes.

    python -m bench.audits.barriers [--rows 1000000] [--writers 16] [--times 7]

What is told, in milliseconds: `answer`, from the request for a barrier to its answer; `gap`, the longest time without any
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
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

import httpx
import pyarrow as pa  # type: ignore[import-untyped]

from bench.pair import Pair
from twinlog import Client

TABLE = {
    "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"],
}
BATCH, TEXT_BYTES = 10_000, 100
AROUND_S = 0.1
QUIET_S = 2.0
POLL_S, POLLS_MAX = 0.002, 10_000


def fill(url: str, rows: int) -> None:
    with Client(f"twinlog://bench?a={url}") as client:
        for first in range(0, rows, BATCH):
            keys = pa.array(range(first, min(first + BATCH, rows)), pa.int64())
            texts = pa.array([f"{number:0{TEXT_BYTES}}" for number in range(first, first + len(keys))])
            client.upsert_arrow("t", pa.table({"k": keys, "v": texts}))


class Load:
    """Single-row writes by so many clients; `at_s`: when each was acknowledged."""

    def __init__(self, http: httpx.AsyncClient, writers: int, rows: int) -> None:
        self.at_s: list[float] = []
        self._http, self._rows = http, rows
        self._tasks = [asyncio.create_task(self._write(seed)) for seed in range(writers)]

    async def _write(self, seed: int) -> None:
        draw = random.Random(seed)
        while True:
            answer = await self._http.put(f"/v1/tables/t/rows/{draw.randrange(self._rows)}", json={"v": "x" * TEXT_BYTES})
            answer.raise_for_status()
            self.at_s.append(time.perf_counter())

    def gap_s(self, begin_s: float, end_s: float) -> float:
        """The longest time without an acknowledgement between the two."""
        inside = [begin_s, *(at_s for at_s in self.at_s if begin_s < at_s < end_s), end_s]
        return max(later - earlier for earlier, later in pairwise(inside))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def take(active: httpx.AsyncClient, other: httpx.AsyncClient, name: str) -> tuple[float, float, float]:
    """Returns when the barrier was asked for, when it was answered, and when the other site held it."""
    begin_s = time.perf_counter()
    (await active.post("/v1/barriers", json={"name": name})).raise_for_status()
    answered_s = time.perf_counter()
    for _ in range(POLLS_MAX):
        if (await other.get(f"/v1/barriers/{name}")).status_code == 200:
            break
        await asyncio.sleep(POLL_S)
    held_s = time.perf_counter()
    for site in (active, other):
        (await site.delete(f"/v1/barriers/{name}")).raise_for_status()
    return begin_s, answered_s, held_s


async def idle(active: httpx.AsyncClient, other: httpx.AsyncClient, times: int) -> dict[str, list[float]]:
    told: dict[str, list[float]] = {"answer": [], "other site": [], "write": []}
    for number in range(times):
        await asyncio.sleep(QUIET_S)
        barrier = asyncio.create_task(take(active, other, f"idle-{number}"))
        await asyncio.sleep(0.001)
        begin_s = time.perf_counter()
        (await active.put("/v1/tables/t/rows/1", json={"v": "x"})).raise_for_status()
        told["write"].append(time.perf_counter() - begin_s)
        asked_s, answered_s, held_s = await barrier
        told["answer"].append(answered_s - asked_s)
        told["other site"].append(held_s - asked_s)
    return told


async def loaded(
    active: httpx.AsyncClient, other: httpx.AsyncClient, times: int, writers: int, rows: int
) -> tuple[dict[str, list[float]], float]:
    """And how many writes were acknowledged a second."""
    told: dict[str, list[float]] = {"answer": [], "other site": [], "gap": [], "usual": []}
    load = Load(active, writers, rows)
    await asyncio.sleep(QUIET_S)
    for number in range(times):
        await asyncio.sleep(QUIET_S)
        asked_s, answered_s, held_s = await take(active, other, f"loaded-{number}")
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


async def measure(urls: Sequence[str], rows: int, writers: int, times: int) -> dict[str, object]:
    limits = httpx.Limits(max_connections=writers + 8)
    async with (
        httpx.AsyncClient(base_url=urls[0], timeout=60, limits=limits) as active,
        httpx.AsyncClient(base_url=urls[1], timeout=60) as other,
    ):
        quiet = shown(await idle(active, other, times))
        told, writes_s = await loaded(active, other, times, writers, rows)
        return {"rows": rows, "idle": quiet, "loaded": {**shown(told), "writes a second": round(writes_s)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--times", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="twinlog-barriers-") as folder, Pair(Path(folder) / "pair") as pair:
        urls = [site["url"] for _, site in sorted(json.loads(pair.note.read_text())["sites"].items())]
        pair.create_table("t", TABLE)
        fill(urls[0], chosen.rows)
        told = asyncio.run(measure(urls, chosen.rows, chosen.writers, chosen.times))
    sys.stdout.write(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
