"""An open file of a DFS whose calls block: appends queue up for one thread, which takes all that wait at once.

What always holds: bytes land in the order of `append`; an append that is not answered by its deadline fails, with everything
behind it, and what became of it is unknown; the first failure is for good, a sync that failed is never tried again on the same
file; the event loop never waits for the thread, which is there before the file is made, so that what the file holds can always
be given back. Source: dfs.py, storage/disk/workers.py.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from typing import Any

from storage.disk.workers import GroupWorker, nothing
from twinlog.errors import DfsError, reason


class _Order(Enum):
    FINISH = 1  # close for good
    RELEASE = 2  # give back what is held, whatever happened


WriterThread = GroupWorker[bytes | _Order]


def writer_thread(path: str, at_end: Callable[[], None] = nothing) -> WriterThread:
    """Returns the thread of the writer of a file that is to be made. `at_end`: the last thing that it does. Raises DfsError."""
    thread: WriterThread = GroupWorker(f"dfs {path}", at_end=at_end)
    try:
        thread.start()
    except OSError as error:
        raise DfsError(f"cannot create {path}: {reason(error)}", path=path) from error
    return thread


@contextmanager
def writer_thread_for(path: str, at_end: Callable[[], None] = nothing) -> Iterator[WriterThread]:
    """As `writer_thread`, around what makes the file: the thread ends with a file that cannot be made."""
    thread = writer_thread(path, at_end)
    with ExitStack() as undo:
        undo.callback(thread.end)
        yield thread
        undo.pop_all()


class QueuedWriter:
    """A DfsWriter; how one DFS appends and closes is up to the class derived from it. `answers`: what an answer comes from."""

    def __init__(self, path: str, answers: str, deadline_s: float, thread: WriterThread) -> None:
        self.path = path
        self._answers, self._deadline_s = answers, deadline_s
        self._failure: DfsError | None = None
        self._unsaid: DfsError | None = None  # a failure that no append has reported
        self._closed = False
        self._worker = thread
        thread.handle = self._handle
        self._outstanding: deque[tuple[float, asyncio.Future[None]]] = deque()
        self._watchdog: asyncio.TimerHandle | None = None

    def append(self, data: bytes) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        if self._failure is not None or self._closed:
            self._unsaid = None
            return self._failed(self._failure or DfsError(f"{self.path} was closed by its writer", path=self.path))
        done = self._worker.put(data)
        outstanding = self._outstanding
        while outstanding and outstanding[0][1].done():
            outstanding.popleft()
        outstanding.append((loop.time() + self._deadline_s, done))
        if self._watchdog is None:
            self._watchdog = loop.call_later(self._deadline_s, self._watch)
        return done

    def _failed(self, error: DfsError) -> asyncio.Future[None]:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        failed.set_exception(error)
        return failed

    async def close(self) -> None:
        """Close for good; raises what an append would have. After a failed append it only gives back what is held: the file
        stays open until its lease is recovered."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._unsaid is not None:
                raise self._unsaid
            if self._failure is None:
                async with asyncio.timeout(self._deadline_s):
                    await self._worker.put(_Order.FINISH)
        except TimeoutError as error:
            self._failure = DfsError(f"cannot close {self.path}: no answer within {self._deadline_s} s", path=self.path)
            raise self._failure from error
        finally:
            self._put_release()
            with suppress(TimeoutError):  # the thread hangs, keeps what it holds until it is answered, and ends then
                async with asyncio.timeout(self._deadline_s):
                    await self._worker.close()

    def give_up(self, error: DfsError) -> None:
        """Fail what is queued and all that follows; what is held is given back when the thread comes to it."""
        self._failure = self._unsaid = self._failure or error
        self._put_release()

    def _put_release(self) -> None:
        """Its error is meant for the appends that were queued before."""
        self._worker.put(_Order.RELEASE).add_done_callback(lambda done: done.exception())

    # ---- on the thread, for the derived class
    def _append(self, group: bytes) -> None:
        """Append and sync. Raises DfsError, or what `_mapped` takes."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Make what was appended the file's final content."""
        raise NotImplementedError

    def _release(self) -> None:
        """After `_finish` or a failure; by `give_up`, a second time at `close`."""
        raise NotImplementedError

    def _mapped(self, error: Any) -> DfsError:
        """Returns the error that this exception of the DFS means for the file."""
        raise NotImplementedError

    # ---- the thread's loop, and the deadline
    def _handle(self, items: list[bytes | _Order]) -> None:
        data = [item for item in items if isinstance(item, bytes)]
        try:
            if self._failure is not None and (data or _Order.FINISH in items):
                self._unsaid = None
                raise self._failure
            if data:
                self._append(data[0] if len(data) == 1 else b"".join(data))
            if _Order.FINISH in items:
                self._finish()
        except DfsError as error:
            self._failure = error
            raise
        except Exception as error:
            self._failure = self._mapped(error)
            raise self._failure from error
        finally:
            if _Order.RELEASE in items:
                self._release()

    def _watch(self) -> None:
        """Fail everything that is outstanding when the oldest has waited too long."""
        self._watchdog = None
        outstanding = self._outstanding
        while outstanding and outstanding[0][1].done():
            outstanding.popleft()
        if not outstanding:
            return
        loop = asyncio.get_running_loop()
        due = outstanding[0][0]
        if loop.time() < due:
            self._watchdog = loop.call_at(due, self._watch)
            return
        self._failure = DfsError(f"no answer from {self._answers} within {self._deadline_s} s", path=self.path)
        for _, done in outstanding:
            if not done.done():
                done.set_exception(self._failure)
        outstanding.clear()
