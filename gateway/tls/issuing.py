"""Makes a CA and certificates for those who have none: of a pair's sites and of clients, and the list of revoked ones.

What always holds: keys are ECDSA on P-256, in files that only their user reads; no file is replaced unless `replace` says so; a
file is there whole or not at all. A site's certificate serves its public listener (its host names), the listener of the other
site and the calls to it (its URI, identity.py); that of a client serves a client alone.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gateway.tls.identity import site_uri
from twinlog.errors import Conflict, InvalidInput, NotFound, reason, words

CA, CA_KEY, CRL = "ca.pem", "ca.key", "crl.pem"
_BACKDATED = timedelta(minutes=5)  # clocks differ
_Name = x509.DNSName | x509.IPAddress | x509.UniformResourceIdentifier


@dataclass(frozen=True, slots=True)
class Issued:
    """Files that were written, and when the certificate is over."""

    certificate: Path
    key: Path
    ends: datetime


class Issuer:
    """A CA in a folder. `now`: of the certificates that it makes."""

    def __init__(self, folder: Path, *, replace: bool = False, now: datetime | None = None) -> None:
        self._folder, self._replace = folder, replace
        self._now = now or datetime.now(UTC)

    def make_ca(self, pair: str, days: int) -> Issued:
        """Raises Conflict where one is there already: all that it signed would be worth nothing."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _named(f"twinlog CA of {pair}")
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
        )
        builder = self._begun(name, name, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(usage, critical=True)
        issued = self._written(CA, CA_KEY, builder, key, key)
        self._write_crl([], x509.load_pem_x509_certificate(issued.certificate.read_bytes()), key)
        return issued

    def make_site(self, pair: str, site: str, hosts: Sequence[str], days: int) -> Issued:
        """`hosts`: the names and addresses at which clients reach the site. Raises NotFound, Conflict, InvalidInput."""
        names: list[_Name] = [x509.UniformResourceIdentifier(site_uri(pair, site)), *map(_host, hosts)]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._signed(f"site-{site}", f"site {site} of {pair}", names, uses, days)

    def make_client(self, name: str, days: int) -> Issued:
        """`name`: who the client is. Raises NotFound, Conflict."""
        return self._signed(f"client-{name}", name, [], [ExtendedKeyUsageOID.CLIENT_AUTH], days)

    def revoke(self, certificate: Path) -> Path:
        """Puts a certificate on the list of revoked ones, and returns the list. Raises NotFound, InvalidInput."""
        ca, key = self._ca()
        try:
            found = x509.load_pem_x509_certificate(certificate.read_bytes())
        except OSError as error:
            raise NotFound(f"{certificate} cannot be read: {reason(error)}") from error
        except ValueError as error:
            raise InvalidInput(f"{certificate} is no certificate (PEM): {words(error)}") from error
        if found.issuer != ca.subject:
            raise InvalidInput(f"{certificate} is not signed by the CA in {self._folder}: revoke it with its own")
        path = self._folder / CRL
        known = list(x509.load_pem_x509_crl(path.read_bytes())) if path.exists() else []
        if all(each.serial_number != found.serial_number for each in known):
            builder = x509.RevokedCertificateBuilder().serial_number(found.serial_number).revocation_date(self._now)
            known.append(builder.build())
        self._write_crl(known, ca, key)
        return path

    def _signed(
        self, stem: str, subject: str, names: list[_Name], uses: list[x509.ObjectIdentifier], days: int
    ) -> Issued:
        ca, ca_key = self._ca()
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._begun(_named(subject), ca.subject, key.public_key(), days, ca.not_valid_after_utc)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        return self._written(f"{stem}.pem", f"{stem}.key", builder.add_extension(authority, critical=False), key, ca_key)

    def _begun(
        self, subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int,
        latest: datetime | None = None,
    ) -> x509.CertificateBuilder:
        ends = self._now + timedelta(days=days)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(self._now - _BACKDATED)
        builder = builder.not_valid_after(ends if latest is None else min(ends, latest))
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)

    def _ca(self) -> tuple[x509.Certificate, CertificateIssuerPrivateKeyTypes]:
        """Raises NotFound, InvalidInput."""
        try:
            certificate = x509.load_pem_x509_certificate((self._folder / CA).read_bytes())
            key = serialization.load_pem_private_key((self._folder / CA_KEY).read_bytes(), None)
        except OSError as error:
            raise NotFound(
                f"{self._folder} holds no CA ({error.filename}: {reason(error)}): `twinlog certs init` makes one"
            ) from error
        except (ValueError, TypeError) as error:
            raise InvalidInput(f"{self._folder} holds no sound CA: {words(error)}") from error
        return certificate, key  # type: ignore[return-value]

    def _written(
        self, certificate: str, key_file: str, builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey,
        signer: CertificateIssuerPrivateKeyTypes,
    ) -> Issued:
        self._folder.mkdir(parents=True, exist_ok=True)
        paths = self._folder / certificate, self._folder / key_file
        for path in paths:
            if path.exists() and not self._replace:
                raise Conflict(f"{path} is there already, and nothing was written: --replace makes a new one in its place")
        signed = builder.sign(signer, hashes.SHA256())
        _write(paths[1], key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ), 0o600)
        _write(paths[0], signed.public_bytes(serialization.Encoding.PEM), 0o644)
        return Issued(paths[0], paths[1], signed.not_valid_after_utc)

    def _write_crl(
        self, revoked: Sequence[x509.RevokedCertificate], ca: x509.Certificate, key: CertificateIssuerPrivateKeyTypes
    ) -> None:
        """Valid as long as the CA: who has to renew it and forgets would stop the pair."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject).last_update(self._now - _BACKDATED)
        builder = builder.next_update(ca.not_valid_after_utc)
        for each in revoked:
            builder = builder.add_revoked_certificate(each)
        _write(self._folder / CRL, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)


def _named(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> _Name:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise InvalidInput(f"{host!r} is no host name and no address: {words(error)}") from error


def _write(path: Path, content: bytes, mode: int) -> None:
    """A reader sees the old file or the new one. The key of a certificate is written before it: who reads in between sees two
    that do not fit, and keeps what it has."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(content)
        file.flush()
        os.fsync(handle)
    new.replace(path)
