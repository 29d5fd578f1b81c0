"""Rows a second that the RocksDB engine applies, and the latency of a point read. Run: `python -m bench.engine`.

Each line is the median of several rounds on a database of its own. Apply is measured twice: on the event loop alone, and
with a second task that always wants the loop, for what an apply costs the others is part of its price.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind

TABLE = 1
VALUE = b"v" * 100


def frames_of(records: int, count: int, source: random.Random) -> list[Frame]:
    """`count` frames of `records` random upserts of 100 bytes, decoded as they are on the active side."""
    frames = []
    seq = 0
    for _ in range(count):
        made = [Record(kind=int(RecordKind.UPSERT), table=TABLE, key=source.randbytes(9), value=VALUE) for _ in range(records)]
        frames.append(make_frame(epoch=1, first_seq=seq + 1, previous=seq, timestamp=seq + 1, committed=0, records=made))
        seq += records
    return frames


async def busy(lags: list[float]) -> None:
    """Wants the event loop at all times, and notes how long it was kept waiting in seconds."""
    while True:
        begin = time.perf_counter()
        await asyncio.sleep(0)
        lags.append(time.perf_counter() - begin)


async def apply_round(frames: list[Frame], settings: RocksSettings, with_busy: bool) -> tuple[float, float, float]:
    """Rows a second, worst apply in ms, worst wait of the busy task in ms."""
    with tempfile.TemporaryDirectory() as folder:
        engine = await RocksEngine.open(Path(folder), settings)
        lags = [0.0]
        task = asyncio.create_task(busy(lags)) if with_busy else None
        worst = 0.0
        begin = time.perf_counter()
        for frame in frames:
            start = time.perf_counter()
            await engine.apply([frame])
            worst = max(worst, time.perf_counter() - start)
            await asyncio.sleep(0)
        spent = time.perf_counter() - begin
        if task is not None:
            task.cancel()
        await engine.close()
    return sum(frame.count for frame in frames) / spent, worst * 1e3, max(lags) * 1e3


async def get_round(settings: RocksSettings, flushed: bool) -> float:
    """Microseconds of a point read."""
    with tempfile.TemporaryDirectory() as folder:
        engine = await RocksEngine.open(Path(folder), settings)
        frames = frames_of(1000, 100, random.Random(1))
        await engine.apply(frames)
        if flushed:
            await engine.flush()
        keys = [record.key for frame in frames for record in frame.records]
        random.Random(2).shuffle(keys)
        begin = time.perf_counter()
        for key in keys:
            await engine.get(TABLE, key)
        spent = time.perf_counter() - begin
        await engine.close()
    return spent / len(keys) * 1e6


async def run(rounds: int, rows: int) -> None:
    say = sys.stdout.write
    for records in (1, 30, 100, 1000):
        frames = frames_of(records, max(1, (rows if records > 1 else rows // 5) // records), random.Random(records))
        for where, inline_max in (("event loop", 1 << 30), ("thread", 0)):
            for with_busy in (False, True):
                settings = RocksSettings(inline_records_max=inline_max)
                results = [await apply_round(frames, settings, with_busy) for _ in range(rounds)]
                rate, worst, lag = (statistics.median(column) for column in zip(*results, strict=True))
                say(
                    f"apply, frames of {records:5}, {where:10}, {'busy loop' if with_busy else 'idle loop'}: "
                    f"{rate:9,.0f} rows/s, {records / rate * 1e6:8.1f} us a frame, worst {worst:6.2f} ms"
                    f"{f', loop kept waiting {lag:.2f} ms' if with_busy else ''}\n"
                )
    for flushed in (False, True):
        latency = statistics.median([await get_round(RocksSettings(), flushed) for _ in range(rounds)])
        say(f"get, {'from files ' if flushed else 'from memory'}: {latency:.2f} us\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=200_000)
    arguments = parser.parse_args()
    asyncio.run(run(arguments.rounds, arguments.rows))
