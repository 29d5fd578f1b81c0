"""Since when a log has not grown: never before the start of an append that succeeded; early when its writer is dead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from remote_log.fencing.claims import claim
from remote_log.fencing.fence import fence
from storage.log.segment import wal_name
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs, MemoryWriter
from tests.remote_log.writing.remote_rig import LAYOUT, JumpingClock, content_of
from twinlog.errors import DfsError, LeaseLost

RECOVERY_POLLS = 8


class SlowToClose(MemoryDfs):
    """Lease recovery takes some polls, as on HDFS, and until then the writer may append. `meanwhile` runs at each."""

    def __init__(self, meanwhile: Callable[[int], Awaitable[None]] | None = None) -> None:
        super().__init__()
        self.meanwhile = meanwhile
        self._left: dict[str, int] = {}

    async def recover_lease(self, path: str) -> None:
        self._left.setdefault(path, RECOVERY_POLLS)

    async def is_closed(self, path: str) -> bool:
        left = self._left.get(path, 0)
        if left:
            self._left[path] = left - 1
            if self.meanwhile is not None:
                await self.meanwhile(RECOVERY_POLLS - left)
            if left == 1:
                await super().recover_lease(path)
        return await super().is_closed(path)


def segment(n: int) -> str:
    return LAYOUT.segment(1, wal_name(1, 1), n)


async def fenced(dfs: SlowToClose, clock: JumpingClock) -> float:
    await claim(dfs, LAYOUT, 2, content_of("mine"))
    return await fence(dfs, LAYOUT, 2, clock, 60.0)


async def an_open_segment(dfs: MemoryDfs, n: int = 0) -> MemoryWriter:
    writer = await dfs.create(segment(n))
    await writer.append(b"first")
    return writer


async def test_with_a_dead_writer_the_lease_runs_from_the_first_look() -> None:
    dfs, clock = SlowToClose(), JumpingClock()
    await an_open_segment(dfs)
    begun_s = clock.now_s
    assert await fenced(dfs, clock) == begun_s
    assert clock.now_s > begun_s + 0.1


async def test_segments_that_are_closed_already_have_ended() -> None:
    dfs, clock = SlowToClose(), JumpingClock()
    await (await an_open_segment(dfs)).close()
    begun_s = clock.now_s
    assert await fenced(dfs, clock) == begun_s


async def test_an_append_while_it_is_being_closed_counts_from_the_end() -> None:
    clock = JumpingClock()
    dfs = SlowToClose()
    writer = await an_open_segment(dfs)

    async def append(poll: int) -> None:
        if poll == RECOVERY_POLLS - 2:
            await writer.append(b"late")

    dfs.meanwhile = append
    assert await fenced(dfs, clock) == clock.now_s


async def test_a_segment_that_comes_and_is_closed_meanwhile_counts_from_the_end() -> None:
    clock = JumpingClock()
    dfs = SlowToClose()
    await an_open_segment(dfs)

    async def another(poll: int) -> None:
        if poll == 2:
            await (await an_open_segment(dfs, 1)).close()

    dfs.meanwhile = another
    assert await fenced(dfs, clock) == clock.now_s


@pytest.mark.parametrize("which", [1, 2])
async def test_what_cannot_be_read_counts_from_the_end(which: int) -> None:
    dfs, clock = SlowToClose(), JumpingClock()
    await an_open_segment(dfs)
    dfs.faults["read", which] = Fault(DfsError("no answer"))
    assert await fenced(dfs, clock) == clock.now_s


async def test_a_reading_that_takes_longer_than_the_closing_counts_from_the_end() -> None:
    class NeverRead(SlowToClose):
        async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

    dfs, clock = NeverRead(), JumpingClock()
    await an_open_segment(dfs)
    assert await fenced(dfs, clock) == clock.now_s


@pytest.mark.parametrize("seed", range(100))
async def test_no_append_that_succeeded_was_started_later(seed: int) -> None:
    """A writer that lives appends at random, rolls at random, and closes the old one or leaves it."""
    rng, clock = random.Random(seed), JumpingClock()
    dfs = SlowToClose()
    writers = [await an_open_segment(dfs)]
    starts: list[float] = []

    async def live(_: int) -> None:
        if rng.random() < 0.1:
            if rng.random() < 0.5:
                await writers[-1].close()
            writers.append(await dfs.create(segment(len(writers))))
        if rng.random() < 0.15:
            started_s = clock.now_s
            try:
                await writers[-1].append(b"more")
            except (LeaseLost, DfsError):
                return
            starts.append(started_s)

    dfs.meanwhile = live
    still_since_s = await fenced(dfs, clock)
    assert still_since_s >= max(starts, default=0.0)
