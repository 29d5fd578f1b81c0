"""A cancellation that nobody asked for is an error like another one.

A task in which a call raises CancelledError counts as cancelled, whoever raised it: it ends without a word, and no `except
Exception` sees it. What always holds: work that runs through here ends in silence only when its own task was asked to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def unless_asked(work: Awaitable[_T], what: str) -> _T:
    """Returns what `work` does. Raises RuntimeError where `what` was cancelled from within."""
    try:
        return await work
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise RuntimeError(f"{what} was cancelled from within") from error


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Waits until `tasks` have ended, however they end. It takes the same number of turns of the event loop on every Python; a
    `gather` of tasks that have ended does not."""
    waited_for = list(tasks)
    if waited_for:
        await asyncio.wait(waited_for)
    for task in waited_for:
        if not task.cancelled():
            task.exception()  # seen
