"""A disk that fails in a change of the active is told once, and not once for each frame."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from storage.log.frame import Frame
from switchover.activation.own_log import append_whole
from tests.storage.disk.memory_files import MemoryFiles
from tests.storage.log.frames import run
from tests.storage.log.wal_rig import started
from twinlog.errors import SyncFailed


class FailingWal:
    """Appends fail from the second one on."""

    def __init__(self) -> None:
        self.count = 0

    def append(self, frame: Frame) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.count += 1
        if self.count == 1:
            done.set_result(None)
        else:
            done.set_exception(SyncFailed(f"append {self.count}"))
        return done


async def test_the_first_failure_is_raised_and_no_other_is_left() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    wal: Any = FailingWal()
    reached: list[int] = []
    with pytest.raises(SyncFailed, match="append 2"):
        await append_whole(wal, run(1, 50), reached.append)
    assert wal.count == 50
    assert reached == [1]
    await asyncio.sleep(0)
    gc.collect()
    assert told == []


async def test_all_are_durable_and_counted() -> None:
    wal = await started(MemoryFiles())
    reached: list[int] = []
    await append_whole(wal, run(1, 5), reached.append)
    assert reached == [1, 2, 3, 4, 5]
    assert [frame.first_seq for frame in await wal.read_all()] == [1, 2, 3, 4, 5]
