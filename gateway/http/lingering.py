"""The transport of a connection that lets a client read the last answer.

What always holds: a connection that is closed while its client may still send is closed in one direction first. What the
client sends then is dropped, until it closes too, or `linger_s` are over. Without that TCP answers such bytes with a reset,
and a reset can cost the client an answer that it has not read (RFC 9112, 9.6). A connection on which nothing more comes closes
at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINGERING_MAX = 64  # connections above the limit of a site that may linger; more are closed at once


def _never() -> bool:
    return False


class LingeringTransport(asyncio.Transport):
    """One for each connection, in front of the event loop's. `is_sending`: the client may be in the middle of a request."""

    def __init__(self, transport: asyncio.Transport, is_sending: Callable[[], bool], linger_s: float) -> None:
        super().__init__()
        self._transport = transport
        self._is_sending = is_sending
        self._linger_s = linger_s
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None
        # of the hot path: no call in between
        self.write = transport.write  # type: ignore[method-assign]
        self.get_extra_info = transport.get_extra_info  # type: ignore[method-assign]

    def is_closing(self) -> bool:
        return self._is_closing or self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def close(self) -> None:
        """Closes after what was written, and lingers where the client may still send. A second call does not wait."""
        if self.is_closing() or not self._is_sending():
            self._is_closing = True
            self.let_go()
            self._transport.close()
            return
        self._is_closing = True
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._transport.is_reading():
            self._transport.resume_reading()
        self._timer = asyncio.get_running_loop().call_later(self._linger_s, self.abort)

    def abort(self) -> None:
        self._is_closing = True
        self.let_go()
        self._transport.abort()

    def let_go(self) -> None:
        """The connection is lost, or about to be: nothing waits for it, and it no longer refers to its protocol. Otherwise what
        the last request brought would stay until the collector comes by."""
        self._is_sending = _never
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
