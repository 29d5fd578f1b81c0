"""The tail of the log in memory: its bound is one of memory, also where frames are small."""

from __future__ import annotations

import tracemalloc

from storage.log.wal_tail import MemoryTail
from tests.storage.engines.engine_rig import Log, upsert

MIB = 1 << 20


def test_small_frames_stay_within_the_bound() -> None:
    log, tail = Log(), MemoryTail(MIB)
    tracemalloc.start()
    try:
        for _ in range(20_000):
            frame = log.frame(upsert(b"key", b"v" * 20))
            tail.append(frame)
            frame.release_records()
        del frame
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert MIB / 2 < taken < MIB * 5 / 4
    assert tail.reaches(log.seq - 1_000)
    assert not tail.reaches(log.seq - 10_000)
