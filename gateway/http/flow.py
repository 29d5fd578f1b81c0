"""Reading and writing held back: behind pipelined requests, and by a client that leaves its answer unread.

What always holds: while pipelined requests wait, the connection is not read; a connection ends whose client takes nothing of an
answer for `unread_s`. Without that a client that asks for much and reads nothing would hold the answer for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sized

from uvicorn.protocols.http.flow_control import FlowControl

from gateway.http.lingering import LingeringTransport


class Flow(FlowControl):
    """One for each connection. `unread_since`: in seconds of the loop's clock, while an answer is not read."""

    def __init__(self, transport: LingeringTransport, pipeline: Sized, unread_s: float) -> None:
        super().__init__(transport)
        self._wire, self._pipeline, self._unread_s = transport, pipeline, unread_s
        self.unread_since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def resume_reading(self) -> None:
        """Each request that is served asks for it, also while others wait."""
        if not self._pipeline:
            super().resume_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._timer is None:
            self.unread_since = asyncio.get_running_loop().time()
            self._look_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.unread_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        left_bytes = self._wire.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(self._unread_s, self._look, left_bytes)

    def _look(self, left_bytes: int) -> None:
        if self._wire.get_write_buffer_size() < left_bytes:
            self._look_later()
        else:
            self._wire.abort()
