"""Client certificates: a name of the kind that is configured, only from the connection, and never a site's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gateway.access.authenticator import Presented
from gateway.access.certificates import Certificates
from gateway.access.gate import certificates_of
from tests.gateway.access.rig import NOW
from twinlog.errors import InvalidInput, Unauthenticated

GRANTS = {"uri:spiffe://acme/orders": "writer:orders", "dns:reports.acme": "reader:*", "cn:ann": "operator"}
KEY = ec.generate_private_key(ec.SECP256R1())


def pem(common_name: str, uris: Sequence[str] = (), dns: Sequence[str] = ()) -> str:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])
    built = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key()).serial_number(7)
        .not_valid_before(NOW).not_valid_after(NOW + timedelta(days=1))
    )
    if uris or dns:
        names = [*map(x509.UniformResourceIdentifier, uris), *map(x509.DNSName, dns)]
        built = built.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return built.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize(("chain", "name", "grants"), [
    ([pem("ann")], "cn:ann", ["operator"]),
    ([pem("", ["spiffe://acme/orders"])], "uri:spiffe://acme/orders", ["writer:orders"]),
    ([pem("ann", ["spiffe://acme/orders"], ["reports.acme"])], "uri:spiffe://acme/orders",
     ["operator", "reader:*", "writer:orders"]),
    ([pem("nobody", (), ["reports.acme"]), pem("ann")], "dns:reports.acme", ["reader:*"]),
])
async def test_a_name_that_is_configured(chain: list[str], name: str, grants: list[str]) -> None:
    proof = await Certificates(GRANTS).authenticate(Presented("", tuple(chain)))
    assert proof is not None
    assert (proof.caller.name, proof.caller.kind, proof.caller.grants.texts()) == (name, "certificate", grants)
    assert proof.until_s == (NOW + timedelta(days=1)).timestamp()
    assert not proof.caller.is_site


@pytest.mark.parametrize(("chain", "why"), [
    ([pem("bob")], "cn:bob"),
    ([pem("", (), ["ann"])], "dns:ann"),  # a name of one kind is none of another
    ([pem("reports.acme")], "cn:reports.acme"),
    ([pem("bob"), pem("ann")], "cn:bob"),  # the issuer's names are not the client's
    ([pem("")], "it has none"),
    ([pem("ann", ["twinlog://shop/b"])], "a site's"),
    (["no certificate"], "cannot be read"),
])
async def test_what_is_not_known_is_refused(chain: list[str], why: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await Certificates(GRANTS).authenticate(Presented("", tuple(chain)))
    assert why in refused.value.refusal


async def test_a_token_counts_before_a_certificate() -> None:
    certificates = Certificates(GRANTS)
    assert await certificates.authenticate(Presented("twinlog_x", (pem("ann"),))) is None
    assert await certificates.authenticate(Presented("", ())) is None


def test_grants_that_are_none_stop_the_start() -> None:
    with pytest.raises(InvalidInput, match="is no grant"):
        Certificates({"cn:ann": "root"})


@pytest.mark.parametrize("scope", [
    {}, {"extensions": None}, {"extensions": {"tls": {}}}, {"extensions": {"tls": {"client_cert_chain": None}}},
    {"headers": [(b"x-client-cert", pem("ann").encode())]},
])
def test_a_certificate_is_the_connections_alone(scope: dict[str, object]) -> None:
    assert certificates_of(scope) == ()


def test_the_chain_of_the_connection() -> None:
    assert certificates_of({"extensions": {"tls": {"client_cert_chain": ["A", "B"]}}}) == ("A", "B")
