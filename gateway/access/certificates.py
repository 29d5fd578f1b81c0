"""Client certificates: the names in them that the configuration knows, and what it grants to each.

What always holds: the chain was proven by TLS before a request is read, and only the certificate that TLS shows counts, no
header; a name says its kind (`uri:`, `dns:`, `cn:`), so that one kind never passes for another; the certificate of a site is
no client's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cryptography import x509
from cryptography.x509.oid import NameOID

from gateway.access.authenticator import Presented, Proof, refused
from gateway.access.caller import Caller
from gateway.access.grants import joined, parse_grants
from gateway.tls.contexts import UNREADABLE
from twinlog.errors import words

SITE_SCHEME = "twinlog://"  # of the SAN URI by which a site is known
KINDS = ("uri:", "dns:", "cn:")


class Certificates:
    """`grants`: name with its kind -> what it grants, as texts joined by blanks."""

    def __init__(self, grants: Mapping[str, str]) -> None:
        """Raises InvalidInput."""
        self.apply(grants)

    def apply(self, grants: Mapping[str, str]) -> None:
        """Other grants from now on. Raises InvalidInput."""
        self._grants = {name: parse_grants(texts.split()) for name, texts in grants.items()}

    async def authenticate(self, presented: Presented) -> Proof | None:
        if not presented.certificates or presented.bearer or not self._grants:
            return None
        try:
            certificate = x509.load_pem_x509_certificate(presented.certificates[0].encode())
            names = list(_names(certificate))
        except UNREADABLE as error:
            raise refused(f"the client certificate cannot be read: {words(error)}") from error
        if any(name.startswith(f"uri:{SITE_SCHEME}") for name in names):
            raise refused("the certificate is a site's, which is no client")
        known = [name for name in names if name in self._grants]
        if not known:
            raise refused(f"no name of the certificate is configured: {', '.join(names)[:300] or 'it has none'}")
        grants = [self._grants[name] for name in known]
        return Proof(Caller(known[0], "certificate", joined(grants)), certificate.not_valid_after_utc.timestamp())

    async def refresh(self) -> bool:
        return False

    async def close(self) -> None: ...


def _names(certificate: x509.Certificate) -> Iterator[str]:
    try:
        other = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        yield from (f"uri:{name}" for name in other.get_values_for_type(x509.UniformResourceIdentifier))
        yield from (f"dns:{name}" for name in other.get_values_for_type(x509.DNSName))
    except x509.ExtensionNotFound:
        pass
    for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME):
        yield f"cn:{attribute.value!s}"
