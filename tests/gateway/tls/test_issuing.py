"""Certificates for those who have none: what they are good for, who may read their keys, and that nothing is lost to a slip."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509

from gateway.tls.issuing import Issuer
from tests.gateway.tls.tls_rig import PAIR
from twinlog.errors import Conflict, InvalidInput, NotFound


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names(path: Path) -> list[str]:
    extension = certificate(path).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in extension.value]


def test_keys_are_their_users_alone(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "new")
    made = [issuer.make_ca(PAIR, 10), issuer.make_site(PAIR, "a", ["h"], 10), issuer.make_client("ann", 10)]
    assert [stat.S_IMODE(each.key.stat().st_mode) for each in made] == [0o600] * 3
    assert not list((tmp_path / "new").glob("*.new"))


def test_a_sites_certificate_has_its_uri_and_the_names_of_its_hosts(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    issuer.make_ca(PAIR, 10)
    made = issuer.make_site(PAIR, "a", ["gateway-a.example.org", "10.0.0.1", "::1"], 10)
    assert names(made.certificate) == ["twinlog://shop/a", "gateway-a.example.org", "10.0.0.1", "::1"]


def test_nothing_outlives_its_ca(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, now=datetime(2026, 1, 1, tzinfo=UTC))
    ca = issuer.make_ca(PAIR, 10)
    assert issuer.make_site(PAIR, "a", ["h"], 1000).ends == ca.ends == datetime(2026, 1, 11, tzinfo=UTC)


def test_nothing_is_replaced_by_a_slip(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    ca = issuer.make_ca(PAIR, 10)
    made = issuer.make_site(PAIR, "a", ["h"], 10)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for again in (lambda: issuer.make_ca(PAIR, 10), lambda: issuer.make_site(PAIR, "a", ["h"], 10)):
        with pytest.raises(Conflict, match="nothing was written"):
            again()
    made.certificate.unlink()
    with pytest.raises(Conflict, match=r"site-a\.key is there already"):
        issuer.make_site(PAIR, "a", ["h"], 10)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == {
        path: content for path, content in before.items() if path != made.certificate
    }
    Issuer(tmp_path, replace=True).make_site(PAIR, "a", ["h"], 10)
    assert ca.key.read_bytes() == before[ca.key]


def test_revoked_certificates_stay_on_the_list_once_each(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    issuer.make_ca(PAIR, 10)
    made = [issuer.make_client(name, 10) for name in ("ann", "bob")]
    for each in (*made, made[0]):
        path = issuer.revoke(each.certificate)
    listed = [each.serial_number for each in x509.load_pem_x509_crl(path.read_bytes())]
    assert listed == [certificate(each.certificate).serial_number for each in made]


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    issuer, other = Issuer(tmp_path / "x"), Issuer(tmp_path / "y")
    with pytest.raises(NotFound, match="twinlog certs init"):
        issuer.make_site(PAIR, "a", ["h"], 10)
    issuer.make_ca(PAIR, 10)
    other.make_ca("pear", 10)
    stranger = other.make_client("ann", 10).certificate
    with pytest.raises(InvalidInput, match="is not signed by the CA"):
        issuer.revoke(stranger)
    with pytest.raises(NotFound, match="cannot be read"):
        issuer.revoke(tmp_path / "absent")
    with pytest.raises(InvalidInput, match="no certificate"):
        issuer.revoke(tmp_path / "x" / "ca.key")
    with pytest.raises(InvalidInput, match="no host name"):
        issuer.make_site(PAIR, "a", ["zürich.example"], 10)
    (tmp_path / "x" / "ca.key").write_text("no key")
    with pytest.raises(InvalidInput, match="no sound CA"):
        issuer.make_site(PAIR, "a", ["h"], 10)
