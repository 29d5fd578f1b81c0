"""A rejoin keeps the log for backups: all of it across a crash at each file, within its bound, and no part of the WAL."""

from __future__ import annotations

from random import Random

import pytest

from storage.backup.kept_log import BACKUP_HOLDER, SLOTS, KeptLog
from storage.log.cursors import CursorRegistry
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind
from storage.log.wal import Wal, WalSettings
from storage.settings import KIB
from tests.storage.disk.memory_files import MemoryFiles

SMALL = WalSettings(segment_bytes=64 * KIB)
FRAMES = 12  # of 20 KiB: several segments


class Crash(Exception):
    pass


class CrashingFiles(MemoryFiles):
    """Dies at the change number `dies_at`, before or behind it."""

    dies_at, dies_before, changes = 0, True, 0

    async def rename(self, old: str, new: str) -> None:
        self.changes += 1
        if self.changes == self.dies_at and self.dies_before:
            raise Crash
        await super().rename(old, new)
        if self.changes == self.dies_at:
            raise Crash


def frame(seq: int, epoch: int) -> Frame:
    row = Record(RecordKind.UPSERT, 7, b"k%d" % seq, Random(seq).randbytes(20_000))
    return make_frame(epoch=epoch, first_seq=seq, previous=seq - 1, timestamp=seq << 16, committed=seq - 1, records=[row])


async def site(files: MemoryFiles) -> tuple[Wal, CursorRegistry, KeptLog]:
    wal, cursors = await Wal.open(files, settings=SMALL), await CursorRegistry.open(files)
    return wal, cursors, KeptLog(files, wal, cursors)


async def written(wal: Wal, epoch: int, first: int) -> list[Frame]:
    await wal.start(epoch, first, "1" * 16)
    frames = [frame(seq, epoch) for seq in range(first, first + FRAMES)]
    for one in frames:
        await wal.append(one)
    await wal.settle()
    return frames


async def read(kept: KeptLog, after_seq: int) -> list[Frame]:
    found: list[Frame] = []
    while some := (await kept.read(after_seq, 1 << 40, 50_000))[0]:
        found += some
        after_seq = some[-1].last_seq
    return found


@pytest.mark.parametrize("dies_before", [True, False])
async def test_a_crash_at_any_file_loses_nothing(dies_before: bool) -> None:
    for dies_at in range(1, 30):
        files = CrashingFiles()
        wal, cursors, _ = await site(files)
        await cursors.register(BACKUP_HOLDER, "backup-1")
        frames = await written(wal, 1, 1)
        await wal.close()
        files.dies_at, files.dies_before = dies_at, dies_before
        wal, cursors, kept = await site(files)
        crashed = False
        try:
            await kept.take()
        except Crash:
            crashed = True
        wal, cursors, kept = await site(files)
        await kept.take()
        assert wal.segments() == []
        assert await read(kept, 0) == frames
        if not crashed:
            assert dies_at > 3
            return
    raise AssertionError("it never came to an end")


async def test_several_times_as_the_active_are_apart() -> None:
    files = MemoryFiles()
    wal, cursors, kept = await site(files)
    await cursors.register(BACKUP_HOLDER, "backup-1")
    logs = []
    for number in range(len(SLOTS) + 2):  # the oldest go
        logs.append(await written(wal, 2 * number + 1, 100 * number + 1))
        await kept.take()
    assert await read(kept, 0) == await read(kept, 100) == []
    for number in range(2, len(logs)):
        assert await read(kept, 100 * number) == logs[number]
    cursors.advance("backup-1", 99, 500 + 8)
    await kept.release(99)
    assert await read(kept, 400) == []
    assert (await read(kept, 508))[0].first_seq == 509
    assert await read(kept, 600) == logs[6]
    await cursors.remove("backup-1")
    await kept.release(99)
    assert [name for slot in SLOTS for name in await files.list(slot)] == []


async def test_what_nobody_needs_or_is_too_long_is_not_kept() -> None:
    files = MemoryFiles()
    wal, cursors, kept = await site(files)
    await written(wal, 1, 1)
    await kept.take()
    assert not await read(kept, 0)
    bounded = WalSettings(segment_bytes=64 * KIB, backup_bytes_max=130 * KIB)
    wal = await Wal.open(files, settings=bounded)
    kept = KeptLog(files, wal, cursors)
    await cursors.register(BACKUP_HOLDER, "backup-1")
    frames = await written(wal, 2, 1)
    await kept.take()
    sizes = [await files.size(f"{slot}/{name}") for slot in SLOTS for name in await files.list(slot)]
    assert 0 < sum(sizes) <= 130 * KIB
    assert await read(kept, 0) == []
    assert await read(kept, frames[-2].last_seq) == frames[-1:]
