"""Files of TLS are read again when they change: open connections go on, and half a change changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from gateway.http.server import HttpServer
from gateway.tls import reloading
from gateway.tls.issuing import Issued, Issuer
from gateway.tls.reloading import Following
from gateway.tls.site_tls import Contexts, SiteTls
from tests.gateway.tls.test_wire import answer, connected, put
from tests.gateway.tls.tls_rig import HOST, PAIR, Certificates, client_of, public_door, site_tls, until


def public_of(tls: SiteTls) -> Following[Contexts]:
    assert tls.public is not None
    return tls.public


def renewed(certificates: Certificates) -> Issued:
    return Issuer(certificates.folder, replace=True).make_site(PAIR, "a", [HOST], 20)


async def serial_at(certificates: Certificates, server: HttpServer) -> str:
    """Returns that of the certificate which a new connection is shown."""
    _, writer = await asyncio.open_connection(HOST, server.port, ssl=client_of(certificates))
    try:
        return str(writer.get_extra_info("peercert")["serialNumber"])
    finally:
        writer.close()


@pytest.fixture
async def door(certificates: Certificates) -> AsyncIterator[tuple[SiteTls, HttpServer]]:
    tls = site_tls(certificates.site("a"))
    async with public_door(tls) as (server, _):
        yield tls, server


async def test_a_new_certificate_is_shown_and_open_connections_go_on(
    certificates: Certificates, door: tuple[SiteTls, HttpServer]
) -> None:
    tls, server = door
    old = await serial_at(certificates, server)
    reader, writer = await connected(certificates, server.port)
    noted: list[tuple[str, set[str]]] = []
    tls.on_new_files = lambda section, changed: noted.append((section, changed))
    renewed(certificates)
    await public_of(tls).look()
    assert noted == [("http.tls", {"certificate", "key"})]
    assert await serial_at(certificates, server) != old
    writer.write(put("UA,1"))
    assert (await answer(reader))[0] == 200
    assert tls.metrics()["tls_files_ok"] == {("http",): 1.0}
    writer.close()


async def test_half_a_change_keeps_the_old_one_and_is_said_until_the_rest_is_there(
    certificates: Certificates, door: tuple[SiteTls, HttpServer]
) -> None:
    tls, server = door
    own, old = certificates.sites["a"], await serial_at(certificates, server)
    before = own.key.read_bytes()
    renewed(certificates)
    new_key, new_certificate = own.key.read_bytes(), own.certificate.read_bytes()
    for key, certificate, said in (
        (before, new_certificate, "does not fit"), (new_key[:100], new_certificate, "no private key"),
        (new_key, new_certificate[:200], "holds no certificate"), (new_key, b"", "holds no certificate"),
    ):
        own.key.write_bytes(key)
        own.certificate.write_bytes(certificate)
        await public_of(tls).look()
        assert said in tls.notices()[0]
        assert "the old ones are" in tls.notices()[0]
        assert tls.metrics()["tls_files_ok"] == {("http",): 0.0}
        assert await serial_at(certificates, server) == old
    own.key.unlink()
    await public_of(tls).look()
    assert "cannot be read" in tls.notices()[0]
    own.key.write_bytes(new_key)
    own.certificate.write_bytes(new_certificate)
    await public_of(tls).look()
    assert tls.notices() == []
    assert await serial_at(certificates, server) != old


async def test_an_expired_certificate_does_not_take_the_place_of_a_good_one(
    certificates: Certificates, door: tuple[SiteTls, HttpServer]
) -> None:
    tls, server = door
    old = await serial_at(certificates, server)
    for make, said in ((certificates.expired, "expired at"), (certificates.of_tomorrow, "clock")):
        make(site="a")
        await public_of(tls).look()
        assert said in tls.notices()[0]
        assert await serial_at(certificates, server) == old


async def test_a_new_ca_lets_in_whom_it_signed_and_nobody_else(certificates: Certificates) -> None:
    """The old CA is out as soon as it is out of the file: a context is made anew, and nothing is added to it."""
    tls = site_tls(None, certificates.peer("a"))
    between = tls.between
    assert between is not None
    elsewhere = Issuer(certificates.folder / "other")
    elsewhere.make_ca(PAIR, 100)
    (certificates.ca).write_bytes((certificates.folder / "other" / "ca.pem").read_bytes())
    (certificates.crl).write_bytes((certificates.folder / "other" / "crl.pem").read_bytes())
    before = between.current
    await between.look()
    assert between.current is not before
    assert [dict(field[0] for field in each["subject"]) for each in between.current.listener.get_ca_certs()] == [
        {"commonName": f"twinlog CA of {PAIR}"}
    ]


async def test_a_site_looks_by_itself(
    certificates: Certificates, door: tuple[SiteTls, HttpServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloading, "LOOK_S", 0.01)
    tls, _ = door
    before = public_of(tls).current
    async with tls.following():
        renewed(certificates)
        await until(lambda: public_of(tls).current is not before)


def test_the_end_of_a_certificate_is_said_two_weeks_before(certificates: Certificates) -> None:
    tls, ends = site_tls(certificates.site("a")), certificates.sites["a"].ends
    assert tls.notices(ends - timedelta(days=15)) == []
    assert "expires: its end is" in tls.notices(ends - timedelta(days=13))[0]
    assert "has expired: its end is" in tls.notices(ends + timedelta(days=1))[0]
    assert tls.metrics()["certificate_not_after_timestamp_seconds"] == {("http",): ends.timestamp()}
    assert ends > datetime.now(UTC)
