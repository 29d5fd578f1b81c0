"""Connections that have not finished their handshake: bounded, counted from accept on, and in nobody's way."""

from __future__ import annotations

import asyncio
import ssl
import time
import warnings
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gateway.http.protocol import ConnectionLimits
from gateway.tls.handshake import TlsGate
from gateway.tls.site_tls import SiteTls
from tests.gateway.tls.test_wire import answer, connected, put
from tests.gateway.tls.tls_rig import HOST, Certificates, client_of, public_door, site_tls, until
from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.http import Http
from twinlog.wire.tls import Tls


class _Impatient(SiteTls):
    """Its listeners wait for a handshake for a moment."""

    @property
    def public_gate(self) -> TlsGate | None:
        gate = super().public_gate
        assert gate is not None
        return replace(gate, handshake_s=0.3)


def impatient(certificates: Certificates) -> SiteTls:
    return _Impatient("shop", "b", certificates.site("a"), None, insecure=False, now_s=time.monotonic)


HELLO_BEGINS = b"\x16\x03\x01\x02\x00\x01\x00"


@pytest.mark.parametrize("first", [b"", HELLO_BEGINS], ids=["silent", "half a hello"])
async def test_a_handshake_that_is_not_done_in_time_ends(certificates: Certificates, first: bytes) -> None:
    tls = impatient(certificates)
    async with public_door(tls) as (server, _):
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(first)
        assert await _read(reader) == b""
        assert server.places.served == 0
        writer.close()
    assert tls.metrics()["tls_handshakes_failed_total"] == 1


async def _read(reader: asyncio.StreamReader) -> bytes:
    """Returns all until the end, which may be a reset."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""


async def test_unfinished_handshakes_have_places_and_give_way_to_who_comes(certificates: Certificates) -> None:
    """Twice as many as there are places, and a client that wants to be served."""
    tls, limits = site_tls(certificates.site("a")), ConnectionLimits(connections_max=40, per_address_max=20)
    async with public_door(tls, limits) as (server, _):
        strangers = [await asyncio.open_connection(HOST, server.port) for _ in range(80)]
        for _, writer in strangers[::2]:
            writer.write(HELLO_BEGINS)
        reader, writer = await connected(certificates, server.port)
        assert server.places.served <= 20
        writer.write(put("UA,1"))
        assert (await answer(reader))[0] == 200
        more = [await asyncio.open_connection(HOST, server.port) for _ in range(80)]
        writer.write(put("UA,1"))
        assert (await answer(reader))[0] == 200, "a handshake gives way before a connection"
        for _, each in (*strangers, *more, (reader, writer)):
            each.close()


async def test_a_place_is_handed_to_the_connection_that_comes_of_it(certificates: Certificates) -> None:
    async with public_door(site_tls(certificates.site("a"))) as (server, _):
        reader, writer = await connected(certificates, server.port)
        writer.write(put("UA,1"))
        assert (await answer(reader))[0] == 200
        places = server.places
        assert (places.served, places.held()) == (1, {HOST: 1})
        writer.close()
        await until(lambda: not places.served)
        assert places.held() == {}


async def test_plain_http_at_the_tls_port_is_answered_in_plain_http(certificates: Certificates) -> None:
    tls = site_tls(certificates.site("a"))
    async with public_door(tls) as (server, _):
        found = await asyncio.to_thread(_ask, f"http://{HOST}:{server.port}/v1/cluster", Tls())
        assert isinstance(found, Reply)
        assert found.status == 400
        assert b"this port speaks TLS" in found.content
        secured = await asyncio.to_thread(_ask, f"https://{HOST}:{server.port}/v1/cluster", certificates.trusted)
        assert isinstance(secured, Reply)
        assert secured.status == 200
    assert tls.metrics()["tls_plain_requests_total"] == 1


async def test_tls_at_the_plain_port_is_said_on_both_sides(certificates: Certificates) -> None:
    async with public_door(site_tls()) as (server, _):
        found = await asyncio.to_thread(_ask, f"https://{HOST}:{server.port}/v1/cluster", certificates.trusted)
        assert isinstance(found, Broken)
        assert "does not speak TLS (plain HTTP?)" in found.detail
        assert not found.sent
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(HELLO_BEGINS)
        assert b"TLS came, and this port speaks plain HTTP: write http:// in the address" in await _read(reader)
        writer.close()


def _ask(url: str, tls: Tls) -> Reply | Broken:
    http = Http(tls)
    try:
        return http.send(SiteRequest(url, "GET", {}, b"", 20.0))
    finally:
        http.close()


async def test_garbage_and_old_versions_are_refused_with_an_alert(certificates: Certificates) -> None:
    tls = site_tls(certificates.site("a"))
    async with public_door(tls) as (server, _):
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(b"\x16\x03\x01\x00\x05hello")
        assert (await _read(reader))[:1] == b"\x15", "an alert of TLS"
        writer.close()
        context = client_of(certificates)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that is why it is refused
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version|unsupported.protocol"):
            await asyncio.open_connection(HOST, server.port, ssl=context)
    assert tls.metrics()["tls_handshakes_failed_total"] == 2


async def test_a_stopping_site_waits_for_no_handshake(certificates: Certificates) -> None:
    async with public_door(site_tls(certificates.site("a"))) as (server, _):
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(HELLO_BEGINS)
        await until(lambda: server.places.served)
        await asyncio.wait_for(server.stop(), 30)
        assert await _read(reader) == b""
        writer.close()


async def test_refusals_are_counted_each_and_logged_with_a_bound(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged: list[str] = []
    tls = site_tls(certificates.site("a"))
    logger = SimpleNamespace(warning=lambda event, **more: logged.append(event))
    monkeypatch.setattr(tls.figures._warnings, "_log", logger)
    for _ in range(100):
        tls.figures.peer_refused("10.0.0.9", "peer_http", "its certificate names no site")
    assert tls.metrics()["peer_certificates_refused_total"] == 100
    assert len(logged) == 10
