"""The beginning of a TLS connection: from accept until its HTTP protocol takes over, or until it is refused.

What always holds: a connection has a place (gateway/http/places.py) from its accept on, waits for its client all the while, and
ends where its handshake is not done within `handshake_s`; nothing of HTTP is parsed before it is done and `judge` has
found nothing against the certificate; whoever is refused reads why, as an alert of TLS or as a problem; plain HTTP is answered
in plain HTTP. Above the places a connection is closed at once: an answer would cost a handshake. So is one whose address
makes more handshakes than it may (rates.py), and before that each waits for its turn without having cost one.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from starlette.exceptions import HTTPException
from uvicorn.server import ServerState

from gateway.api.problems import Answer, answer_for, plain_problem
from gateway.tls.figures import TlsFigures
from gateway.tls.rates import HandshakeRates
from gateway.tls.wire import TlsWire
from twinlog.wire.tls import tls_words

_HANDSHAKE_RECORD = 0x16  # the first byte of TLS; no request begins with it
_MAJOR_VERSION = 3  # the second one
_HEAD_BYTES, _RECORD_BYTES_MAX = 5, 1 << 14
_BEFORE_ALL_S = 1e9
_LAST_WORDS_S = 2.0  # for a refused client to read why


@dataclass(frozen=True, slots=True)
class TlsGate:
    """Says what one listener asks of those who come. `context`: of the newest files. `judge`: what is wrong with a certificate
    that the CA signed, or nothing."""

    listener: str
    context: Callable[[], ssl.SSLContext]
    judge: Callable[[dict[str, Any] | None], str]
    figures: TlsFigures
    rates: HandshakeRates
    handshake_s: float = 10.0


class Handshake(asyncio.Protocol):
    """One connection, until `door`, a DoorProtocol, has it. It is a Guest of the door's places."""

    def __init__(self, door: Any, gate: TlsGate, state: ServerState) -> None:
        self._door, self._gate, self._state = door, gate, state
        self._loop = asyncio.get_running_loop()
        self._secured: ssl.SSLObject | None = None  # None: its first record is not whole yet, or has no turn
        self._head = b""  # of that record
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._timer: asyncio.TimerHandle | None = None
        self._turn: asyncio.TimerHandle | None = None  # of a handshake that is held back
        self._is_over = False  # refused, or handed over
        self._has_place = False
        self.address = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._raw = cast(asyncio.Transport, transport)  # uvloop's is not derived from it
        peer = transport.get_extra_info("peername")
        self.address = str(peer[0]) if peer else ""
        self._since_s = self._loop.time()
        self._has_place = self._door.places.enter(self.address, self)
        if not self._has_place:
            self._is_over = True
            self._raw.abort()
            return
        self._state.connections.add(self)  # type: ignore[arg-type]  # the server ends it when it stops
        self._timer = self._loop.call_later(self._gate.handshake_s, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def eof_received(self) -> None:
        if not self._is_over and self._head:
            self._failed("the client ended it: it may refuse the certificate shown here, and says why itself")

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        if self._secured is None:
            if not self._head and data[0] != _HANDSHAKE_RECORD:
                self._refuse_plain()
                return
            self._head = (self._head + data)[:_HEAD_BYTES]
            self._incoming.write(data)
            if self._is_first_record_whole():
                self._wait_for_turn()
            return
        self._incoming.write(data)
        self._shake_hands(self._secured)

    def _is_first_record_whole(self) -> bool:
        """Whoever sends less costs nothing, and takes no turn from others of its address. What is no record OpenSSL refuses."""
        head = self._head
        if len(head) < _HEAD_BYTES:
            return len(head) > 1 and head[1] != _MAJOR_VERSION
        length = min(int.from_bytes(head[3:]), _RECORD_BYTES_MAX)
        return head[1] != _MAJOR_VERSION or self._incoming.pending >= _HEAD_BYTES + length

    def _wait_for_turn(self) -> None:
        """A whole handshake costs half a millisecond of everybody's loop: nothing of it is done before its turn."""
        wait_s = self._gate.rates.wait_s(self.address, self._loop.time())
        if wait_s is None:
            self._gate.figures.handshake_refused(self.address, self._gate.listener)
            self._end()
            self._raw.abort()
        elif wait_s:
            self._gate.figures.handshake_held()
            self._raw.pause_reading()
            self._turn = self._loop.call_later(wait_s, self._begin)
        else:
            self._begin()

    def _begin(self) -> None:
        if self._turn is not None:
            self._turn = None
            self._raw.resume_reading()
        self._secured = self._gate.context().wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._shake_hands(self._secured)

    def _shake_hands(self, secured: ssl.SSLObject) -> None:
        """As far as what has come allows."""
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            self._raw.write(self._outgoing.read())
        except ssl.SSLError as error:
            self._failed(tls_words(error))
        else:
            self._raw.write(self._outgoing.read())
            self._admit(secured)

    # ---- as Guest's
    def waits_since(self) -> float | None:
        """Before all that have finished theirs: of two that wait, it goes first."""
        return self._since_s - _BEFORE_ALL_S

    def give_way(self) -> None:
        self._end()
        self._raw.abort()

    def shutdown(self) -> None:
        """The server stops."""
        self._raw.abort()

    # ---- how it ends
    def _admit(self, secured: ssl.SSLObject) -> None:
        wrong = self._gate.judge(secured.getpeercert())
        if wrong:
            self._gate.figures.peer_refused(self.address, self._gate.listener, wrong)
            refused = HTTPException(403, f"the listener of the other site refuses this caller: {wrong}")
            self._refuse(answer_for(refused, is_write=False), secured)
            return
        self._is_over = True
        wire = TlsWire(self._raw, self._door, secured, self._incoming, self._outgoing)
        self._raw.set_protocol(wire)
        self._door.front = self
        self._door.connection_made(wire)
        self._has_place = False  # the door has it now
        self._end()
        wire.deliver()

    def _failed(self, why: str) -> None:
        """The alert says to the client what it may know."""
        self._gate.figures.handshake_failed(self.address, self._gate.listener, why)
        self._last_words(self._outgoing.read())

    def _late(self) -> None:
        if not self._is_over:
            seconds = f"{self._gate.handshake_s:g} s"
            self._gate.figures.handshake_failed(self.address, self._gate.listener, f"it was not done within {seconds}")
        self._end()
        self._raw.abort()

    def _refuse_plain(self) -> None:
        self._gate.figures.plain(self.address, self._gate.listener)
        self._refuse(plain_problem(400, "this port speaks TLS, and plain HTTP came: write https:// in the address"), None)

    def _refuse(self, answer: Answer, secured: ssl.SSLObject | None) -> None:
        """Answers in HTTP though nothing was parsed, through TLS where it is open."""
        headers = b"".join(b"%b: %b\r\n" % header for header in answer.headers)
        content = b"HTTP/1.1 %d %b\r\n%bconnection: close\r\ncontent-length: %d\r\n\r\n%b" % (
            answer.status, b"Forbidden" if answer.status == 403 else b"Bad Request", headers, len(answer.body), answer.body,
        )
        if secured is not None:
            secured.write(content)
            with suppress(ssl.SSLError):  # its close_notify is written, and nobody waits for the other one
                secured.unwrap()
            content = self._outgoing.read()
        self._last_words(content)

    def _last_words(self, content: bytes) -> None:
        """Sends them, and drops what still comes for a moment: a reset would take them from the client."""
        self._is_over = True
        self._disarm()
        self._raw.write(content)
        if self._raw.can_write_eof():
            self._raw.write_eof()
        self._timer = self._loop.call_later(_LAST_WORDS_S, self._late)

    def _end(self) -> None:
        if self._has_place:
            self._has_place = False
            self._door.places.leave(self.address, self)
        self._disarm()
        self._state.connections.discard(self)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None


def behind_tls(protocol: Callable[..., Any], gate: TlsGate) -> Callable[..., Handshake]:
    """A factory of protocols as `protocol` is one, for `uvicorn.Config(http=...)`."""
    def made(**given: Any) -> Handshake:
        return Handshake(protocol(**given), gate, given["server_state"])

    return made
