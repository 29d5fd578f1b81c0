"""A run that somebody stops: SIGINT or SIGTERM cancels it, so that all of it is undone in order, and then raises Stopped.

What always holds: while an event loop runs, no signal raises anything, for whatever is raised then ends in some callback or
task, and the run continues without it; a second signal does not cut short what the first one began. Handlers are put back.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from gateway.stopping import SIGNALS, Stopped

T = TypeVar("T")


async def until_stopped(work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`. Raises Stopped when it was stopped and has ended."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    before = {each: signal.getsignal(each) for each in SIGNALS}
    signalled = False

    def stop() -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            task.cancel()

    for each in SIGNALS:
        loop.add_signal_handler(each, stop)
    try:
        return await task
    except asyncio.CancelledError:
        if signalled:
            raise Stopped from None
        raise
    finally:
        for each, handler in before.items():
            loop.remove_signal_handler(each)
            signal.signal(each, handler)
