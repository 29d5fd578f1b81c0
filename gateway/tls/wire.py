"""An open TLS connection: a transport for the HTTP protocol, over the event loop's own transport of the encrypted bytes.

What always holds: OpenSSL (the module ssl, its objects without a socket) does all of TLS, this class moves the bytes; what is
written leaves in its order and before an end that is written behind it, the small pieces of one turn of the event loop as one
record, and no more than a record waits for that, so that the loop's transport alone buffers, and its signs of a full buffer are
the HTTP protocol's; closing sends `close_notify` and waits for nobody's; an end without one is an end all the same: HTTP says
itself whether a message is whole.
It is not the event loop's own TLS because that shows a connection only after its handshake, keeps the alert that says why a
handshake failed, and cannot close one direction (docs/decisions/2026-11-24-tls-on-the-listeners.md).
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

_NOBODY = asyncio.Protocol()  # the door of a lost connection: the two no longer refer to each other, and need no collector
READ_BYTES = 1 << 14  # the most that a record has, and OpenSSL gives at once


class Outbox:
    """The answers of all connections of one listener in this turn of the event loop, sealed behind each other: OpenSSL's code
    and tables then come into the processor's cache once a turn, and not once an answer (docs/performance.md)."""

    def __init__(self) -> None:
        self.wires: list[TlsWire] = []  # with something that waits

    def leave(self) -> None:
        """Seals and sends them. What fails ends its own connection, and holds up nobody else's answer. HOT: without calls of
        ours in between."""
        wires, self.wires = self.wires, []
        sealed = []
        for wire in wires:
            waiting = wire.waiting
            if waiting:
                wire.waiting = b""
                try:
                    wire.encrypt(waiting)  # no longer than a record: OpenSSL takes it whole
                except ssl.SSLError:
                    wire.abort()
                else:
                    sealed.append(wire)
        for wire in sealed:
            try:
                wire.send(wire.collect())
            except RuntimeError:  # of the loop's transport, where it is closed already
                wire.abort()


class TlsWire(asyncio.Transport, asyncio.Protocol):
    """One connection: the transport that `door` writes to, and the protocol of the transport `raw` below."""

    def __init__(
        self, raw: asyncio.Transport, door: asyncio.Protocol, secured: ssl.SSLObject, incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO, outbox: Outbox,
    ) -> None:
        super().__init__()
        self._raw, self._door, self._secured, self._outbox = raw, door, secured, outbox
        self._incoming, self._outgoing = incoming, outgoing
        # of the hot path: no call in between
        self.send, self.collect, self.encrypt = raw.write, outgoing.read, secured.write
        self._take, self._read = incoming.write, secured.read
        self._give, self._loop = door.data_received, asyncio.get_running_loop()
        self.is_closing = raw.is_closing  # type: ignore[method-assign]
        self.waiting = b""  # written, and not sealed yet: at most a record
        self._is_part = True  # OpenSSL may have the beginning of a record
        self._is_ended = False  # the other end has sent its last
        self._is_shut = False  # so have we

    # ---- the transport of the HTTP protocol
    def write(self, data: Any) -> None:
        """HOT."""
        if self._is_shut or not data:
            return
        if not self.waiting:
            if len(data) <= READ_BYTES:
                self.waiting = data if type(data) is bytes else bytes(data)
                wires = self._outbox.wires
                if not wires:
                    self._loop.call_soon(self._outbox.leave)
                wires.append(self)
                return
        elif len(self.waiting) + len(data) <= READ_BYTES:
            self.waiting += data
            return
        self._seal()
        view, taken = memoryview(data), 0
        while taken < len(data):  # OpenSSL takes a record at a time
            taken += self.encrypt(view[taken:])
        self.send(self.collect())

    def _seal(self) -> None:
        """What waits goes before what follows."""
        waiting, self.waiting = self.waiting, b""
        if waiting:
            self.encrypt(waiting)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._shut()
        if self._raw.can_write_eof():
            self._raw.write_eof()

    def close(self) -> None:
        self._shut()
        self._raw.close()

    def abort(self) -> None:
        self._is_shut, self.waiting = True, b""
        self._raw.abort()

    def get_write_buffer_size(self) -> int:
        return len(self.waiting) + self._raw.get_write_buffer_size()

    def is_reading(self) -> bool:
        return self._raw.is_reading()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "ssl_object":
            return self._secured
        if name == "sslcontext":
            return self._secured.context
        return self._raw.get_extra_info(name, default)

    # ---- the protocol of the encrypted bytes
    def data_received(self, data: bytes) -> None:
        """Reads one record at once, as a request of the hot path comes, and all else by `deliver`. HOT."""
        if self._is_shut:  # nobody reads it: the other end has its last answer, and is still sending
            return
        self._take(data)
        if self._is_part:
            self.deliver()
            return
        try:
            record = self._read(len(data))  # it is shorter than what it came in
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            record = b""
        except ssl.SSLError:
            self.abort()
            return
        if record and not self._incoming.pending:
            self._give(record)
        else:
            self.deliver(record)

    def deliver(self, first: bytes = b"") -> None:
        """Gives the HTTP protocol what has come, whole records in one piece. `first`: what was read of it already."""
        if self._is_ended:
            return
        parts = [first] if first else []
        self._is_part = False
        try:
            while record := self._read(READ_BYTES):  # a read gives a whole record, so that nothing is left inside of OpenSSL
                parts.append(record)
                if not self._incoming.pending:
                    break
            else:
                self._is_ended = True
        except ssl.SSLWantReadError:
            self._is_part = True
        except ssl.SSLZeroReturnError:
            self._is_ended = True
        except ssl.SSLError:  # a broken or forged record: nothing behind it can be read
            self.abort()
            return
        if self._outgoing.pending and not self._is_shut:  # keys are renewed
            self.send(self.collect())
        if parts:
            self._give(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._is_ended and not self._door.eof_received():
            self.close()

    def eof_received(self) -> bool | None:
        if self.waiting and not self._is_shut:  # the loop may close its transport behind this
            self._seal()
            self.send(self.collect())
        if self._is_ended:
            return None
        self._is_ended = True
        return self._door.eof_received()

    def pause_writing(self) -> None:
        self._door.pause_writing()

    def resume_writing(self) -> None:
        self._door.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_shut = self._is_ended = True
        self.waiting, self._give = b"", _NOBODY.data_received
        door, self._door = self._door, _NOBODY
        door.connection_lost(exc)

    def _shut(self) -> None:
        """Says that nothing follows."""
        if self._is_shut:
            return
        self._is_shut = True
        with suppress(ssl.SSLError):  # the other end has not said the same, and need not
            self._seal()
            self._secured.unwrap()
        if self._outgoing.pending and not self._raw.is_closing():
            self.send(self.collect())
