"""A wrong file is named, with what is wrong and what is wanted, before a context is made of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from gateway.tls.contexts import TlsFault, faults_of, peer_caller_context, peer_listener_context, public_context
from gateway.tls.issuing import Issuer
from gateway.tls.settings import PeerHttpSettings
from tests.gateway.tls.tls_rig import DAY, PAIR, Certificates
from twinlog.errors import ConfigError


def found(settings: PeerHttpSettings) -> dict[str, TlsFault]:
    """The faults, the same for the listener and for the calls."""
    with pytest.raises(ConfigError) as listener:
        peer_listener_context(settings)
    with pytest.raises(ConfigError) as caller:
        peer_caller_context(settings)
    assert faults_of(listener.value) == faults_of(caller.value)
    return {fault.key: fault for fault in faults_of(listener.value)}


def encrypted(certificates: Certificates) -> Path:
    key = serialization.load_pem_private_key(certificates.sites["a"].key.read_bytes(), None)
    path = certificates.folder / "encrypted.key"
    path.write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    ))
    return path


def written(certificates: Certificates, text: str) -> Path:
    path = certificates.folder / "odd.pem"
    path.write_text(text)
    return path


WRONG: dict[str, tuple[str, Callable[[Certificates], Path], str]] = {
    "no certificate file": ("certificate", lambda known: known.folder / "absent.pem", "cannot be read: No such file"),
    "a folder": ("key", lambda known: known.folder, "cannot be read: Is a directory"),
    "no PEM": ("certificate", lambda known: written(known, "hello"), "holds no certificate (PEM)"),
    "half a certificate": ("certificate", lambda known: written(known, known.ca.read_text()[:300]), "holds no certificate"),
    "expired": ("certificate", lambda known: known.expired(site="a").certificate, "expired at"),
    "of tomorrow": ("certificate", lambda known: known.of_tomorrow(site="a").certificate, "is this machine's clock right?"),
    "another key": ("key", lambda known: known.sites["b"].key, "does not fit"),
    "no key": ("key", lambda known: known.ca, "no private key"),
    "a key with a passphrase": ("key", encrypted, "encrypted: nobody is there to give a passphrase"),
    "no CA": ("ca", lambda known: known.sites["a"].key, "holds no certificate"),
    "no CRL": ("crl", lambda known: known.ca, "holds no list of revoked certificates"),
    "no CRL file": ("crl", lambda known: known.folder / "absent.pem", "cannot be read"),
}


@pytest.mark.parametrize(("key", "make", "said"), WRONG.values(), ids=WRONG)
def test_each_wrong_file_is_a_fault_of_its_key(
    certificates: Certificates, key: str, make: Callable[[Certificates], Path], said: str
) -> None:
    good = certificates.peer("a")
    faults = found(replace(good, **{key: make(certificates)}))
    assert list(faults) == [key]
    assert said in faults[key].problem
    assert faults[key].allowed


def test_every_fault_is_named_at_once(certificates: Certificates) -> None:
    absent = certificates.folder / "absent"
    faults = found(PeerHttpSettings(certificate=absent, key=absent, ca=absent, crl=absent))
    assert set(faults) == {"certificate", "key", "ca", "crl"}


def test_a_list_that_is_over_would_refuse_everybody_and_is_a_fault(certificates: Certificates) -> None:
    later = datetime.now(UTC) + timedelta(days=400)
    with pytest.raises(ConfigError, match=r"crl is .* which is over since"):
        peer_listener_context(certificates.peer("a"), later)


def test_a_certificate_is_judged_by_the_clock_of_this_machine(certificates: Certificates) -> None:
    public_context(certificates.site("a"))
    with pytest.raises(ConfigError, match=r"not valid before .*clock"):
        public_context(certificates.site("a"), datetime.now(UTC) - DAY)


def test_of_a_bundle_of_cas_some_may_be_over(certificates: Certificates) -> None:
    old = Issuer(certificates.folder / "old", now=datetime.now(UTC) - 100 * DAY)
    old.make_ca(PAIR, 10)
    bundle = certificates.folder / "bundle.pem"
    bundle.write_bytes((certificates.folder / "old" / "ca.pem").read_bytes() + certificates.ca.read_bytes())
    peer_listener_context(replace(certificates.peer("a"), ca=bundle))
