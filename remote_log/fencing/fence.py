"""Fencing: after the claim of a later epoch, every segment of every older one is closed under its writer.

What always holds: a segment that a fenced writer creates after the last listing here holds nothing that was acknowledged
(claims.py); `fence` returns only when every segment that it saw is proven closed. A fence may be repeated after a crash.

`LastAppend` finds a moment after which no append was started that ever succeeds: from then on the read lease of the fenced
epochs runs out. An append that succeeded left its bytes in a segment. So when all that a segment holds once it is closed was
read there before, every append to it that ever succeeds was started before that reading ended. A segment that was closed when
it was listed has nothing that came later. With a dead writer the read lease therefore runs out while its segments are being
closed; with a writer that lives and appends, it counts from the end of the fence. Whatever cannot be read, was not there at
first, or differs counts as an append until now: the wait is then as long as it would be without this. Times are of the
fencer's monotonic clock. Source: protocol.md section 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from remote_log.dfs.port import Dfs
from remote_log.dfs.retrying import RetryingDfs, retrying
from remote_log.fencing.reading import Progress, segments_below
from remote_log.layout import RemoteLayout
from storage.clock import Clock
from twinlog.errors import DfsError, DfsNotFound, LeaseNotRecovered

T = TypeVar("T")
POLLS_S = (0.02, 0.1)  # the first pause between two polls, and the longest
ASK_AGAIN_SHARE = 0.5  # of the deadline: then a recovery is called for again, which a port may find too soon (hdfs/dfs.py)


async def fence(
    dfs: Dfs, layout: RemoteLayout, below_epoch: int, clock: Clock, deadline_s: float, progress: Progress | None = None
) -> float:
    """After the claim of `below_epoch`: close every segment of every lower epoch. Returns a moment of `clock`'s monotonic scale
    after which no append was started that ever succeeds (LastAppend).

    It lists again until it sees none that is open: an old writer may create one more before it lists the claims. Raises
    LeaseNotRecovered, naming the file, when one is not proven closed by the deadline, and DfsError when nothing can be listed
    for some time; then nothing may be read.
    """
    step = _Step.begin(clock, deadline_s)
    proven: set[str] = set()  # closed, and so reported; asked again all the same: a name may be used anew once it is deleted
    last_append = LastAppend(dfs, clock)

    def report(path: str) -> None:
        proven.add(path)
        if progress is not None:
            progress(len(proven), len(proven.union(seen)))

    while True:
        seen = await segments_below(RetryingDfs(dfs, clock), layout, below_epoch)
        still_open = []
        for path in seen:
            if await step.is_closed(dfs, path):
                report(path)
            else:
                still_open.append(path)
        last_append.listed(seen)
        if not still_open:
            return await last_append.ended_s()
        async with last_append.looking(still_open):
            begun = await asyncio.gather(*(step.recover(dfs, path) for path in still_open), return_exceptions=True)
            for path, answer in zip(still_open, begun, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                if not answer:
                    continue  # it is gone
                await step.await_closed(dfs, path)
                report(path)


async def close_by_recovery(dfs: Dfs, path: str, clock: Clock, deadline_s: float) -> None:
    """Close one file under its writer, whoever that is. Absent is fine. Raises LeaseNotRecovered at the deadline."""
    step = _Step.begin(clock, deadline_s)
    if not await step.is_closed(dfs, path) and await step.recover(dfs, path):
        await step.await_closed(dfs, path)


class LastAppend:
    """The last append of one fence: `listed` after each listing, `looking` while segments are closed, `ended_s` at the end."""

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
        """Returns, when all are closed, a moment after which no append that succeeded was started."""
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


async def _is_closed(dfs: Dfs, path: str) -> bool:
    """A file that was deleted has nothing left to close."""
    try:
        return await dfs.is_closed(path)
    except DfsNotFound:
        return True


async def _recover(dfs: Dfs, path: str) -> bool:
    """Call for lease recovery; False when the file is gone."""
    try:
        await dfs.recover_lease(path)
    except DfsNotFound:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Step:
    """Closes files until a moment of `clock`; a call that fails is repeated until then."""

    clock: Clock
    again_s: float
    until_s: float

    @classmethod
    def begin(cls, clock: Clock, deadline_s: float) -> _Step:
        now_s = clock.monotonic_s()
        return cls(clock, now_s + ASK_AGAIN_SHARE * deadline_s, now_s + deadline_s)

    async def is_closed(self, dfs: Dfs, path: str) -> bool:
        return await self._retrying(path, partial(_is_closed, dfs, path))

    async def recover(self, dfs: Dfs, path: str) -> bool:
        """False when the file is gone."""
        return await self._retrying(path, partial(_recover, dfs, path))

    async def await_closed(self, dfs: Dfs, path: str) -> None:
        """Polls, for on HDFS a call of recover_lease may start the recovery anew. Late in the step, calls for it once more:
        the first recovery came to nothing when no DataNode with the block was alive."""
        asked_again = False

        async def poll() -> None:
            nonlocal asked_again
            if await _is_closed(dfs, path):
                return
            if not asked_again and self.again_s <= self.clock.monotonic_s() < self.until_s:
                await _recover(dfs, path)
                asked_again = True
            raise DfsError("it is still open")

        await self._retrying(path, poll)

    async def _retrying(self, path: str, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await retrying(self.clock, call, until_s=self.until_s, waits_s=POLLS_S, transient=_is_dfs_error)
        except DfsError as error:
            raise LeaseNotRecovered(
                f"{path} was not proven closed in time ({error}): its writer may still append, so nothing was read; repair that"
                " DFS (docs/operations.md, A file that does not close), then run the same plan again", file=path,
            ) from error


def _is_dfs_error(error: BaseException) -> bool:
    return isinstance(error, DfsError)
