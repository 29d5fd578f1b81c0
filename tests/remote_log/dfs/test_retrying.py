"""Waiting for a DFS: an answer within a time, and calls that are repeated while they fail for a transient reason."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from remote_log.dfs.retrying import RETRY_FOR_S, RetryingDfs, retrying, within
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs
from tests.remote_log.writing.remote_rig import JumpingClock
from twinlog.errors import DfsError, DfsExists


class Failing:
    """Raises `error` for the first `times` calls."""

    def __init__(self, error: Exception, times: float) -> None:
        self.error, self.times, self.calls = error, times, 0

    async def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return self.calls


async def test_an_answer_in_time_is_returned_and_a_late_one_is_a_dfs_error() -> None:
    assert await within(5.0, Failing(DfsError(""), 0)()) == 1
    with pytest.raises(DfsExists):
        await within(5.0, Failing(DfsExists("it exists"), 1)())
    with pytest.raises(DfsError, match=r"does not answer in 0\.01 s"):
        await within(0.01, asyncio.Event().wait())


async def test_transient_failures_are_repeated_with_longer_and_longer_pauses() -> None:
    clock, failures = JumpingClock(), list[BaseException]()
    call = Failing(DfsError("no answer"), 7)
    begun_s = clock.now_s
    assert await retrying(clock, call, on_failure=failures.append) == 8
    assert clock.now_s - begun_s == pytest.approx(0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 1.0 + 1.0)
    assert failures == [call.error] * 7


async def test_what_the_dfs_decided_is_raised_at_once() -> None:
    call = Failing(DfsExists("it exists"), inf)
    with pytest.raises(DfsExists):
        await retrying(JumpingClock(), call)
    assert call.calls == 1


@pytest.mark.parametrize("for_s", [None, 2.0])
async def test_the_last_failure_is_raised_when_the_time_is_over(for_s: float | None) -> None:
    clock = JumpingClock()
    begun_s = clock.now_s
    with pytest.raises(DfsError, match="no answer"):
        await retrying(clock, Failing(DfsError("no answer"), inf), until_s=None if for_s is None else begun_s + for_s)
    allowed_s = for_s or RETRY_FOR_S
    assert allowed_s <= clock.now_s - begun_s < allowed_s + 1.1


async def test_each_call_of_a_retrying_dfs_reaches_the_dfs() -> None:
    inner = MemoryDfs()
    dfs = RetryingDfs(inner, JumpingClock())
    inner.faults["create_file", 1] = Fault(DfsError("no answer"))
    await dfs.create_file("/p/claim", b"content")
    assert await dfs.read("/p/claim") == b"content"
    await dfs.create("/p/s")
    assert not await dfs.is_closed("/p/s")
    await dfs.recover_lease("/p/s")
    assert [entry.name for entry in await dfs.list("/p")] == ["claim", "s"]
    await dfs.delete("/p/claim")
    assert inner.calls == {
        "create_file": 2, "read": 1, "create": 1, "is_closed": 1, "recover_lease": 1, "list": 1, "delete": 1,
    }
