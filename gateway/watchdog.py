"""The watchdog of the event loop: a thread that asks the loop to answer, and counts the ticks that pass without an answer.

What always holds: what counts are ticks of this thread, and not a time: a process that was stopped (SIGSTOP, a paused virtual
machine) and is woken has missed one tick, however long that was, and is not ended for it; a question is asked again only once
the last one has been answered; a tick takes no memory, and so does an answer.
Source: docs/decisions/2026-11-24-a-gateway-that-would-hang.md.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from storage.disk.workers import NO_THREAD
from twinlog.errors import NoThread

TICK_S = 1.0
TICKS_MAX = 30


class Ticks:
    """Counts ticks since the loop last answered. `ask` has it answer; `stands` is called at the tick number `ticks_max` without
    an answer, and at each one behind it."""

    def __init__(self, ask: Callable[[], object], stands: Callable[[], object], ticks_max: int = TICKS_MAX) -> None:
        self._ask, self._stands, self._ticks_max = ask, stands, ticks_max
        self._missed = 0
        self._has_answered = True  # nothing was asked yet

    def answer(self) -> None:
        """On the event loop."""
        self._has_answered = True

    def tick(self) -> None:
        """On the thread."""
        if self._has_answered:
            self._has_answered, self._missed = False, 0
            self._ask()
            return
        self._missed += 1
        if self._missed >= self._ticks_max:
            self._stands()


@contextmanager
def watched(stands: Callable[[], object], *, tick_s: float = TICK_S, ticks_max: int = TICKS_MAX) -> Iterator[None]:
    """Watches the running event loop inside the block; `stands` is called on the watching thread. Raises OSError where no
    thread can be started."""
    loop, question = asyncio.get_running_loop(), os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    ticks = Ticks(lambda: os.eventfd_write(question, 1), stands, ticks_max)
    over = threading.Lock()
    over.acquire()

    def watch() -> None:
        while not over.acquire(timeout=tick_s):
            ticks.tick()

    def answer() -> None:
        os.eventfd_read(question)
        ticks.answer()

    thread = threading.Thread(target=watch, name="watchdog", daemon=True)
    try:
        loop.add_reader(question, answer)
        try:
            thread.start()
        except RuntimeError as error:  # what the interpreter makes of EAGAIN
            raise NoThread(NO_THREAD, retry_after_s=1) from error
        try:
            yield
        finally:
            over.release()
            thread.join()
    finally:
        loop.remove_reader(question)
        os.close(question)
