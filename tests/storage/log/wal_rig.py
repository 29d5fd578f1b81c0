"""A WAL on files in memory, and the ways in which tests fill and read it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from storage.log.frame import Frame
from storage.log.wal import Wal, WalSettings
from tests.storage.disk.memory_files import MemoryFiles

SMALL = WalSettings(segment_bytes=1000, tail_bytes_max=1 << 20)
NO_TAIL = WalSettings(segment_bytes=1000, tail_bytes_max=1)  # keeps the newest frame only: reads come from files
ALL = 1 << 40


async def started(files: MemoryFiles, how: WalSettings = SMALL, *, epoch: int = 1, next_seq: int = 1) -> Wal:
    wal = await Wal.open(files, settings=how)
    await wal.start(epoch, next_seq)
    return wal


async def append_all(wal: Wal, frames: Sequence[Frame]) -> None:
    for frame in frames:
        await wal.append(frame)


async def read_in_steps(wal: Wal, after_seq: int, upto_seq: int, bytes_max: int) -> list[Frame]:
    read: list[Frame] = []
    while step := await wal.read(after_seq, upto_seq, bytes_max):
        read += step
        after_seq = step[-1].last_seq
    return read


async def settle() -> None:
    """Let everything that is ready run."""
    for _ in range(20):
        await asyncio.sleep(0)


def paths(files: MemoryFiles) -> list[str]:
    return sorted(files.files)
