"""Segments of one writer whose files are closed while others are being closed."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from remote_log.dfs.port import DfsEntry
from remote_log.fencing.claims import claim
from remote_log.writing.segments import RemoteSegments
from storage.log.segment import wal_name
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs
from tests.remote_log.writing.remote_rig import LAYOUT, JumpingClock, content_of
from tests.remote_log.writing.writer_rig import path_of
from twinlog.errors import DfsError


class CountingDfs(MemoryDfs):
    """Notes each recovery that it begins. A second one of a file begins it anew, as on HDFS."""

    def __init__(self) -> None:
        super().__init__()
        self.recovered: list[str] = []
        self.disk.recovery_polls = 5

    async def recover_lease(self, path: str) -> None:
        self.recovered.append(path)
        await super().recover_lease(path)


async def begun(dfs: MemoryDfs) -> RemoteSegments:
    """Segments 1 and 2 are whole; the creation of 0 landed, and its answer was lost."""
    await claim(dfs, LAYOUT, 1, content_of("p1"))
    dfs.faults["create", 1] = Fault(DfsError("the answer was lost"), landed=1)
    segments = RemoteSegments(dfs, LAYOUT, 1, JumpingClock(), lambda: wal_name(1, 1), 10.0, count(), "0123456789abcdef")
    with pytest.raises(DfsError):
        await segments.open_next()
    for _ in range(2):
        await segments.open_next()
    return segments


async def test_two_that_finish_at_once_do_not_begin_one_recovery_twice() -> None:
    dfs = CountingDfs()
    segments = await begun(dfs)
    await asyncio.gather(*(segments.finish(segment) for segment in segments.known))
    assert dfs.recovered == [path_of(0)]
    assert await dfs.is_closed(path_of(0))


async def test_what_reopens_waits_for_a_recovery_that_is_under_way() -> None:
    dfs = CountingDfs()
    segments = await begun(dfs)
    closed_at_create: list[bool] = []
    create = dfs.create

    async def noted(path: str):  # type: ignore[no-untyped-def]
        closed_at_create.append(dfs.disk.files[path_of(0)].closed)
        return await create(path)

    dfs.create = noted  # type: ignore[method-assign]
    await asyncio.gather(segments.finish(segments.known[0]), segments.reopen())
    assert closed_at_create == [True]
    assert dfs.recovered.count(path_of(0)) == 1


async def test_a_recovery_that_fails_is_tried_again_by_the_next() -> None:
    dfs = CountingDfs()
    segments = await begun(dfs)
    dfs.disk.recovery_polls = 10**6
    with pytest.raises(DfsError):
        await segments.finish(segments.known[0])
    dfs.disk.recovery_polls = 1
    await segments.finish(segments.known[1])
    listed: list[DfsEntry] = await dfs.list(LAYOUT.epoch_folder(1))
    assert len(listed) == 3
    assert all(file.closed for file in dfs.disk.files.values())
