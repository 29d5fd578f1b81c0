"""A worker thread of an engine that is none: its calls are made on the virtual loop, one after the other, each in its time.

What always holds: calls keep their order; they belong to the process that asked: one that is stopped or killed makes none.
Source: storage/disk/workers.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from storage.disk.workers import Worker

T = TypeVar("T")


class SimWorker(Worker):
    """`seconds` draws how long a call takes: it happens at its end."""

    def __init__(self, name: str, seconds: Callable[[], float]) -> None:
        super().__init__(name)
        self._seconds = seconds
        self._free_s = 0.0

    def submit(self, fn: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._free_s = max(loop.time(), self._free_s) + self._seconds()
        loop.call_at(self._free_s, _work, future, fn)
        return future


def _work(future: asyncio.Future[T], fn: Callable[[], T]) -> None:
    try:
        result = fn()
    except Exception as error:
        if not future.done():
            future.set_exception(error)
    else:
        if not future.done():
            future.set_result(result)
