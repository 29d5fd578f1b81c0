"""A TCP relay that can be shut: between one site and the other's door, to hold replication back.

What always holds: while it is shut, what runs through it is cut and new connections are refused at once, so that no byte waits
anywhere to arrive later; it runs on a thread of its own.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

PIECE_BYTES = 1 << 16


class Gate:
    """`with Gate(port) as gate:` - connections to `gate.port` go to `target_port`, both on 127.0.0.1, until `shut`."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gate", daemon=True)
        self._open = True
        self._running: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(
            asyncio.start_server(self._relay, "127.0.0.1", 0), self._loop
        ).result()
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def shut(self) -> None:
        """Shuts for good; returns when nothing runs through the gate any more."""
        asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result()

    async def _shut(self) -> None:
        self._open = False
        self._server.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        there: asyncio.StreamWriter | None = None
        try:
            # Nobody listens there yet, or the gate is shut: Python 3.11 complains of a relay that ends cancelled.
            with suppress(OSError, asyncio.CancelledError):
                if not self._open:
                    return
                back, there = await asyncio.open_connection("127.0.0.1", self._target_port)
                await asyncio.gather(_pass_on(reader, there), _pass_on(back, writer))
        finally:
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(PIECE_BYTES):
        target.write(data)
        await target.drain()
    target.write_eof()
