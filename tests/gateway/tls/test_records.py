"""Bytes between OpenSSL and the loop's transport: order, ends, and records in whatever pieces."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tls.contexts import public_context
from gateway.tls.wire import READ_BYTES, TlsWire
from tests.gateway.tls.tls_rig import Certificates, client_of


class Raw(asyncio.Transport):
    """The loop's transport, in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_over = False

    def write(self, data: Any) -> None:
        assert not self.is_over
        self.sent.append(bytes(data))

    def is_closing(self) -> bool:
        return self.is_over

    def close(self) -> None:
        self.is_over = True

    def abort(self) -> None:
        self.is_over = True

    def get_write_buffer_size(self) -> int:
        return 0


class Door(asyncio.Protocol):
    def __init__(self) -> None:
        self.given: list[bytes] = []
        self.is_ended = False

    def data_received(self, data: bytes) -> None:
        self.given.append(data)

    def eof_received(self) -> bool:
        self.is_ended = True
        return False


class Client:
    """One open connection: `wire` at the site, and the client's end of TLS."""

    def __init__(self, certificates: Certificates) -> None:
        to_site, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = public_context(certificates.site("a")).wrap_bio(to_site, to_client, server_side=True)
        self._sent, self._came = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = client_of(certificates).wrap_bio(self._came, self._sent)
        for end in (self._tls, secured, self._tls, secured):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
            to_site.write(self._sent.read())
            self._came.write(to_client.read())
        self.raw, self.door = Raw(), Door()
        self.wire = TlsWire(self.raw, self.door, secured, to_site, to_client)
        self.wire.deliver()

    def sealed(self, data: bytes) -> bytes:
        """Returns a record, as it is sent."""
        self._tls.write(data)
        return self._sent.read()

    def read(self) -> tuple[bytes, bool]:
        """Returns what has come, and whether nothing follows."""
        self._came.write(b"".join(self.raw.sent))
        self.raw.sent.clear()
        came = b""
        while True:
            try:
                data = self._tls.read(READ_BYTES)
            except ssl.SSLWantReadError:
                return came, False
            except ssl.SSLZeroReturnError:
                return came, True
            if not data:
                return came, True
            came += data


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """All tests here share them, and none changes them."""
    return Certificates(tmp_path_factory.mktemp("certs"))


@given(sizes=st.lists(st.sampled_from([0, 1, 100, READ_BYTES - 1, READ_BYTES, READ_BYTES + 1, 50_000]), max_size=6))
async def test_pieces_arrive_in_their_order_however_long(certificates: Certificates, sizes: list[int]) -> None:
    client = Client(certificates)
    pieces = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    for piece in pieces:
        client.wire.write(piece)
    assert client.read() == (b"".join(pieces), False)


async def test_an_answer_arrives_before_the_end_that_follows_it(certificates: Certificates) -> None:
    client = Client(certificates)
    client.wire.write(b"the last answer")
    client.wire.close()
    assert client.read() == (b"the last answer", True)
    client.wire.write(b"nobody reads this")
    assert client.raw.sent == []


@given(data=st.data())
async def test_records_in_any_pieces_are_given_whole_and_once(certificates: Certificates, data: st.DataObject) -> None:
    """The quick look takes what comes for whole records, and what is left for the beginning of one."""
    client = Client(certificates)
    bodies = data.draw(st.lists(st.integers(1, 3 * READ_BYTES), min_size=1, max_size=4))
    sent = b"".join(client.sealed(bytes([65 + number]) * size) for number, size in enumerate(bodies))
    cut = st.sampled_from(_ends(sent)) | st.integers(1, len(sent))
    cuts = sorted(data.draw(st.lists(cut, max_size=5)))
    for since, until in zip([0, *cuts], [*cuts, len(sent)], strict=True):
        if since < until:
            client.wire.data_received(sent[since:until])
    assert b"".join(client.door.given) == b"".join(bytes([65 + number]) * size for number, size in enumerate(bodies))


def _ends(sent: bytes) -> list[int]:
    """Returns where each record ends."""
    ends = [0]
    while ends[-1] < len(sent):
        ends.append(ends[-1] + 5 + int.from_bytes(sent[ends[-1] + 3 : ends[-1] + 5]))
    return ends[1:]


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_a_forged_record_ends_the_connection_and_gives_nothing(certificates: Certificates, before: int) -> None:
    client = Client(certificates)
    for _ in range(before):
        client.wire.data_received(client.sealed(b"GET"))
    record = bytearray(client.sealed(b"PUT"))
    record[-1] ^= 1
    client.wire.data_received(bytes(record))
    client.wire.data_received(client.sealed(b"PUT"))
    assert (client.door.given, client.raw.is_over) == ([b"GET"] * before, True)


async def test_the_clients_close_notify_ends_it_behind_what_came_before(certificates: Certificates) -> None:
    client = Client(certificates)
    last = client.sealed(b"GET")
    with suppress(ssl.SSLWantReadError):
        client._tls.unwrap()
    client.wire.data_received(last + client._sent.read())
    assert (client.door.given, client.door.is_ended, client.raw.is_over) == ([b"GET"], True, True)
