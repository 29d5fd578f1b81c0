"""A real site whose other one is false: something at its address answers every call with a lie, byte for byte."""

from __future__ import annotations

import contextlib
import gzip
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.crash.processes import Processes, open_pair
from tests.gateway.cli.cli_rig import invoke

MEMORY_MB_MAX = 600
CALLS = 2  # that get each lie
HUGE = 1 << 62
Lie = Callable[[socket.socket], None]
NUMBERS = (
    "epoch", "seq", "applied_seq", "durable_seq", "committed_seq", "last_seq", "first_seq", "begins_after", "timestamp",
    "last_timestamp", "wall_ms", "state", "free_bytes", "lease_s", "floor", "held_seq",
)


def _said(body: bytes, head: bytes = b"", status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-type: application/x-msgpack\r\n%bcontent-length: %d\r\n\r\n%b" % (
        status, head, len(body), body
    )


def _bytes(*answer: bytes) -> Lie:
    def lie(connection: socket.socket) -> None:
        connection.sendall(b"".join(answer))
        with contextlib.suppress(OSError):
            connection.recv(1 << 16)

    return lie


def _for_ever(first: bytes, more: bytes, pause_s: float = 0.0) -> Lie:
    def lie(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:  # until the site has enough, and closes
            connection.sendall(more)
            time.sleep(pause_s)  # a false site that is slow

    return lie


def _fields(value: Any) -> bytes:
    return msgspec.msgpack.encode({**dict.fromkeys(NUMBERS, value), "role": "ACTIVE", "holds": True, "history": value})


OK = b"HTTP/1.1 200 OK\r\n"
LIES: dict[str, Lie] = {
    "it closes at once": lambda connection: None,
    "bytes of nothing": _bytes(b"\0" * 5000),
    "no head": _bytes(b"hello\n"),
    "half a head": _bytes(OK + b"content-le"),
    "half a body": _bytes(OK + b"content-length: 100\r\n\r\n\x81"),
    "an empty body": _bytes(_said(b"")),
    "a page": _bytes(_said(b"<html>It works!</html>")),
    "a body of a gigabyte": _for_ever(OK + b"content-length: 1000000000\r\n\r\n", b"\x91" * 65536),
    "chunks without an end": _for_ever(OK + b"transfer-encoding: chunked\r\n\r\n", b"8000\r\n" + b"\x91" * 0x8000 + b"\r\n"),
    "headers without an end": _for_ever(OK, b"x-more: " + b"y" * 8000 + b"\r\n"),
    "a byte now and then": _for_ever(b"", b"H", 0.2),
    "interim answers without an end": _for_ever(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "another place": _bytes(_said(b"", b"location: http://127.0.0.1:1/\r\n", b"307 Temporary Redirect")),
    "another protocol": _bytes(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n\x00\x00"),
    "a compressed bomb": _bytes(_said(gzip.compress(b"\0" * (64 << 20)), b"content-encoding: gzip\r\n")),
    "two lengths": _bytes(OK + b"content-length: 1\r\ncontent-length: 2\r\n\r\n\x80\x80"),
    "two answers": _bytes(_said(b"\x80"), _said(b"\x80")),
    "lists in lists": _bytes(_said(b"\x91" * 100_000 + b"\xc0")),
    "a list that says it is long": _bytes(_said(b"\xdd\xff\xff\xff\xff")),
    "huge numbers": _bytes(_said(_fields(HUGE))),
    "negative numbers": _bytes(_said(_fields(-HUGE))),
    "no numbers": _bytes(_said(_fields(float("nan")))),
    "texts": _bytes(_said(_fields("\x1b[2J" * 1000))),
    "nothing of what was asked": _bytes(_said(b"\x80")),
    "an error of a megabyte": _bytes(_said(b'{"detail": "' + b"x" * (1 << 20) + b'"}', b"", b"503 Service Unavailable")),
    "an error that is none": _bytes(_said(b"\xff\xfe", b"", b"999 What")),
}


class _FalseSite(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    lie: Lie = staticmethod(lambda connection: None)
    called = 0


class _Caller(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        site: Any = self.server
        with contextlib.suppress(OSError):  # the site hangs up on a liar
            if self.request.recv(1 << 20):
                site.called += 1
                site.lie(self.request)


@contextmanager
def false_site(port: int) -> Iterator[_FalseSite]:
    with _FalseSite(("127.0.0.1", port), _Caller) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield site
        finally:
            site.shutdown()
            thread.join()


def _memory_mb(pair: Processes, site: str) -> int:
    status = Path(f"/proc/{pair.running[site].pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))) >> 10


@pytest.mark.long
def test_no_answer_of_a_false_site_is_believed_or_costs_the_active_anything(tmp_path: Path) -> None:
    """Its remote log is on a DFS that is still there, so it acknowledges in sync; its screens say that the other site is not
    one; and the true one follows when it is back."""
    with open_pair(tmp_path) as pair:
        config = str(tmp_path / "operator.toml")
        assert pair.write("a")
        pair.kill("b")
        with false_site(pair.ports["b"]) as site:
            for name, lie in LIES.items():
                site.lie, before = lie, site.called
                pair.until(f"{name} is heard", lambda before=before: site.called >= before + CALLS)  # type: ignore[misc]
                assert pair.write("a"), name
                document = pair.cluster("a")
                assert (document["role"], document["epoch"], document["mode"]) == ("ACTIVE", 1, "sync"), name
                shown = invoke("status", "--config", config)
                assert (shown.exit_code, "\x1b[2J" in shown.output) == (1, False), (name, shown.output)
                assert "site b" in shown.output, name
                assert _memory_mb(pair, "a") < MEMORY_MB_MAX, name
        assert "internal error" not in (tmp_path / "a.log").read_text()
        pair.start("b")
        pair.until_roles("ACTIVE", "STANDBY")
        pair.check("a")
