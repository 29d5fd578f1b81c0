"""HTTP through TLS is HTTP as without: whole bodies either way, last answers that are read, ends that are seen."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref

import pytest

from gateway.http.protocol import ConnectionLimits
from gateway.service.http_settings import HttpSettings
from tests.gateway.door_client import ROWS
from tests.gateway.tls.tls_rig import HOST, Certificates, client_of, public_door, site_tls, until

HEAD = "HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def put(key: str, body: str = "{}", more: str = "") -> bytes:
    return f"PUT {ROWS}/{key} {HEAD}{more}content-length: {len(body)}\r\n\r\n{body}".encode()


def get(key: str) -> bytes:
    return f"GET {ROWS}/{key} {HEAD}\r\n".encode()


async def connected(certificates: Certificates, port: int) -> Streams:
    return await asyncio.open_connection(HOST, port, ssl=client_of(certificates))


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """One answer: status and body."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    return int(head.split()[1]), await asyncio.wait_for(reader.readexactly(length), 60)


@pytest.mark.parametrize("query", ["", "?"], ids=["hot", "plain"])
async def test_bodies_of_many_records_arrive_whole_in_both_directions(certificates: Certificates, query: str) -> None:
    """A record has 16 KiB at most, and a write of OpenSSL one record."""
    note = "x" * 700_000
    async with public_door(site_tls(certificates.site("a"))) as (server, _):
        reader, writer = await connected(certificates, server.port)
        for _ in range(2):
            writer.write(put(f"UA,1{query}", f'{{"note":"{note}"}}'))
            assert (await answer(reader))[0] == 200
            writer.write(get("UA,1"))
            status, body = await answer(reader)
            assert status == 200
            assert note.encode() in body
        writer.close()


async def test_a_request_may_come_byte_by_byte_and_many_behind_each_other(certificates: Certificates) -> None:
    async with public_door(site_tls(certificates.site("a"))) as (server, _):
        reader, writer = await connected(certificates, server.port)
        for byte in put("UA,1"):
            writer.write(bytes([byte]))
        assert (await answer(reader))[0] == 200
        writer.write(b"".join(put(f"UA,{number}") for number in range(500)))
        assert {(await answer(reader))[0] for _ in range(500)} == {200}
        writer.close()


async def test_a_client_that_still_sends_reads_why_it_was_refused(certificates: Certificates) -> None:
    """A body above the limit, all of which is sent before the first look at the answer: no reset takes it away."""
    async with public_door(site_tls(certificates.site("a")), http=HttpSettings(body_bytes_max=2 << 20)) as (server, _):
        assert b" 413 " in await asyncio.to_thread(_sent_before_read, client_of(certificates), server.port)


def _sent_before_read(context: ssl.SSLContext, port: int) -> bytes:
    with socket.create_connection((HOST, port), 60) as plain, context.wrap_socket(plain, server_hostname=HOST) as client:
        head = f"POST /v1/tables/flights/rows:mutate {HEAD}connection: close\r\ncontent-length: 30000000\r\n\r\n"
        client.sendall(head.encode())
        for _ in range(100):
            client.sendall(b" " * 300_000)
        return client.recv(1 << 16)


async def test_a_client_that_reads_nothing_holds_up_the_site_no_longer_than_a_plain_one(certificates: Certificates) -> None:
    """The loop's buffer bounds what it does not read, and its connection ends."""
    limits = ConnectionLimits(request_read_s=0.5)
    async with public_door(site_tls(certificates.site("a")), limits) as (server, _):
        reader, writer = await connected(certificates, server.port)
        writer.write(put("UA,1", f'{{"note":"{"x" * 900_000}"}}'))
        assert (await answer(reader))[0] == 200
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(get("UA,1") * 40)
        await until(lambda: not server.places.served)
        writer.transport.abort()


