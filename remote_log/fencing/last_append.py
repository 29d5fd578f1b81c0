"""Since when the remote log of the epochs that are being fenced has not grown: from then on their read lease runs out.

An append that succeeded left its bytes in a segment. So when all that a segment holds once it is closed was read there before,
every append to it that ever succeeds was started before that reading ended; and a segment that was closed when it was listed
has nothing that came later. With a dead writer the read lease so runs out while its segments are being closed; with one that
lives, and goes on appending, it is counted from the end of the fence.

What always holds: whatever cannot be read, was not there at first, or differs, counts as growth until now: the wait is then as
long as it would be without this. Times are of the fencer's monotonic clock. Source: protocol.md section 5, "Read lease".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from remote_log.dfs.port import Dfs
from storage.clock import Clock
from twinlog.errors import DfsError


class Growth:
    """Of one fence: `listed` after each listing, `looking` while those that were open then are closed, `ended_s` at the end."""

    def __init__(self, dfs: Dfs, clock: Clock) -> None:
        self._dfs, self._clock = dfs, clock
        self._at_first: set[str] | None = None
        self._content: dict[str, bytes] = {}
        self._looked_s = clock.monotonic_s()
        self._grew = False

    def listed(self, seen: Sequence[str]) -> None:
        """`seen`: all segments that there are, and of each it is known whether it is closed."""
        if self._at_first is None:
            self._at_first = set(seen)
            self._looked_s = self._clock.monotonic_s()
        elif not self._at_first.issuperset(seen):
            self._grew = True

    @asynccontextmanager
    async def looking(self, still_open: Sequence[str]) -> AsyncIterator[None]:
        """Read what they hold now, beside the block, which closes them; not longer than that."""
        look = asyncio.ensure_future(self._look(still_open))
        try:
            yield
        finally:
            self._grew = self._grew or not look.done()
            look.cancel()
            await asyncio.wait([look])

    async def _look(self, still_open: Sequence[str]) -> None:
        if self._grew:
            return
        try:
            found = [await self._dfs.read(path) for path in still_open]
        except DfsError:
            self._grew = True
            return
        self._content = dict(zip(still_open, found, strict=True))
        self._looked_s = self._clock.monotonic_s()

    async def ended_s(self) -> float:
        """When all are closed: no append that succeeded was started after this moment."""
        now_s = self._clock.monotonic_s()
        if self._grew:
            return now_s
        try:
            for path, content in self._content.items():
                if await self._dfs.read(path) != content:
                    return now_s
        except DfsError:
            return now_s
        return self._looked_s
