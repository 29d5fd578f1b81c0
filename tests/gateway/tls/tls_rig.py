"""Certificates, good and bad, and listeners of one site that show and ask for them."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.api.api_context import ApiContext
from gateway.http.app import DoorApp
from gateway.http.protocol import ConnectionLimits
from gateway.http.server import HttpServer, ServerSettings, serving
from gateway.service.http_settings import HttpSettings
from gateway.tls.identity import site_uri
from gateway.tls.issuing import CA, CRL, Issued, Issuer
from gateway.tls.settings import HttpTlsSettings, PeerHttpSettings
from gateway.tls.site_tls import SiteTls
from tests.gateway.dict_service import DictService
from tests.gateway.door_client import FLIGHTS
from twinlog.wire.tls import Tls

HOST = "127.0.0.1"
PAIR = "shop"
DAY = timedelta(days=1)


class Certificates:
    """A CA of the pair in `folder`, with a certificate for each site."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        now = datetime.now(UTC)
        Issuer(folder, now=now - 30 * DAY).make_ca(PAIR, 365)
        self.sites = {site: Issuer(folder).make_site(PAIR, site, [HOST, "localhost"], 30) for site in "ab"}

    @property
    def ca(self) -> Path:
        return self.folder / CA

    @property
    def crl(self) -> Path:
        return self.folder / CRL

    @property
    def trusted(self) -> Tls:
        return Tls(str(self.ca))

    def site(self, site: str) -> HttpTlsSettings:
        own = self.sites[site]
        return HttpTlsSettings(certificate=own.certificate, key=own.key)

    def peer(self, site: str, own: Issued | None = None) -> PeerHttpSettings:
        own = own or self.sites[site]
        return PeerHttpSettings(certificate=own.certificate, key=own.key, ca=self.ca, crl=self.crl)

    def expired(self, pair: str = PAIR, site: str = "b") -> Issued:
        return Issuer(self.folder, replace=True, now=datetime.now(UTC) - 10 * DAY).make_site(pair, site, [HOST], 1)

    def of_tomorrow(self, pair: str = PAIR, site: str = "b") -> Issued:
        """As a site gets it whose clock is a day ahead of ours."""
        return Issuer(self.folder, replace=True, now=datetime.now(UTC) + DAY).make_site(pair, site, [HOST], 1)

    def of_another_pair(self) -> Issued:
        return Issuer(self.folder, replace=True).make_site("other", "b", [HOST], 30)

    def of_a_client(self) -> Issued:
        return Issuer(self.folder, replace=True).make_client("ann", 30)

    def of_another_ca(self) -> Issued:
        elsewhere = Issuer(self.folder / "other")
        elsewhere.make_ca(PAIR, 365)
        return elsewhere.make_site(PAIR, "b", [HOST], 30)

    def revoked(self) -> Issued:
        issued = Issuer(self.folder, replace=True).make_site(PAIR, "b", [HOST], 30)
        Issuer(self.folder).revoke(issued.certificate)
        return issued

    def self_signed(self) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")]), datetime.now(UTC)
        uri = x509.UniformResourceIdentifier(site_uri(PAIR, "b"))
        built = x509.CertificateBuilder(name, name, key.public_key(), 7, now - DAY, now + DAY)
        built = built.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        issued = Issued(self.folder / "self.pem", self.folder / "self.key", now + DAY)
        issued.certificate.write_bytes(built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        issued.key.write_bytes(key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ))
        return issued


def site_tls(http: HttpTlsSettings | None = None, peer_http: PeerHttpSettings | None = None, peer: str = "b") -> SiteTls:
    """Makes that of the site whose other one is `peer`."""
    return SiteTls(PAIR, peer, http, peer_http, insecure=False, now_s=time.monotonic)


async def until(holds: Callable[[], object], deadline_s: float = 60.0) -> None:
    """Returns when it holds. Raises TimeoutError."""
    async with asyncio.timeout(deadline_s):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


@asynccontextmanager
async def public_door(
    tls: SiteTls, limits: ConnectionLimits | None = None, http: HttpSettings | None = None
) -> AsyncIterator[tuple[HttpServer, DictService]]:
    """A listener for clients, with the table `flights`."""
    service = DictService()
    await service.tables.create(FLIGHTS)
    context = ApiContext(service.ports, http or HttpSettings(), now_s=time.perf_counter, new_id=lambda: "incident-1")
    settings = ServerSettings(limits or ConnectionLimits(), graceful_shutdown_s=1)
    async with serving(DoorApp(context, "public"), HOST, 0, settings, tls.public_gate) as server:
        yield server, service


@asynccontextmanager
async def peer_door(tls: SiteTls) -> AsyncIterator[tuple[HttpServer, list[tuple[str, bytes]]]]:
    """The listener of the other site, and the calls that its service got."""
    calls: list[tuple[str, bytes]] = []
    service = DictService()

    async def called(method: str, body: bytes) -> bytes:
        calls.append((method, body))
        return b"\x81\xa1n\x01"  # the map {"n": 1}

    service.peer_call = called
    context = ApiContext(service.ports, HttpSettings(), now_s=time.perf_counter, new_id=lambda: "incident-1")
    settings = ServerSettings(ConnectionLimits(), graceful_shutdown_s=1)
    async with serving(DoorApp(context, "peer"), HOST, 0, settings, tls.peer_gate) as server:
        tls.on_new_trust = server.let_go
        yield server, calls


def client_of(certificates: Certificates, own: Issued | None = None) -> ssl.SSLContext:
    """A client's context that looks at no name."""
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.check_hostname = False
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context