async def test_either_end_may_close(certificates: Certificates) -> None:
    """The client's `close_notify` ends the connection at the site; `Connection: close` ends with one of the site's."""
    async with public_door(site_tls(certificates.site("a"))) as (server, _):
        reader, writer = await connected(certificates, server.port)
        writer.write(put("UA,1"))
        assert (await answer(reader))[0] == 200
        writer.close()
        await until(lambda: not server.places.served)
        reader, writer = await connected(certificates, server.port)
        writer.write(put("UA,1", more="connection: close\r\n"))
        assert (await answer(reader))[0] == 200
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()


async def test_a_forged_record_ends_its_connection_alone(certificates: Certificates) -> None:
    """Bytes that the keys did not make, as a stranger on the way could send them."""
    limits = ConnectionLimits(request_read_s=3600.0)
    async with public_door(site_tls(certificates.site("a")), limits) as (server, service):
        context, incoming, outgoing = client_of(certificates), ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(incoming, outgoing, server_hostname=HOST)
        reader, writer = await asyncio.open_connection(HOST, server.port)
        while True:
            try:
                client.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await asyncio.wait_for(reader.read(1 << 16), 60))
        client.write(put("UA,1"))
        record = bytearray(outgoing.read())
        record[-1] ^= 1
        writer.write(bytes(record))
        await until(lambda: not server.places.served, 20.0)
        writer.close()
        assert service.engine.applied.seq == 1, "the table, and no row"
        reader, writer = await connected(certificates, server.port)
        writer.write(put("UA,1"))
        assert (await answer(reader))[0] == 200
        writer.close()


async def test_a_client_certificate_is_in_the_scope_and_on_the_protocol(certificates: Certificates) -> None:
    """The ASGI extension `tls`, leaf first; without a certificate there is none."""
    from gateway.tls.issuing import Issuer
    from gateway.tls.settings import HttpTlsSettings

    ann = Issuer(certificates.folder).make_client("ann", 30)
    own = certificates.site("a")
    tls = site_tls(HttpTlsSettings(certificate=own.certificate, key=own.key, client_ca=certificates.ca))
    seen: list[object] = []
    async with public_door(tls) as (server, _):
        app = server._server.config.app
        plain = app.plain  # type: ignore[union-attr]

        async def watched(scope: dict[str, object], receive: object, send: object) -> None:
            seen.append(scope.get("extensions"))
            await plain(scope, receive, send)

        app.plain = watched  # type: ignore[union-attr]
        for context in (client_of(certificates, ann), client_of(certificates)):
            reader, writer = await asyncio.open_connection(HOST, server.port, ssl=context)
            writer.write(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in await asyncio.wait_for(reader.readline(), 60)
            writer.close()
    assert seen[1] is None
    chain = seen[0]["tls"]["client_cert_chain"]  # type: ignore[index]
    assert [ssl.PEM_cert_to_DER_cert(pem) for pem in chain] == [ssl.PEM_cert_to_DER_cert(ann.certificate.read_text())]


@pytest.mark.parametrize("is_reset", [False, True])
async def test_a_lost_connection_is_gone_without_the_collector(certificates: Certificates, is_reset: bool) -> None:
    """A site seldom collects, and OpenSSL's part of a connection, 50 KiB, does not count for the collector."""
    gc.disable()
    try:
        async with public_door(site_tls(certificates.site("a"))) as (server, _):
            streams = [await connected(certificates, server.port) for _ in range(3)]
            for reader, writer in streams:
                writer.write(put("UA,1") + get("UA,1") + get("UA,1?"))
                assert [(await answer(reader))[0] for _ in range(3)] == [200, 200, 200]
            held: list[weakref.ref[object]] = []
            for protocol in server._server.server_state.connections:
                held += weakref.ref(protocol), weakref.ref(protocol.transport._transport)
            assert len(held) == 6
            del protocol
            for _, writer in streams:
                writer.transport.abort() if is_reset else writer.close()
            await until(lambda: all(one() is None for one in held), 20)
    finally:
        gc.enable()
