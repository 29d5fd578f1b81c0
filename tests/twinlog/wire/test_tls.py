"""TLS of both clients over real TCP: whom they trust, what they show, and that every refusal is in plain words."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gateway.tls.issuing import Issued, Issuer
from tests.gateway.tls.tls_rig import HOST, Certificates
from twinlog import AsyncClient, Client, Patience
from twinlog.addresses import resolve_tls
from twinlog.errors import ConfigError, Unavailable
from twinlog.wire.async_http import AsyncHttp
from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.http import Http
from twinlog.wire.tls import Tls, client_context, tls_words

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
Ask = Callable[[str, Tls], Reply | Broken]


def blocking(url: str, tls: Tls) -> Reply | Broken:
    http = Http(tls)
    try:
        return http.send(SiteRequest(url, "GET", {}, b"", 20.0))
    finally:
        http.close()


def asynchronous(url: str, tls: Tls) -> Reply | Broken:
    async def ask() -> Reply | Broken:
        http = AsyncHttp(tls=tls)
        try:
            return await http.send(SiteRequest(url, "GET", {}, b"", 20.0))
        finally:
            await http.close()

    return asyncio.run(ask())


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certs")


@pytest.fixture(params=[blocking, asynchronous], ids=["blocking", "asynchronous"])
def ask(request: pytest.FixtureRequest) -> Ask:
    return request.param  # type: ignore[no-any-return]


@contextmanager
def site(context: ssl.SSLContext | None) -> Iterator[str]:
    """A site that answers OK on one connection after the other, and its address without the scheme."""
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            with suppress(TimeoutError):
                plain, _ = listener.accept()
                plain.settimeout(20)
                with plain, suppress(OSError):
                    _answer(plain, context)

    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"{HOST}:{listener.getsockname()[1]}"
        finally:
            stop.set()
            thread.join()


def _answer(plain: socket.socket, context: ssl.SSLContext | None) -> None:
    """A refused client may read why: a reset would take it away."""
    if context is None:
        plain.recv(65536)
        plain.sendall(OK)
        return
    secured = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
    try:
        secured.do_handshake()
    except ssl.SSLError:
        with socket.socket(fileno=secured.detach()) as left:
            left.shutdown(socket.SHUT_WR)
            while left.recv(65536):
                pass
        return
    with secured:
        secured.recv(65536)
        secured.sendall(OK)
        secured.recv(1)


def shown(certificates: Certificates, which: str = "a") -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.sites[which].certificate, certificates.sites[which].key)
    return context


def test_a_site_of_a_trusted_ca_is_asked(certificates: Certificates, ask: Ask) -> None:
    with site(shown(certificates)) as address:
        found = ask(f"https://{address}/x", certificates.trusted)
    assert isinstance(found, Reply)
    assert found.content == b"ok"


WRONG: dict[str, tuple[Callable[[Certificates], object], str]] = {
    "expired": (lambda known: known.expired(site="a"), "has expired: renew it; or is the clock right on both machines?"),
    "of tomorrow": (lambda known: known.of_tomorrow(site="a"), "is not valid yet: is the clock right on both machines?"),
    "another CA": (Certificates.of_another_ca, "signed by a CA that is not trusted here"),
    "self-signed": (Certificates.self_signed, "self-signed"),
    "another host": (lambda known: known.sites.__getitem__("elsewhere"), "for another"),
}


@pytest.mark.parametrize(("make", "said"), WRONG.values(), ids=WRONG)
def test_a_site_with_a_wrong_certificate_is_sent_nothing(
    certificates: Certificates, ask: Ask, make: Callable[[Certificates], object], said: str
) -> None:
    certificates.sites["elsewhere"] = Issuer(certificates.folder, replace=True).make_site("x", "b", ["elsewhere.example"], 9)
    made = make(certificates)
    assert isinstance(made, Issued)
    certificates.sites["a"] = made
    with site(shown(certificates)) as address:
        found = ask(f"https://{address}/x", certificates.trusted)
    assert isinstance(found, Broken)
    assert said in found.detail
    assert not found.sent


def test_without_a_ca_of_its_own_a_client_trusts_the_systems(certificates: Certificates, ask: Ask) -> None:
    with site(shown(certificates)) as address:
        found = ask(f"https://{address}/x", Tls())
    assert isinstance(found, Broken)
    assert "give that CA as `ca`" in found.detail


def test_a_site_that_speaks_plain_http(certificates: Certificates, ask: Ask) -> None:
    with site(None) as address:
        found = ask(f"https://{address}/x", certificates.trusted)
    assert isinstance(found, Broken)
    assert "does not speak TLS (plain HTTP?)" in found.detail


def test_a_site_that_wants_a_certificate(certificates: Certificates, ask: Ask) -> None:
    context = shown(certificates)
    context.load_verify_locations(certificates.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    own = certificates.sites["b"]
    with site(context) as address:
        without = ask(f"https://{address}/x", certificates.trusted)
        with_one = ask(
            f"https://{address}/x", certificates.trusted._replace(certificate=str(own.certificate), key=str(own.key))
        )
    assert isinstance(without, Broken)
    assert "wants a certificate, and none was shown" in without.detail
    assert isinstance(with_one, Reply)


def test_both_clients_take_the_ca_of_the_address_file_of_the_argument_and_of_the_environment(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error of a client without one names the remedy."""
    patience = Patience(deadline_s=3.0, probe_timeout_s=3.0)
    with (
        site(shown(certificates)) as address, Client({"a": f"https://{address}"}, patience) as client,
        pytest.raises(Unavailable, match="give that CA as `ca`"),
    ):
        client.cluster()
    (tmp_path / "operator.toml").write_text(
        'pair = "shop"\nca = "certs/ca.pem"\n[sites.a]\nurl = "https://x:1"\n[sites.b]\nurl = "https://x:2"\n'
    )
    assert resolve_tls(str(tmp_path / "operator.toml")) == Tls(str(certificates.ca))
    monkeypatch.setenv("TWINLOG_CA", str(certificates.ca))
    assert resolve_tls({"a": "https://x:1"}) == resolve_tls("https://x:1,https://x:2") == Tls(str(certificates.ca))
    monkeypatch.setenv("TWINLOG_CA", "/elsewhere.pem")
    assert resolve_tls(str(tmp_path / "operator.toml")) == Tls("/elsewhere.pem")

    async def made() -> None:
        async with AsyncClient({"a": "https://x:1"}, tls=certificates.trusted):
            pass

    asyncio.run(made())
    with pytest.raises(ConfigError, match=r"/elsewhere\.pem is no file of CA certificates"):
        AsyncClient({"a": "https://x:1"})


def test_a_wrong_file_is_named(certificates: Certificates) -> None:
    own = certificates.sites["a"]
    for tls, said in (
        (Tls("/absent.pem"), "/absent.pem is no file of CA certificates"), (Tls(str(own.key)), "no file of CA certificates"),
        (Tls("", str(own.certificate), str(certificates.sites["b"].key)), "cannot be used: .*the key that belongs to it"),
    ):
        with pytest.raises(ConfigError, match=said):
            client_context(tls)


def test_other_errors_keep_their_own_words() -> None:
    assert tls_words(ConnectionResetError("gone")) == "gone"
    assert tls_words(TimeoutError()) == "no answer in time"
    assert tls_words(ssl.SSLError(1, "odd")) != ""
