"""An operator reads why TLS refuses one of the two ends: in the words of every command that asks a site, over a real
listener."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import pytest

from gateway.tls.issuing import Issued, Issuer
from gateway.tls.settings import HttpTlsSettings
from tests.gateway.tls.tls_rig import HOST, PAIR, Certificates, public_door, site_tls
from twinlog.errors import PeerError
from twinlog.sites import Sites
from twinlog.wire.tls import Tls

LOOK_S = 30.0


def elsewhere(certificates: Certificates) -> Issued:
    return Issuer(certificates.folder, replace=True).make_site(PAIR, "a", ["elsewhere.example"], 30)


def own(certificates: Certificates) -> Issued:
    return certificates.sites["a"]


class Refusal(NamedTuple):
    """`shown`: the certificate of the listener; None: it speaks plain HTTP."""

    shown: Callable[[Certificates], Issued] | None
    scheme: str
    said: str


REFUSALS = {
    "expired": Refusal(Certificates.expired, "https", "has expired: renew it"),
    "not yet valid": Refusal(Certificates.of_tomorrow, "https", "is not valid yet"),
    "of another CA": Refusal(Certificates.of_another_ca, "https", "is signed by a CA that is not trusted here"),
    "self-signed": Refusal(Certificates.self_signed, "https", "is self-signed"),
    "of another name": Refusal(elsewhere, "https", "is for another address: use the name in it"),
    "plain to a TLS port": Refusal(own, "http", "this port speaks TLS, and plain HTTP came: write https://"),
    "TLS to a plain port": Refusal(None, "https", "does not speak TLS (plain HTTP?): write http://"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_an_operator_reads_why_a_site_is_refused(
    certificates: Certificates, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tls.contexts._content_problem", lambda *given: "")  # a site does not start with such a file
    shown = None if refusal.shown is None else refusal.shown(certificates)
    tls = site_tls() if shown is None else site_tls(HttpTlsSettings(certificate=shown.certificate, key=shown.key))
    async with public_door(tls) as (server, _):
        message = await _refused(f"{refusal.scheme}://{HOST}:{server.port}", certificates.trusted)
    assert refusal.said in message


async def test_an_operator_reads_that_the_certificate_shown_is_revoked(certificates: Certificates) -> None:
    ann = Issuer(certificates.folder).make_client("ann", 30)
    Issuer(certificates.folder).revoke(ann.certificate)
    shown = own(certificates)
    settings = HttpTlsSettings(
        certificate=shown.certificate, key=shown.key, client_ca=certificates.ca, client_crl=certificates.crl
    )
    async with public_door(site_tls(settings)) as (server, _):
        url, trusted = f"https://{HOST}:{server.port}", str(certificates.ca)
        message = await _refused(url, Tls(trusted, str(ann.certificate), str(ann.key)))
    assert "the other end says that the certificate shown here is revoked" in message


async def _refused(url: str, tls: Tls) -> str:
    """Returns the error of a command that asks the site at `url`."""
    sites = Sites({"a": url}, look_s=LOOK_S, tls=tls)
    try:
        with pytest.raises(PeerError) as caught:
            await asyncio.to_thread(sites.ask, "a", "GET", "/v1/cluster")
    finally:
        sites.close()
    return str(caught.value)
