"""The end of a command that runs until somebody stops it: SIGINT and SIGTERM become an exception, once.

What always holds: a second signal does not cut short what the first one began; the handlers are put back afterwards.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvloop

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_T = TypeVar("_T")


class Stopped(Exception):
    """Somebody asked for the end."""


@contextmanager
def stopping() -> Iterator[None]:
    """The first signal raises Stopped in the main thread, a later one is ignored. Not around an event loop: see below."""
    def stop(number: int, frame: object) -> None:
        ignore_signals()
        raise Stopped

    with _handled_by(stop):
        yield


def run_until_stopped(work: Coroutine[Any, Any, _T]) -> _T:
    """asyncio.run on uvloop; the first signal cancels `work`, a later one is ignored, and Stopped is raised once all has ended.

    An exception that a handler raises lands in whatever runs at that moment. In an event loop that is mostly a callback, a
    write to a socket or another task: asyncio takes it for that one's error, logs it, and the loop continues.
    """
    task: asyncio.Task[Any] | None = None
    signalled = False

    def stop(number: int, frame: object) -> None:
        nonlocal signalled
        signalled = True
        ignore_signals()
        if task is not None and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)  # it also wakes a loop that waits

    async def main() -> _T:
        nonlocal task
        task = asyncio.current_task()
        if signalled:
            work.close()
            raise Stopped
        return await work

    with _handled_by(stop):
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                result = runner.run(main())
        except (Exception, asyncio.CancelledError) as error:
            if signalled:
                raise Stopped from error
            raise
        if signalled:
            raise Stopped
        return result


@contextmanager
def _handled_by(handler: Any) -> Iterator[None]:
    before = {each: signal.signal(each, handler) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)


def ignore_signals() -> None:
    """From here on: what is being stopped is stopped in peace."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
