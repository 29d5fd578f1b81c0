"""The victim of test_rocks_crash.py: applies the frames of `frame_number` for ever, and says how far it is and what is durable.

Started as `python -m tests.storage.engines.rocks.apply_until_killed FOLDER SEED`.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.frame import COUNTER_BITS, Frame, make_frame
from tests.storage.engines.engine_rig import delete, put_table, request, update, upsert, value

# So small that memtables fill, and files are compacted, many times before the end.
SETTINGS = RocksSettings(write_buffer_bytes=64 << 10, block_cache_bytes=1 << 20, inline_records_max=40)
SHARED = [b"shared %d" % number for number in range(12)]
KEPT = 50  # of the rows that one frame each writes, this many are there at any time
PER_FRAME = 2 * len(SHARED) + 3
TABLE = 3


def frame_number(n: int) -> Frame:
    """Frame n, from 1 on: writes n into every shared row, adds row n and takes row n - KEPT away."""
    records = [put_table(TABLE, history_s=1, name=str(n))]
    records += [upsert(key, value(c1=n, c3="x" * 200), TABLE, request=request(f"{n}")) for key in SHARED]
    records += [update(key, value(c2=-n), TABLE) for key in SHARED]
    records += [upsert(b"row %d" % n, value(c1=n), TABLE), delete(b"row %d" % (n - KEPT), TABLE)]
    first = (n - 1) * PER_FRAME + 1
    return make_frame(
        epoch=1, first_seq=first, previous=first - 1, timestamp=n << COUNTER_BITS, committed=first - 1, records=records
    )


async def main(folder: Path, seed: int) -> None:
    source = random.Random(seed)
    engine = await RocksEngine.open(folder, SETTINGS)
    n = engine.applied.seq // PER_FRAME
    flushing: asyncio.Task[int] | None = None
    while True:
        group = [frame_number(n + 1 + i) for i in range(source.choice((1, 1, 2, 5)))]
        await engine.apply(group)
        n += len(group)
        if source.random() < 0.02 and (flushing is None or flushing.done()):
            flushing = asyncio.create_task(engine.flush())
        if source.random() < 0.005:
            await engine.purge(now_ms=n + 1000 - 5)  # what ended five frames ago may go
        sys.stdout.write(f"{n} {engine.durable_seq}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
