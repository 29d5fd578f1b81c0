"""One request on its way through the write path, and the acknowledgement that it waits for.

What always holds: its future is answered once, and its `settled` hook runs at most once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from storage.log.record import Record
from switchover.register.port import Mode
from twinlog.errors import TwinlogError


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """An acknowledgement: the place of a request's last record in the log, and the mode."""

    epoch: int
    seq: int
    version: int
    mode: Mode


class Pending:
    """One request on its way: all of its records go into one frame."""

    __slots__ = ("answer", "deadline_s", "flags", "records", "settled", "size_bytes", "trace_context")

    def __init__(
        self, records: list[Record], size_bytes: int, deadline_s: float, settled: Callable[[], None] | None = None,
        flags: int = 0, trace_context: str = "",
    ) -> None:
        self.records = records
        self.size_bytes = size_bytes
        self.deadline_s = deadline_s  # on the clock's monotonic scale
        self.settled = settled
        self.trace_context = trace_context  # of the span of a request that is traced
        self.flags = flags  # of its frame, which ends with it if there are any
        self.answer: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()

    def fail(self, error: TwinlogError) -> None:
        if not self.answer.done():  # an error of its own: who raises one adds to its traceback
            self.answer.set_exception(type(error)(error.message, **error.fields))
            self.answer.exception()  # a client that went away must not make the loop complain

    def settle(self) -> None:
        settled, self.settled = self.settled, None
        if settled is not None:
            settled()
