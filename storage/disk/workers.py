"""Worker threads behind the real ports: blocking calls go out of the event loop, and their ends come back into it.

What always holds: what one worker was given runs in that order, on one thread; however many results wait, at most one
wake-up of the event loop is under way; the thread ends with `close`; a call that hangs keeps its own thread and nobody
else's; where no thread can be started, nothing was queued, and the next call tries again. Drivers never import this: they see
only ports. A hop there and back costs about what two thread switches cost; the event loop pays a few microseconds for each.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

from twinlog.errors import NoThread, Overloaded

T = TypeVar("T")
Item = TypeVar("Item")
NO_THREAD = "this process cannot start another thread: raise its limit (ulimit -u, TasksMax), or give the machine memory"
IDLE_MAX = 4  # of a pool
_End = tuple["asyncio.Future[Any]", Any, "BaseException | None"]


def nothing() -> None:
    pass


class _Thread:
    """One thread, its inbox, and the way back. The thread starts with the first item, if not before, and belongs to that event
    loop. `at_end` is the last thing that it does."""

    def __init__(self, name: str, at_end: Callable[[], None] = nothing) -> None:
        self._name, self._at_end = name, at_end
        self._inbox: SimpleQueue[tuple[asyncio.Future[Any], Any] | None] = SimpleQueue()
        self._ends: deque[_End] = deque()
        self._waking = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ended: asyncio.Future[None] | None = None  # of the close that was begun

    def start(self) -> None:
        """Starts the thread now: what it is given later does not fail for want of one. Raises NoThread."""
        if self._loop is None:
            self._start()

    def end(self) -> None:
        """The thread ends behind what it was given; nothing waits for that."""
        self._closed = True
        self._inbox.put(None)

    def _send(self, item: object) -> asyncio.Future[Any]:
        if self._closed:
            raise RuntimeError(f"worker {self._name} is closed")
        loop = self._loop or self._start()
        future: asyncio.Future[Any] = loop.create_future()
        self._inbox.put((future, item))
        return future

    def _start(self) -> asyncio.AbstractEventLoop:
        thread = threading.Thread(target=self._live, name=self._name, daemon=True)
        self._loop = loop = asyncio.get_running_loop()
        try:
            thread.start()
        except RuntimeError as error:  # what the interpreter makes of EAGAIN
            self._loop = None
            raise NoThread(NO_THREAD, retry_after_s=1) from error
        self._thread = thread
        return loop

    def _live(self) -> None:
        try:
            self._run()
        finally:
            self._at_end()

    def _run(self) -> None:
        raise NotImplementedError

    def _finish(self, ends: Sequence[_End]) -> None:
        """On the thread: hand over results. A wake-up that is under way and not yet served takes them along."""
        self._ends.extend(ends)
        if not self._waking:
            self._waking = True
            assert self._loop is not None
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                return  # the event loop is gone, and with it everyone who could have wanted to know

    def _deliver(self) -> None:
        """On the event loop. The flag falls first: what is added from here on either is seen below or wakes again."""
        self._waking = False
        ends = self._ends
        while ends:
            future, result, error = ends.popleft()
            if future.done():  # cancelled by its caller; the work was done all the same
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    async def close(self) -> None:
        """End the thread once everything given to it before is done. Closing twice is fine, also where the first one was given
        up: whoever closes a descriptor behind this must not meet a write that is under way."""
        self._closed = True
        if self._thread is None:
            return
        if self._ended is None:
            assert self._loop is not None
            self._ended = self._loop.create_future()
            self._inbox.put((self._ended, None))
            self._inbox.put(None)
        await asyncio.shield(self._ended)
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()


def take_back(late: Callable[[T], object], done: asyncio.Future[T] | concurrent.futures.Future[T]) -> None:
    """Gives what a call has made to `late`: whoever had asked for it has gone meanwhile. Its error concerns nobody."""
    if not done.cancelled() and done.exception() is None:
        late(done.result())


class Worker(_Thread):
    """Runs functions one after the other; each one's result is on its way as soon as it is there."""

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Queue `fn`; the future carries its result or exception. A cancelled future does not take `fn` back. Raises
        NoThread."""
        return self._send(fn)

    async def read(self, fn: Callable[[], T]) -> T:
        """Returns what `fn` does, which changes nothing. Raises Overloaded where no thread can be started: later one may."""
        try:
            future = self.submit(fn)
        except OSError as error:
            raise Overloaded(f"nothing can be read now: {NO_THREAD}", retry_after_s=1) from error
        return await future

    def _run(self) -> None:
        while (taken := self._inbox.get()) is not None:
            future, fn = taken
            try:
                result = fn() if fn is not None else None
            except Exception as error:
                self._finish(((future, None, error),))
            else:
                self._finish(((future, result, None),))


class HangTolerantPool:
    """Workers for calls that may hang: each call has one to itself, made when none is idle, `size_max` at most. IDLE_MAX of
    them stay: what hung together leaves no threads behind.

    Unlike the threads of a ThreadPoolExecutor, those that hang for ever do not hold up the end of the process.
    """

    def __init__(self, name: str, size_max: int, at_end: Callable[[], None] = nothing) -> None:
        """`at_end`: as a thread's."""
        self._name, self._at_end = name, at_end
        self._free = asyncio.Semaphore(size_max)
        self._idle: list[Worker] = []
        self._made = 0

    async def start(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        """Wait for a free worker, and begin: the future is not to be cancelled, for the worker is busy until `fn` ends. Raises
        OSError where no thread can be started."""
        await self._free.acquire()
        if self._idle:
            worker = self._idle.pop()
        else:
            self._made += 1
            worker = Worker(f"{self._name} {self._made}", self._at_end)
        try:
            future = worker.submit(fn)
        except OSError:
            self._free.release()
            raise

        def ended(done: asyncio.Future[T]) -> None:
            done.exception()  # seen, even when nobody waits for it any more
            if len(self._idle) < IDLE_MAX:
                self._idle.append(worker)
            else:
                worker.end()
            self._free.release()

        future.add_done_callback(ended)
        return future

    async def close(self) -> None:
        """End the idle ones. Those that hang end with the process."""
        while self._idle:
            await self._idle.pop().close()


class GroupWorker(_Thread, Generic[Item]):
    """Takes everything that is queued at once: one `handle(items)` for all of it, e.g. one disk sync for many appends."""

    def __init__(
        self, name: str, handle: Callable[[list[Item]], None] | None = None, at_end: Callable[[], None] = nothing
    ) -> None:
        """`handle`: may be set later, before the first item."""
        super().__init__(name, at_end)
        self.handle = handle

    def put(self, item: Item) -> asyncio.Future[None]:
        """Queue `item`; the future ends as the `handle` call that took it did. Items keep their order. Raises NoThread."""
        return self._send(item)

    def _run(self) -> None:
        inbox = self._inbox
        while (taken := inbox.get()) is not None:
            group = [taken]
            stop = False
            try:
                while not stop:
                    more = inbox.get_nowait()
                    if more is None:
                        stop = True
                    else:
                        group.append(more)
            except Empty:
                pass
            items = [item for _, item in group if item is not None]
            error: BaseException | None = None
            if items:
                assert self.handle is not None
                try:
                    self.handle(items)
                except Exception as caught:
                    error = caught
            self._finish([(future, None, error if item is not None else None) for future, item in group])
            if stop:
                return
