"""The certificates and tokens of a secured pair, as docs/security.md has an operator make, renew and revoke them.

What always holds: clients, operators and monitors show what the handbook gives them, and no more: one token for the clients of
the workload, and one for commands, monitors and the harness's looks; what is renewed or revoked is looked at from outside until
the sites go by it, and where they do not in time that is a find.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from gateway.access.token_file import OWNER_ONLY, changing, new_token
from gateway.access.tokens import with_token, without_token
from gateway.demo.files import CERTS, IDENTITY, PAIR, TOKEN, TOKENS
from gateway.tls.issuing import CA, Issuer
from twinlog.errors import TwinlogError
from twinlog.sites import Sites
from twinlog.wire.tls import Tls

HOSTS = ("127.0.0.1", "localhost")
DAYS = 30
OF_OPERATORS = ("operator", "auditor", "metrics", "reader:*")
OF_CLIENTS = ("reader:*", "writer:*", "admin:*")
CLIENTS = "clients"
READ_AGAIN_S = 2.0  # clients look at theirs each second
IN_EFFECT_S = 10.0  # sites look at theirs each second; a machine that is busy may take longer
POLL_S = 0.1


class Credentials:
    """`folder`: of the pair; made at once, for who asks the sites needs them. `broken`: what did not take effect."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._certs = folder, folder / CERTS
        self._made = 0  # tokens of the clients
        self.broken: list[str] = []
        issuer = Issuer(self._certs)
        issuer.make_ca(PAIR, DAYS)
        for site in ("a", "b"):
            issuer.make_site(PAIR, site, HOSTS, DAYS)
        _give(folder / TOKEN, self._granted(IDENTITY, OF_OPERATORS))
        self._client_token = self._granted_to_clients()
        _give(self._client_file, self._client_token)

    @property
    def tls(self) -> Tls:
        return Tls(ca=str(self._certs / CA))

    @property
    def of_operators(self) -> str:
        return f"file:{self._folder / TOKEN}"

    @property
    def of_clients(self) -> str:
        return f"file:{self._client_file}"

    @property
    def _client_file(self) -> Path:
        return self._folder / f"{CLIENTS}.token"

    def _granted(self, name: str, grants: tuple[str, ...]) -> str:
        token = new_token()
        with changing(self._folder / TOKENS) as (tokens, store):
            store(with_token(tokens, name, token, grants, datetime.now(UTC), None))
        return token

    def _granted_to_clients(self) -> str:
        self._made += 1
        return self._granted(f"{CLIENTS}-{self._made}", OF_CLIENTS)

    # ---- under load
    def renew(self, site: str, url: str) -> str:
        """A new certificate and key of a site. Returns what it shows then, in a few words."""
        issued = Issuer(self._certs, replace=True).make_site(PAIR, site, HOSTS, DAYS)
        wanted = x509.load_pem_x509_certificate(issued.certificate.read_bytes()).serial_number
        if _until(lambda: self._shown_at(url) == wanted):
            return f"site {site} shows its new certificate"
        return self._find(f"Site {site} does not show its new certificate {IN_EFFECT_S:.0f} s after it was there.")

    def change_token(self, urls: Mapping[str, str]) -> str:
        """A new token for the clients, and the old one is revoked. Returns what came of it."""
        old, name = self._client_token, f"{CLIENTS}-{self._made}"
        self._client_token = self._granted_to_clients()
        if left := self._sites_where(_takes, self._client_token, urls):
            return self._find(f"Site {' and '.join(left)} refuses a token {IN_EFFECT_S:.0f} s after it was granted.")
        _give(self._client_file, self._client_token)
        time.sleep(READ_AGAIN_S)  # what a client holds is not seen from outside: an operator waits like this, too
        with changing(self._folder / TOKENS) as (tokens, store):
            store(without_token(tokens, name))
        if left := self._sites_where(_refuses, old, urls):
            return self._find(f"Site {' and '.join(left)} takes a token {IN_EFFECT_S:.0f} s after it was revoked.")
        return f"{name} is revoked: {' and '.join(urls)} refuse it"

    def _sites_where(self, wanted: Callable[[Sites, str], bool], token: str, urls: Mapping[str, str]) -> list[str]:
        """Returns the sites that do not come to do with the token what is wanted."""
        asked = {site: Sites({site: url}, tls=self.tls, token=token) for site, url in urls.items()}
        try:
            return [site for site, one in asked.items() if not _until(partial(wanted, one, site))]
        finally:
            for one in asked.values():
                one.close()

    def _shown_at(self, url: str) -> int:
        """The serial number of the certificate at an address; 0: nobody shows one."""
        context = ssl.create_default_context(cafile=self._certs / CA)
        place = urlsplit(url)
        try:
            with (
                socket.create_connection((str(place.hostname), place.port or 0), POLL_S * 20) as plain,
                context.wrap_socket(plain, server_hostname=str(place.hostname)) as secured,
            ):
                found = secured.getpeercert(binary_form=True)
        except OSError:
            return 0
        return x509.load_der_x509_certificate(found).serial_number if found else 0

    def _find(self, told: str) -> str:
        self.broken.append(told)
        return told


def _give(file: Path, token: str) -> None:
    """Puts a token where those who show it read it."""
    new = file.with_name(f".{file.name}")
    new.touch(OWNER_ONLY)
    new.write_text(f"{token}\n", encoding="ascii")
    new.replace(file)


def _takes(asked: Sites, site: str) -> bool:
    try:
        asked.ask(site, "GET", "/v1/cluster")
    except TwinlogError:
        return False
    return True


def _refuses(asked: Sites, site: str) -> bool:
    try:
        asked.ask(site, "GET", "/v1/cluster")
    except TwinlogError as error:
        return error.code == "unauthenticated"
    return False


def _until(holds: Callable[[], bool]) -> bool:
    """False: it does not hold within IN_EFFECT_S."""
    until_s = time.monotonic() + IN_EFFECT_S
    while not holds():
        if time.monotonic() > until_s:
            return False
        time.sleep(POLL_S)
    return True
