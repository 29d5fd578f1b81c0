"""A site that sends the bytes that it is given, over real TCP; and a client whose site is a function of the test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

import httpx

from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.http import Http


class RawSite:
    """`sends`: for each connection the pieces that it is sent once a whole head has arrived; then it is closed.

    A piece that is None waits for the next head on the same connection. `heads`: what arrived. `ended`: is released once
    for each connection that was closed.
    """

    def __init__(self, *sends: Sequence[bytes | threading.Event | None]) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(10)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.heads: list[bytes] = []
        self.ended = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._serve, args=(sends,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.join(10)
        self._listener.close()

    def _serve(self, sends: Sequence[Sequence[bytes | threading.Event | None]]) -> None:
        for pieces in sends:
            connection, _ = self._listener.accept()
            with connection:
                self._read_head(connection)
                for piece in pieces:
                    if isinstance(piece, threading.Event):
                        piece.wait(120)
                    elif piece is None:
                        self._read_head(connection)
                    else:
                        connection.sendall(piece)
            self.ended.release()

    def _read_head(self, connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (more := connection.recv(65536)):
            head += more
        self.heads.append(head)


class FunctionHttp(Http):
    """Every request is answered by `site`; httpx's errors stand for what the network does."""

    def __init__(self, site: Callable[[httpx.Request], httpx.Response]) -> None:
        super().__init__()
        self._site = site

    def send(self, request: SiteRequest) -> Reply | Broken:
        asked = httpx.Request(request.method, request.url, headers=dict(request.headers), content=request.content)
        try:
            response = self._site(asked)
        except httpx.ReadTimeout:
            return Broken(True, "no answer in time")
        except httpx.ConnectError as error:
            return Broken(False, str(error))
        return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content)
