"""One byte budget over all bodies that are under way at a site, those of the other site too.

What always holds: the bytes counted stay at or below `bytes_max`, and those of clients at or below two thirds of it, so that
clients never keep the other site out. A body of at most SMALL_BODY_BYTES is not counted: connections bound these. A body that
finds no room is not read for `WAIT_S`, then refused with Overloaded. While somebody waits, a body that has been arriving for
longer than `SLOW_S` loses its place: one that never ends cannot keep others out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from twinlog.errors import Overloaded

SMALL_BODY_BYTES = 32 << 10
WAIT_S = 3.0
SLOW_S = 2.0


class BodyBudget:
    """Counts the bytes of bodies from before they are read until their requests are over."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.held_bytes = 0
        self.refused = 0
        self._arriving: set[BodyHold] = set()
        self._waiting: deque[tuple[BodyHold, int, asyncio.Future[None]]] = deque()

    def hold(self) -> BodyHold:
        """Returns the place of one request; whoever takes it releases it."""
        return BodyHold(self)

    def has_room(self, size: int, of_peer: bool) -> bool:
        return self.held_bytes + size <= (self.bytes_max if of_peer else self.bytes_max * 2 // 3)

    def count(self, change: int) -> None:
        self.held_bytes += change
        if change < 0:
            self._admit()

    def _admit(self) -> None:
        """Lets those in that wait and fit now. The first of those that do not fit keeps its turn among its own kind."""
        blocked: set[bool] = set()
        for item in list(self._waiting):
            hold, size, turn = item
            if turn.done() or hold.of_peer in blocked:
                continue
            if not self.has_room(size, hold.of_peer):
                blocked.add(hold.of_peer)
                continue
            self._waiting.remove(item)
            hold.add(size)
            turn.set_result(None)

    async def wait(self, hold: BodyHold, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        item = (hold, size, turn)
        self._waiting.append(item)
        for other in self._arriving - {hold}:
            other.hurry()
        try:
            await asyncio.wait((turn,), timeout=WAIT_S)
        finally:
            if item in self._waiting:
                self._waiting.remove(item)
        if not turn.done():
            self.refused += 1
            raise Overloaded(
                f"other requests' bodies fill the memory for them ({self.held_bytes} bytes): nothing was read, try again",
                retry_after_s=2,
            )

    def arrives(self, hold: BodyHold) -> None:
        self._arriving.add(hold)
        if self._waiting:
            hold.hurry()

    def arrived(self, hold: BodyHold) -> None:
        self._arriving.discard(hold)


class BodyHold:
    """The place of one request's body. `async with hold:` is around its arrival."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._bytes = 0
        self._timeout: asyncio.Timeout | None = None
        self._began_s = 0.0
        self.of_peer = False

    async def take(self, size: int) -> None:
        """Counts `size` more bytes; waits for room where there is none. Raises Overloaded."""
        if self._budget.has_room(size, self.of_peer):
            self.add(size)
        else:
            await self._budget.wait(self, size)

    def add(self, size: int) -> None:
        self._bytes += size
        self._budget.count(size)

    def give_back(self, size: int) -> None:
        """Counts `size` bytes less: those of the room that were not needed."""
        self.add(-size)

    def release(self) -> None:
        if self._bytes:
            size, self._bytes = self._bytes, 0
            self._budget.count(-size)

    def hurry(self) -> None:
        """Somebody waits: the body arrives within SLOW_S of its beginning, or not at all."""
        if self._timeout is not None and self._timeout.when() is None:
            now_s = asyncio.get_running_loop().time()
            self._timeout.reschedule(max(now_s, self._began_s + SLOW_S))

    async def __aenter__(self) -> None:
        self._began_s = asyncio.get_running_loop().time()
        self._timeout = asyncio.timeout(None)
        await self._timeout.__aenter__()
        self._budget.arrives(self)

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._budget.arrived(self)
        timeout, self._timeout = self._timeout, None
        assert timeout is not None
        try:
            await timeout.__aexit__(kind, error, trace)
        except TimeoutError as late:
            self._budget.refused += 1
            raise Overloaded(
                f"the body took longer than {SLOW_S:g} s while others waited: nothing was done, try again without pauses",
                retry_after_s=2,
            ) from late
