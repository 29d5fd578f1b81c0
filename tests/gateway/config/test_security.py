"""A listener that others reach is protected, or the file says that it is not; and every file of TLS is right at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.loading import load_operator_config, load_site_config
from gateway.config.security import config_warnings, is_loopback
from gateway.tls.issuing import Issuer
from tests.gateway.config.test_config import GOOD, faults, write
from twinlog.errors import ConfigError

TLS = """
[http.tls]
certificate = "certs/site-a.pem"
key = "certs/site-a.key"
"""
PEER = """
[peer_http]
certificate = "certs/site-a.pem"
key = "certs/site-a.key"
ca = "certs/ca.pem"
crl = "certs/crl.pem"
"""
OPEN = '[http]\nhost = "0.0.0.0"\nadvertised_url = "https://gateway-a.example.org:8401"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    issuer = Issuer(tmp_path / "certs")
    issuer.make_ca("shop", 30)
    issuer.make_site("shop", "a", ["127.0.0.1"], 30)
    issuer.make_site("shop", "b", ["127.0.0.1"], 30)
    return tmp_path


def test_sound_files_of_tls_are_no_fault_and_https_is_the_address(folder: Path) -> None:
    config = load_site_config(write(folder, GOOD + TLS + PEER), {})
    assert config.http.url == "https://127.0.0.1:8401"
    assert config.peer_http is not None
    assert config.peer_http.ca == folder / "certs/ca.pem"


def test_every_wrong_file_is_a_fault_of_its_key(folder: Path) -> None:
    text = (TLS + PEER).replace("site-a.key", "site-b.key").replace("crl.pem", "ca.pem")
    found = faults(write(folder, GOOD + text))
    assert set(found) == {"http.tls.key", "peer_http.key", "peer_http.crl"}
    assert "does not fit" in found["http.tls.key"]["problem"]


@pytest.mark.parametrize(("text", "missing"), [
    (OPEN, "[http.tls] and [access] and [peer_http] are missing"), (OPEN + TLS, "[access] and [peer_http] are missing"),
    (OPEN + PEER, "[http.tls] and [access] are missing"), (OPEN + TLS + PEER, "[access] is missing"),
], ids=["nothing", "tls", "peer", "both"])
def test_a_listener_that_others_reach_needs_all_three(folder: Path, text: str, missing: str) -> None:
    found = faults(write(folder, GOOD + text))
    assert list(found) == ["http.host"]
    assert missing in found["http.host"]["problem"]
    assert "insecure = true" in found["http.host"]["allowed"]
    config = load_site_config(write(folder, "insecure = true\n" + GOOD + text), {})
    assert "insecure" in [warning["key"] for warning in config_warnings(config)]


@pytest.mark.parametrize("raw", ['"yes"', "1", '"true"'])
def test_insecure_is_true_or_false(folder: Path, raw: str) -> None:
    assert set(faults(write(folder, f"insecure = {raw}\n{GOOD}"))) == {"insecure"}
    assert load_site_config(write(folder, GOOD), {"TWINLOG_INSECURE": "true"}).insecure is True


@pytest.mark.parametrize(("host", "is_local"), [
    ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True), ("LOCALHOST", True),
    ("0.0.0.0", False), ("::", False), ("10.0.0.1", False), ("gateway", False), ("localhost.example.org", False), ("", False),
])
def test_what_only_this_machine_reaches(host: str, is_local: bool) -> None:
    assert is_loopback(host) is is_local


def test_a_key_that_others_may_read_is_a_warning(folder: Path) -> None:
    path = write(folder, GOOD + TLS + PEER)
    assert [warning["key"] for warning in config_warnings(load_site_config(path, {}))] == ["peer.url", "peer.advertised_url"]
    (folder / "certs/site-a.key").chmod(0o640)
    found = {warning["key"]: warning["problem"] for warning in config_warnings(load_site_config(path, {}))}
    assert "mode 0640" in found["http.tls.key"]
    assert "chmod 600" in found["peer_http.key"]


def test_two_listeners_need_two_ports(folder: Path) -> None:
    assert set(faults(write(folder, GOOD + TLS + PEER + "port = 8401\n"))) == {"peer_http.port"}


def test_an_operators_certificate_comes_with_its_key(folder: Path) -> None:
    path = folder / "operator.toml"
    sites = '[sites.a]\nurl = "https://x:1"\n[sites.b]\nurl = "https://y:1"\n'
    path.write_text(f'pair = "shop"\nca = "certs/ca.pem"\ncertificate = "certs/site-a.pem"\nkey = "certs/site-a.key"\n{sites}')
    config = load_operator_config(path, {})
    assert (config.ca, config.key) == (folder / "certs/ca.pem", folder / "certs/site-a.key")
    (folder / "certs/site-a.key").chmod(0o644)
    assert [warning["key"] for warning in config_warnings(config)] == ["key"]
    for text, keys in (
        ('certificate = "certs/site-a.pem"\n', ["key"]), ('ca = "absent.pem"\n', ["ca"]),
        ('ca = "certs/site-a.key"\ncertificate = "certs/site-a.pem"\nkey = "certs/site-b.key"\n', ["ca", "certificate"]),
    ):
        path.write_text(f'pair = "shop"\n{text}{sites}')
        with pytest.raises(ConfigError) as caught:
            load_operator_config(path, {})
        found = caught.value.fields["faults"]
        assert isinstance(found, list)
        assert [fault["key"] for fault in found] == keys
