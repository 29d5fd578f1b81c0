"""A transport in memory, for a protocol that is asked without a socket.

What always holds: nothing that a site writes is lost, and nothing is written to a connection that is closed.
"""

from __future__ import annotations

import asyncio
from typing import Any


class Wire(asyncio.Transport):
    """A transport in memory. `written`: what the site sent."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.protocol: Any = None
        self.closed = self.paused = False

    def write(self, data: Any) -> None:
        assert not self.closed, "something is written to a closed connection"
        self.written += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return not self.paused

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else default
