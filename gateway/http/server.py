"""Runs the door: uvicorn, started by the program and not by its command line, on the running event loop.

What always holds: `start` returns when the port takes connections, or raises an error that names the port; `stop` ends the
event streams, lets requests under way finish for `graceful_shutdown_s`, then cancels them, and returns. Signals stay the
composition root's. Measured choices: httptools, no access log, no proxy headers, no server header.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn

from gateway.http.app import DoorApp
from gateway.http.descriptors import BACKLOG_MAX
from gateway.http.hot_path import hot_protocol
from gateway.http.origins import VARY_ORIGIN
from gateway.http.places import Places
from gateway.http.protocol import ConnectionLimits, door_protocol
from gateway.tls.handshake import TlsGate, behind_tls
from twinlog.errors import ConfigError, reason, words


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """`keep_alive_s` is longer than clients keep idle connections, so that none is closed while a request is on its way."""

    connections: ConnectionLimits = field(default_factory=ConnectionLimits)
    backlog: int = BACKLOG_MAX
    keep_alive_s: int = 75
    graceful_shutdown_s: int = 5


def listen(host: str, port: int, backlog: int = BACKLOG_MAX) -> socket.socket:
    """A listening socket. Port 0: any free one. `backlog` connections may wait to be accepted.

    Raises ConfigError that names host and port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"http.host {host!r} is no address of this machine ({words(error)}): set another", host=host
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(backlog)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host} port {port}: {reason(error)}; stop what uses port {port}, or set another http.port",
            host=host, port=port,
        ) from error
    return listener


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


class HttpServer:
    """One door, and where it listens."""

    def __init__(
        self, app: DoorApp, listener: socket.socket, settings: ServerSettings | None = None, gate: TlsGate | None = None
    ) -> None:
        """`gate`: the listener speaks TLS."""
        settings = settings or ServerSettings()
        self._listener = listener
        self._closing = app.context.closing
        self.port: int = listener.getsockname()[1]
        limits = settings.connections
        protocol: Any = hot_protocol(app, limits) if app.has_rows else door_protocol(limits)
        self.places: Places = protocol.places
        if gate is not None:
            protocol = behind_tls(protocol, gate)
        config = uvicorn.Config(
            app, http=protocol, ws="none", lifespan="off", log_config=None,
            access_log=False, proxy_headers=False, server_header=False, backlog=settings.backlog,
            headers=[VARY_ORIGIN] if app.context.http.cors_origins else [],
            timeout_keep_alive=settings.keep_alive_s, timeout_graceful_shutdown=settings.graceful_shutdown_s,
        )
        self._server = _Server(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve from now on."""
        self._task = asyncio.create_task(self._server.serve([self._listener]), name="http-server")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise ConfigError(f"the HTTP server on port {self.port} ended before it started")
            await asyncio.sleep(0)

    def let_go(self) -> None:
        """Ends each connection after what is under way on it: its client makes a new one."""
        for connection in list(self._server.server_state.connections):
            connection.shutdown()

    def let_go_certified(self) -> None:
        """The same for each connection that showed a client certificate, and for those that are still shaking hands: what was
        believed when they began may not hold any more."""
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            secured = None if transport is None else transport.get_extra_info("ssl_object")
            if transport is None or (secured is not None and secured.getpeercert()):
                connection.shutdown()

    async def stop(self) -> None:
        """Take no more connections, finish what is under way, return when all is closed."""
        if self._task is None:
            return
        self._closing.set()
        self._server.should_exit = True
        task, self._task = self._task, None
        await task


@contextlib.asynccontextmanager
async def serving(
    app: DoorApp, host: str, port: int, settings: ServerSettings | None = None, gate: TlsGate | None = None
) -> AsyncIterator[HttpServer]:
    """The door at `host` and `port`, open inside the block."""
    settings = settings or ServerSettings()
    server = HttpServer(app, listen(host, port, settings.backlog), settings, gate)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
