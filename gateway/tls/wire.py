"""An open TLS connection: a transport for the HTTP protocol, over the event loop's own transport of the encrypted bytes.

What always holds: OpenSSL (the module ssl, its objects without a socket) does all of TLS, this class moves the bytes; what is
written leaves at once as ciphertext, so that the loop's transport alone buffers, and its signs of a full buffer are the HTTP
protocol's; what comes is given whole record by whole record, however the bytes were cut; closing sends `close_notify` and waits
for nobody's; an end without one is an end all the same: HTTP says itself whether a message is whole.
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


class TlsWire(asyncio.Transport, asyncio.Protocol):
    """One connection: the transport that `door` writes to, and the protocol of the transport `raw` below."""

    def __init__(
        self, raw: asyncio.Transport, door: asyncio.Protocol, secured: ssl.SSLObject, incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None:
        super().__init__()
        self._raw, self._door, self._secured = raw, door, secured
        self._incoming, self._outgoing = incoming, outgoing
        # of the hot path: no call in between
        self._take, self._read, self._give = incoming.write, secured.read, door.data_received
        self._encrypt, self._collect, self._send = secured.write, outgoing.read, raw.write
        self.is_closing = raw.is_closing  # type: ignore[method-assign]
        self._is_part = True  # OpenSSL may have the beginning of a record
        self._is_ended = False  # the other end has sent its last
        self._is_shut = False  # so have we

    # ---- the transport of the HTTP protocol
    def write(self, data: Any) -> None:
        """OpenSSL takes a record at a time. HOT."""
        if self._is_shut or not data:
            return
        taken = self._encrypt(data)
        if taken < len(data):
            view = memoryview(data)
            while taken < len(data):
                taken += self._encrypt(view[taken:])
        self._send(self._collect())

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
        self._is_shut = True
        self._raw.abort()

    def get_write_buffer_size(self) -> int:
        return self._raw.get_write_buffer_size()

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
        if self._outgoing.pending and not self._is_shut:  # keys are renewed: says so now, where no answer may follow
            self._send(self._collect())
        if parts:
            self._give(parts[0] if len(parts) == 1 else b"".join(parts))
        if self._is_ended and not self._door.eof_received():
            self.close()

    def eof_received(self) -> bool | None:
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
        self._give = _NOBODY.data_received
        door, self._door = self._door, _NOBODY
        door.connection_lost(exc)

    def _shut(self) -> None:
        """Says that nothing follows."""
        if self._is_shut:
            return
        self._is_shut = True
        with suppress(ssl.SSLError):  # the other end has not said the same, and need not
            self._secured.unwrap()
        if self._outgoing.pending and not self._raw.is_closing():
            self._send(self._collect())
