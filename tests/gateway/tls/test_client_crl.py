"""Client certificates are checked against a list of revoked ones, which is read again; without a sound list nobody uses one."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from gateway.http.server import HttpServer
from gateway.tls.contexts import faults_of, public_context
from gateway.tls.issuing import CRL, Issued, Issuer
from gateway.tls.settings import HttpTlsSettings
from gateway.tls.site_tls import SiteTls
from tests.gateway.tls.tls_rig import DAY, HOST, PAIR, Certificates, client_of, public_door, site_tls, until
from twinlog.errors import ConfigError

LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Door(NamedTuple):
    tls: SiteTls
    server: HttpServer
    settings: HttpTlsSettings
    ann: Issued
    bob: Issued

    async def read_again(self) -> None:
        assert self.tls.public is not None
        await self.tls.public.look()


def with_list(certificates: Certificates) -> HttpTlsSettings:
    own = certificates.site("a")
    return HttpTlsSettings(
        certificate=own.certificate, key=own.key, client_ca=certificates.ca, client_crl=certificates.crl
    )


@pytest.fixture
async def door(certificates: Certificates) -> AsyncIterator[Door]:
    ann, bob = (Issuer(certificates.folder).make_client(name, 30) for name in ("ann", "bob"))
    settings = with_list(certificates)
    tls = site_tls(settings)
    async with public_door(tls) as (server, _):
        tls.on_new_client_trust = server.let_go_certified
        yield Door(tls, server, settings, ann, bob)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(certificates: Certificates, door: Door, own: Issued | None) -> Streams:
    """A connection that was answered."""
    reader, writer = await asyncio.open_connection(HOST, door.server.port, ssl=client_of(certificates, own))
    await ask(reader, writer)
    return reader, writer


async def ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Raises OSError where it is refused."""
    writer.write(LIVE)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    assert b" 200 " in head
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
    await reader.readexactly(int(length.split(b":")[1]))


async def is_refused(certificates: Certificates, door: Door, own: Issued) -> bool:
    try:
        _, writer = await opened(certificates, door, own)
    except (OSError, asyncio.IncompleteReadError):
        return True
    writer.close()
    return False


async def test_a_revoked_client_is_out_also_on_an_open_connection_and_nobody_else(
    certificates: Certificates, door: Door
) -> None:
    _, of_ann = await opened(certificates, door, door.ann)
    reader, writer = await opened(certificates, door, None)  # it showed no certificate
    Issuer(certificates.folder).revoke(door.ann.certificate)
    await door.read_again()
    await until(lambda: door.server.places.served == 1)
    assert await is_refused(certificates, door, door.ann)
    assert not await is_refused(certificates, door, door.bob)
    await ask(reader, writer)
    writer.close()
    of_ann.close()


async def test_a_handshake_under_way_ends_too(certificates: Certificates, door: Door) -> None:
    """It began by what was believed before."""
    reader, writer = await asyncio.open_connection(HOST, door.server.port)
    secured = client_of(certificates, door.ann).wrap_bio(ssl.MemoryBIO(), outgoing := ssl.MemoryBIO(), server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        secured.do_handshake()
    writer.write(outgoing.read())
    await asyncio.wait_for(reader.readexactly(1), 60)
    Issuer(certificates.folder).revoke(door.ann.certificate)
    await door.read_again()
    await until(lambda: door.server.places.served == 0)
    assert door.tls.metrics()["tls_handshakes_failed_total"] == 0, "it was ended, and did not run out of time"
    writer.close()


UNUSABLE: dict[str, tuple[Callable[[Path], object], str]] = {
    "gone": (Path.unlink, "cannot be read"),
    "half-written": (lambda path: path.write_bytes(path.read_bytes()[:60]), "holds no list of revoked certificates"),
    "over": (lambda path: _over(path), "is over since"),
}


def _over(path: Path) -> None:
    """A list whose end has passed, of the same CA."""
    issuer = Issuer(path.parent)
    ca, key = issuer._ca()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    now = datetime.now(UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject).last_update(now - 2 * DAY).next_update(now - DAY)
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


@pytest.mark.parametrize("how", UNUSABLE)
async def test_an_unusable_list_lets_nobody_in_by_certificate_until_it_is_sound(
    certificates: Certificates, door: Door, how: str
) -> None:
    spoil, said = UNUSABLE[how]
    sound = certificates.crl.read_bytes()
    _, of_ann = await opened(certificates, door, door.ann)
    spoil(certificates.crl)
    await door.read_again()
    await until(lambda: door.server.places.served == 0)
    assert await is_refused(certificates, door, door.bob)
    _, writer = await opened(certificates, door, None)
    assert any("nobody comes in by certificate" in each and said in each for each in door.tls.notices())
    assert door.tls.metrics()["tls_files_ok"] == {("http",): 0.0}
    certificates.crl.write_bytes(sound)
    await door.read_again()
    assert not await is_refused(certificates, door, door.ann)
    assert door.tls.notices() == []
    writer.close()
    of_ann.close()


async def test_a_list_whose_time_ends_meanwhile_lets_nobody_in_by_certificate(certificates: Certificates, door: Door) -> None:
    """Nothing changes in the file: OpenSSL looks at the end of the list in each handshake."""
    tls = door.tls
    assert tls.public is not None
    _over(certificates.crl)
    context = tls.public.current.listener  # as it was made of a list that was sound then
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict.load_cert_chain(door.settings.certificate, door.settings.key)
    strict.load_verify_locations(certificates.ca)
    strict.load_verify_locations(certificates.crl)
    strict.verify_mode, strict.verify_flags = context.verify_mode, context.verify_flags
    tls.public.current = tls.public.current._replace(listener=strict, crl_ends=datetime.now(UTC) - DAY)
    assert await is_refused(certificates, door, door.ann)
    assert "from then on nobody comes in by certificate" in tls.notices()[0]


def test_a_site_does_not_start_with_an_unusable_list(certificates: Certificates) -> None:
    settings = with_list(certificates)
    for spoil, said in UNUSABLE.values():
        Issuer(certificates.folder, replace=True).make_ca(PAIR, 365)
        certificates.sites["a"] = Issuer(certificates.folder, replace=True).make_site(PAIR, "a", [HOST], 30)
        spoil(certificates.folder / CRL)
        with pytest.raises(ConfigError) as caught:
            public_context(settings)
        assert [(fault.key, said in fault.problem) for fault in faults_of(caught.value)] == [("client_crl", True)]


def test_a_list_for_nobody_is_a_fault(certificates: Certificates) -> None:
    own = certificates.site("a")
    with pytest.raises(ConfigError, match="without a client_ca"):
        public_context(HttpTlsSettings(certificate=own.certificate, key=own.key, client_crl=certificates.crl))


async def test_no_session_is_resumed_past_the_list(certificates: Certificates, door: Door) -> None:
    """TLS 1.2 would resume one by its id, whatever the list says by then; 1.3 has tickets alone, and gets none."""
    context = client_of(certificates, door.ann)
    reader, writer = await asyncio.open_connection(HOST, door.server.port, ssl=context)
    await ask(reader, writer)
    secured = writer.get_extra_info("ssl_object")
    assert secured.version() == "TLSv1.3"
    assert secured.session is None or not secured.session.has_ticket
    writer.close()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        await asyncio.open_connection(HOST, door.server.port, ssl=context)
