"""A DFS that is asked again when a call fails in passing: one lost answer must not end a change of roles.

What always holds: only what may be repeated is: listing, reading, asking, and a whole file made exclusively, whose maker finds
its own content when the answer was lost (claims.claim). What the DFS decided (it exists, it is not there, the lease is lost)
is an answer, and is passed on at once. Who asks waits for at most `PATIENCE_S` more than for the last call. Source: dfs.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, retry_if_exception, wait_exponential

from remote_log.dfs.port import Dfs, DfsEntry, DfsWriter
from storage.clock import Clock
from twinlog.errors import DfsError

T = TypeVar("T")
PATIENCE_S = 10.0  # a NameNode's failover, a broken connection; an operator waits so long for "it does not answer"
WAIT_FIRST_S = 0.05
WAIT_MAX_S = 1.0


async def patiently(clock: Clock, call: Callable[[], Awaitable[T]]) -> T:
    """Its first answer within `PATIENCE_S`; after that the last failure is raised."""
    until_s = clock.monotonic_s() + PATIENCE_S

    async def attempt() -> T:
        return await call()

    return await AsyncRetrying(
        sleep=clock.sleep, wait=wait_exponential(multiplier=WAIT_FIRST_S, max=WAIT_MAX_S), reraise=True,
        retry=retry_if_exception(_may_pass), stop=lambda _: clock.monotonic_s() >= until_s,
    )(attempt)


def _may_pass(error: BaseException) -> bool:
    """The subclasses are answers."""
    return type(error) is DfsError


class PatientDfs:
    """`dfs`, asked again."""

    def __init__(self, dfs: Dfs, clock: Clock) -> None:
        self._dfs, self._clock = dfs, clock

    async def create_file(self, path: str, content: bytes) -> None:
        await patiently(self._clock, lambda: self._dfs.create_file(path, content))

    async def create(self, path: str) -> DfsWriter:
        """Not repeated: an open file that exists already may be somebody else's."""
        return await self._dfs.create(path)

    async def list(self, folder: str) -> list[DfsEntry]:
        return await patiently(self._clock, lambda: self._dfs.list(folder))

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        return await patiently(self._clock, lambda: self._dfs.read(path, offset, length))

    async def delete(self, path: str) -> None:
        await patiently(self._clock, lambda: self._dfs.delete(path))

    async def recover_lease(self, path: str) -> None:
        """Not repeated: it may begin anew with each call. Who fences has a deadline of its own for that (fencing/fence.py)."""
        await self._dfs.recover_lease(path)

    async def is_closed(self, path: str) -> bool:
        return await patiently(self._clock, lambda: self._dfs.is_closed(path))

    async def probe(self) -> None:
        """Not repeated: it asks how the DFS is now."""
        await self._dfs.probe()
