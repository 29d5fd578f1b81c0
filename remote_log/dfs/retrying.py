"""Waiting for a DFS: one answer `within` a time, and `retrying`, which repeats a call while it fails for a transient reason.

What always holds: only what may be repeated is: listing, reading, asking, and a whole file made exclusively, whose maker finds
its own content when the answer was lost (fencing/claims.py). What the DFS decided (it exists, it is not there, the lease is
lost) is an answer, and is raised at once. The last call may end after the time is over, by its own deadline.
Source: remote_log/dfs/port.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_exponential

from remote_log.dfs.port import Dfs, DfsEntry, DfsWriter
from storage.clock import Clock
from twinlog.errors import DfsError

T = TypeVar("T")
RETRY_FOR_S = 10.0  # a NameNode's failover, a broken connection; an operator waits so long for "it does not answer"
WAITS_S = (0.05, 1.0)  # the first pause between two calls, and the longest: each is twice the one before


async def within(timeout_s: float, work: Awaitable[T]) -> T:
    """Returns what `work` returns. Raises DfsError when that takes longer."""
    try:
        async with asyncio.timeout(timeout_s):
            return await work
    except TimeoutError as error:
        raise DfsError(f"the DFS does not answer in {timeout_s:g} s") from error


def is_transient(error: BaseException) -> bool:
    """The subclasses of DfsError are answers."""
    return type(error) is DfsError


async def retrying(
    clock: Clock, call: Callable[[], Awaitable[T]], *, until_s: float | None = None, waits_s: tuple[float, float] = WAITS_S,
    transient: Callable[[BaseException], bool] = is_transient, on_failure: Callable[[BaseException], None] | None = None,
) -> T:
    """Returns the first answer of `call`; raises what is not `transient`, and after `until_s` the last failure.

    `until_s`: on the clock's monotonic scale; None: `RETRY_FOR_S` from now. `on_failure` gets each failure before a pause.
    The first call is made without the machinery of repetitions, which costs more than most calls: it nearly always succeeds.
    """
    end_s = clock.monotonic_s() + RETRY_FOR_S if until_s is None else until_s
    try:
        return await call()
    except Exception as error:
        if not transient(error):
            raise
        met = [error]  # it is the first failure of what follows

    def failed(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if on_failure is not None and error is not None:
            on_failure(error)

    async def attempt() -> T:  # tenacity awaits the result of coroutine functions only, not of lambdas
        if met:
            raise met.pop()
        return await call()

    return await AsyncRetrying(
        sleep=clock.sleep, wait=wait_exponential(multiplier=waits_s[0], max=waits_s[1]), reraise=True,
        retry=retry_if_exception(transient), stop=lambda _: clock.monotonic_s() >= end_s, before_sleep=failed,
    )(attempt)


class RetryingDfs:
    """`dfs`, whose repeatable calls are repeated for `RETRY_FOR_S`."""

    def __init__(self, dfs: Dfs, clock: Clock) -> None:
        self._dfs, self._clock = dfs, clock

    async def create_file(self, path: str, content: bytes) -> None:
        await retrying(self._clock, lambda: self._dfs.create_file(path, content))

    async def create(self, path: str) -> DfsWriter:
        """Not repeated: an open file that exists already may be somebody else's."""
        return await self._dfs.create(path)

    async def list(self, folder: str) -> list[DfsEntry]:
        return await retrying(self._clock, lambda: self._dfs.list(folder))

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return await retrying(self._clock, lambda: self._dfs.read(path, offset, length))

    async def delete(self, path: str) -> None:
        await retrying(self._clock, lambda: self._dfs.delete(path))

    async def recover_lease(self, path: str) -> None:
        """Not repeated: it may begin anew with each call. Who fences has a deadline of its own for that (fencing/fence.py)."""
        await self._dfs.recover_lease(path)

    async def is_closed(self, path: str) -> bool:
        return await retrying(self._clock, lambda: self._dfs.is_closed(path))

    async def probe(self) -> None:
        """Not repeated: it asks how the DFS is now."""
        await self._dfs.probe()
