"""Only the other site speaks on its listener, and only to the other site does a site speak: by certificate, not by name."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable

import msgspec
import pytest

from gateway.http.peer_transport import HttpTransport
from gateway.tls.issuing import Issued, Issuer
from gateway.tls.settings import HttpTlsSettings
from gateway.tls.site_tls import SiteTls
from tests.gateway.door_client import ROWS
from tests.gateway.tls.tls_rig import HOST, PAIR, Certificates, client_of, peer_door, public_door, site_tls, until
from twinlog.errors import PeerError


class N(msgspec.Struct):
    n: int


async def call(port: int, tls: SiteTls | None, scheme: str = "https") -> N:
    transport = HttpTransport(f"{scheme}://{HOST}:{port}", tls)
    try:
        return await transport.call("status", {"x": 1}, N, 10.0)
    finally:
        await transport.close()


async def refused(port: int, tls: SiteTls | None, scheme: str = "https") -> str:
    with pytest.raises(PeerError) as caught:
        await call(port, tls, scheme)
    return caught.value.message


async def test_the_other_site_is_served_by_any_host_name(certificates: Certificates) -> None:
    """Its certificate is for other hosts than that at which it stands here."""
    issuer = Issuer(certificates.folder, replace=True)
    certificates.sites = {site: issuer.make_site(PAIR, site, ["elsewhere.example"], 30) for site in "ab"}
    async with peer_door(site_tls(None, certificates.peer("a"))) as (server, calls):
        assert await call(server.port, site_tls(None, certificates.peer("b"), "a")) == N(1)
    assert [method for method, _ in calls] == ["status"]


WRONG: dict[str, Callable[[Certificates], Issued]] = {
    "expired": Certificates.expired, "not yet valid": Certificates.of_tomorrow, "of another pair": Certificates.of_another_pair,
    "of the site itself": lambda known: known.sites["a"], "of a client": Certificates.of_a_client,
    "of another CA": Certificates.of_another_ca, "revoked": Certificates.revoked, "self-signed": Certificates.self_signed,
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG)
async def test_a_caller_with_a_wrong_certificate_is_refused_before_its_request_is_read(
    certificates: Certificates, make: Callable[[Certificates], Issued]
) -> None:
    """The caller sends its request as soon as its half of the handshake is done; the service never sees it."""
    wrong = make(certificates)
    certificates.sites["a"] = Issuer(certificates.folder, replace=True).make_site(PAIR, "a", [HOST], 30)
    tls = site_tls(None, certificates.peer("a"))
    context = client_of(certificates, wrong)
    async with peer_door(tls) as (server, calls):
        reader, writer = await asyncio.open_connection(HOST, server.port, ssl=context)
        writer.write(b"POST /internal/v1/peer/status HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-msgpack\r\n"
                     b"content-length: 1\r\n\r\n\x80")
        try:
            answer = await asyncio.wait_for(reader.read(), 30)
        except (ssl.SSLError, ConnectionError):
            answer = b""
        writer.close()
        assert b" 200 " not in answer
        assert calls == []
        counted = tls.metrics()
        assert counted["tls_handshakes_failed_total"] + counted["peer_certificates_refused_total"] == 1
        assert await call(server.port, site_tls(None, certificates.peer("b", _fresh(certificates)), "a")) == N(1), "it goes on"


def _fresh(certificates: Certificates) -> Issued:
    return Issuer(certificates.folder, replace=True).make_site(PAIR, "b", [HOST], 30)


CALLER_SEES: list[tuple[str, Callable[[Certificates], Issued], str]] = [
    ("expired", Certificates.expired, "the other end says that the certificate shown here has expired"),
    ("not yet valid", Certificates.of_tomorrow, "is the clock right on both machines"),
    ("of another pair", Certificates.of_another_pair, "refuses this caller: its certificate is of twinlog://other/b"),
    ("of another CA", Certificates.of_another_ca, "does not trust the CA that signed the certificate shown here"),
    ("revoked", Certificates.revoked, "the certificate shown here is revoked"),
]


@pytest.mark.parametrize(("make", "said"), [each[1:] for each in CALLER_SEES], ids=[each[0] for each in CALLER_SEES])
async def test_the_caller_says_in_plain_words_why_it_was_refused(
    certificates: Certificates, make: Callable[[Certificates], Issued], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = make(certificates)
    own = certificates.peer("b", wrong)
    monkeypatch.setattr("gateway.tls.contexts._content_problem", lambda *given: "")  # a site does not start with such a file
    async with peer_door(site_tls(None, certificates.peer("a"))) as (server, _):
        assert said in await refused(server.port, site_tls(None, own, "a"))


async def test_a_site_sends_nothing_to_who_is_not_the_other_one(certificates: Certificates) -> None:
    """A client's certificate of the same CA, and another pair's site, at the address of the other site."""
    for make, said in (
        (Certificates.of_a_client, "not made for this use"), (Certificates.of_another_pair, "it is not the other site"),
    ):
        own = make(certificates)
        async with public_door(site_tls(HttpTlsSettings(certificate=own.certificate, key=own.key))) as (server, _):
            message = await refused(server.port, site_tls(None, certificates.peer("b"), "a"))
        assert said in message


async def test_plain_on_one_end_and_tls_on_the_other_is_said_on_both(certificates: Certificates) -> None:
    caller = site_tls(None, certificates.peer("b"), "a")
    async with public_door(site_tls()) as (plain, _):
        assert "does not speak TLS (plain HTTP?)" in await refused(plain.port, caller)
    tls = site_tls(None, certificates.peer("a"))
    async with peer_door(tls) as (server, calls):
        assert "this port speaks TLS, and plain HTTP came" in await refused(server.port, None, "http")
        assert await call(server.port, caller) == N(1)
    assert tls.metrics()["tls_plain_requests_total"] == 1
    assert len(calls) == 1


async def test_routes_of_the_other_site_stand_on_its_listener_alone(certificates: Certificates) -> None:
    tls = site_tls(certificates.site("a"), certificates.peer("a"))
    context = client_of(certificates, certificates.sites["b"])
    async with public_door(tls) as (public, _), peer_door(tls) as (between, _):
        for port, path, method in (
            (public.port, "/internal/v1/peer/status", "POST"), (between.port, "/v1/cluster", "GET"),
            (between.port, f"{ROWS}/UA,1", "GET"), (between.port, f"{ROWS}/UA,1", "PUT"), (between.port, "/health/live", "GET"),
        ):
            reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
            writer.write(f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n".encode())
            assert b" 404 " in await asyncio.wait_for(reader.readline(), 30), (path, method)
            writer.close()


async def test_a_revoked_caller_is_out_once_the_list_is_read_again(certificates: Certificates) -> None:
    """Also on a connection that was open before."""
    tls = site_tls(None, certificates.peer("a"))
    between = tls.between
    assert between is not None
    async with peer_door(tls) as (server, calls):
        transport = HttpTransport(f"https://{HOST}:{server.port}", site_tls(None, certificates.peer("b"), "a"))
        assert await transport.call("status", {}, N, 10.0) == N(1)
        Issuer(certificates.folder).revoke(certificates.sites["b"].certificate)
        await between.look()
        await until(lambda: not server.places.served)
        with pytest.raises(PeerError, match="revoked"):
            await transport.call("status", {}, N, 10.0)
        await transport.close()
    assert len(calls) >= 1


async def test_no_session_is_resumed(certificates: Certificates) -> None:
    """Each connection proves anew who it is: a ticket would outlive a revocation."""
    context = client_of(certificates, certificates.sites["b"])
    async with peer_door(site_tls(None, certificates.peer("a"))) as (server, _):
        reader, writer = await asyncio.open_connection(HOST, server.port, ssl=context)
        writer.write(b"GET /x HTTP/1.1\r\nhost: a\r\n\r\n")
        await asyncio.wait_for(reader.readline(), 30)
        secured = writer.get_extra_info("ssl_object")
        assert secured.version() == "TLSv1.3"
        assert not secured.session or not secured.session.has_ticket
        writer.close()
