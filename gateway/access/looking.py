"""Lets an authenticator look at its files again: each second, and at once for a proof that it does not know yet.

What always holds: one look at a time; a look that somebody asked for begins after the request, so what stood in the files by
then is known behind it; all who wait share one look, and two of them begin `SPACING_S` apart, however many ask; nobody waits
longer than `LOOK_DEADLINE_S` for a disk that hangs, and while one look hangs longer than that, nobody waits at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from twinlog.errors import Unavailable, named

POLL_S = 1.0
SPACING_S = 0.05
LOOK_DEADLINE_S = 1.0
_log = structlog.get_logger("gateway.access")


class FileLooks:
    """The looks of one authenticator. `now_s`: a monotonic clock."""

    def __init__(
        self, look: Callable[[], Awaitable[None]], now_s: Callable[[], float], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        self._look, self._now_s, self._sleep = look, now_s, sleep
        self._running: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None  # the one that has not begun
        self._began_s = -SPACING_S

    async def once(self) -> None:
        """Returns behind a look that began after this call."""
        if self._next is None:
            self._next = asyncio.create_task(self._turn(), name="a look at identities")
        await asyncio.shield(self._next)

    async def for_unknown(self) -> None:
        """As `once`, for a request that has to be answered. Raises Unavailable."""
        if self._running is None or self._now_s() - self._began_s < LOOK_DEADLINE_S:
            try:
                async with asyncio.timeout(LOOK_DEADLINE_S):
                    return await self.once()
            except TimeoutError:
                pass
        raise Unavailable(
            "this site cannot look at its identities now, so it is not known whether this one is valid: try again later",
            retry_after_s=POLL_S,
        )

    async def run(self) -> None:
        """Looks for ever."""
        while True:
            await asyncio.sleep(POLL_S)
            await self.once()

    async def _turn(self) -> None:
        if self._running is not None:
            await asyncio.wait((self._running,))
        await self._sleep(max(0.0, self._began_s + SPACING_S - self._now_s()))
        self._running, self._next, self._began_s = self._next, None, self._now_s()
        try:
            await self._look()
        except Exception as error:
            _log.error("identities could not be read again; those that were read last stay valid", error=named(error))
        finally:
            self._running = None

    async def close(self) -> None:
        """A thread that hangs in a look is left to itself."""
        under_way = [task for task in (self._running, self._next) if task is not None]
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
