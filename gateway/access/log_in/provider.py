"""The issuer as a provider of log-ins: where its endpoints are, and the ID token that it gives for a code.

What always holds: each call has a deadline, a bound on its answer, and follows no redirect; a discovery document counts only
where it names the configured issuer and encrypted addresses; a log-in begins only where the issuer gave its document within
ASKED_S, so that nobody is sent to one that is down, and however many begin, it is asked for once in ASKED_S, and once more
after a code that got no answer; nobody is led to the log-out of one that is known to be down; a log-in that was begun ends at
the addresses of its beginning. No code, token or secret stands in an error or in the log.
Source: OpenID Connect Discovery section 4, RFC 6749 sections 2.3.1, 4.1.3 and 5.2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote_plus

import httpx
import msgspec
from msgspec import Struct

from gateway.access.authenticator import refused
from gateway.access.fetching import answer_to, fetched, issuer_client
from gateway.access.settings import LogInSettings, OidcSettings, is_protected
from gateway.logs import BoundedWarnings
from twinlog.decoding import decoded, or_none
from twinlog.errors import TwinlogError, Unavailable
from twinlog.wire.tls import tls_words

DISCOVERY = "/.well-known/openid-configuration"
ASKED_S = 5.0  # between two questions for the document
DISCOVERY_BYTES_MAX, TOKEN_BYTES_MAX, ID_TOKEN_LENGTH_MAX = 256 << 10, 256 << 10, 16 << 10
_OR_TOKEN = "or log in with a token"
_BASIC, _POST = "client_secret_basic", "client_secret_post"


class Endpoints(NamedTuple):
    """`in_form`: the secret goes into the form, because the issuer takes it nowhere else. `end_session_url`: where people log
    out there; empty: unknown."""

    authorization_url: str
    token_url: str
    in_form: bool = False
    end_session_url: str = ""


class _Discovery(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    end_session_endpoint: str | None = None
    token_endpoint_auth_methods_supported: tuple[str, ...] = (_BASIC,)


class _Tokens(Struct, frozen=True):
    id_token: str


class _Refusal(Struct, frozen=True):
    error: str


_read_discovery = msgspec.json.Decoder(_Discovery).decode
_read_tokens = msgspec.json.Decoder(_Tokens).decode
_read_refusal = msgspec.json.Decoder(_Refusal).decode


class Provider:
    """`now_s`: a monotonic clock; `transport`: for tests."""

    def __init__(
        self, settings: OidcSettings, login: LogInSettings, now_s: Callable[[], float],
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises ConfigError."""
        self.issuer, self.login, self._now_s = settings.issuer, login, now_s
        self._name = f"the provider {shown_name(settings.issuer)}"
        self.fault = ""  # why no log-in could begin last; empty: it could
        self._is_silent = False  # a code got no answer, and nothing was heard since
        self._deadline_s = settings.fetch_deadline_s
        self._client = issuer_client(settings, transport)
        self._warnings = BoundedWarnings("gateway.access.log_in", now_s)
        self._asking = asyncio.Lock()
        self._asked_s = -ASKED_S  # when it answered last, or did not
        self._is_asked = not login.authorization_url
        self._endpoints = Endpoints(login.authorization_url, login.token_url)

    async def endpoints(self) -> Endpoints:
        """Returns where a log-in begins. Raises Unavailable where the issuer does not say that now."""
        await self.look()
        if self.fault:
            raise Unavailable(
                f"{self._name} cannot be reached from this gateway now, or its answer is not that of this issuer, so nobody "
                f"can log in there: `twinlog status` says why; try again in a moment, {_OR_TOKEN}", retry_after_s=ASKED_S,
            )
        return self._endpoints

    @property
    def is_down(self) -> bool:
        """True from a failed call on until one has an answer: nobody is led there."""
        return bool(self.fault) or self._is_silent

    @property
    def end_session_url(self) -> str:
        """Returns where people log out there; empty where the issuer did not say so, or is down as far as is known."""
        return "" if self.is_down else self._endpoints.end_session_url

    async def look(self) -> None:
        """Asks the issuer where its endpoints are, unless it was asked a moment ago or the configuration says it. All who wait
        share an answer, also that of an issuer which hangs."""
        if not self._is_asked:
            return
        async with self._asking:
            if self._now_s() - self._asked_s >= ASKED_S:
                await self._discover()
                self._asked_s = self._now_s()

    async def _discover(self) -> None:
        url = self.issuer.rstrip("/") + DISCOVERY
        try:
            async with asyncio.timeout(self._deadline_s):
                data = await fetched(self._client, url, DISCOVERY_BYTES_MAX)
            self._endpoints, self.fault = self._read(decoded(_read_discovery, data, ValueError)), ""
            self._is_silent = False
        except (OSError, httpx.HTTPError, ValueError) as error:  # a TimeoutError is an OSError
            fault = f"{url}: {self._told(error)}"
            if fault != self.fault:
                self._warnings.warn("an issuer does not say where its log-in is", issuer=self.issuer, fault=fault)
            self.fault = fault

    def _read(self, found: _Discovery) -> Endpoints:
        if found.issuer != self.issuer:
            raise ValueError(f"it is of the issuer {found.issuer[:200]!r}, and not of {self.issuer!r}")
        for url in (found.authorization_endpoint, found.token_endpoint):
            if not is_protected(url):
                raise ValueError(f"it names {url[:200]!r}, which is no https address")
        methods, leave = found.token_endpoint_auth_methods_supported, found.end_session_endpoint or ""
        in_form = _BASIC not in methods and _POST in methods
        return Endpoints(found.authorization_endpoint, found.token_endpoint, in_form, leave if is_protected(leave) else "")

    def _told(self, error: Exception) -> str:
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return f"no answer within {self._deadline_s:g} s"
        return tls_words(error)[:300]

    # ---- a code
    async def exchange(self, code: str, verifier: str) -> str:
        """Returns the ID token for a code, not verified. Raises Unauthenticated, Unavailable."""
        endpoints, login = self._endpoints, self.login
        form = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": login.redirect_url, "code_verifier": verifier,
        }
        auth: httpx.Auth | None = None
        if login.client_secret and not endpoints.in_form:
            auth = httpx.BasicAuth(quote_plus(login.client_id), quote_plus(login.client_secret))
        else:
            form["client_id"] = login.client_id
            if login.client_secret:
                form["client_secret"] = login.client_secret
        request = self._client.build_request("POST", endpoints.token_url, data=form, headers={"accept": "application/json"})
        try:
            async with asyncio.timeout(self._deadline_s):
                status, body = await answer_to(self._client, request, TOKEN_BYTES_MAX, auth=auth)
            self._is_silent = False
        except (OSError, httpx.HTTPError, ValueError) as error:
            self._is_silent, self._asked_s = True, self._now_s() - ASKED_S
            raise self._trouble(
                f"{endpoints.token_url}: {self._told(error)}",
                f"{self._name} does not answer this gateway, so your log-in could not be completed: try again in a moment",
            ) from error
        if status != 200:
            raise self._refusal(status, body)
        tokens = or_none(_read_tokens, body)
        if tokens is None or not tokens.id_token.isascii() or len(tokens.id_token) > ID_TOKEN_LENGTH_MAX:
            raise self._trouble("its answer to a code has no ID token", self._odd())
        return tokens.id_token

    def _refusal(self, status: int, body: bytes) -> TwinlogError:
        found = or_none(_read_refusal, body)
        error = "" if found is None else found.error[:80]
        said = f"it answers {status}" + (f", {error!r}" if error else "")
        if error == "invalid_grant":
            return refused(
                f"{self.issuer} does not take the code: {said}",
                f"{self._name} does not take this log-in any more, as one that took too long: begin it again",
            )
        if error in ("invalid_client", "unauthorized_client") or status == 401:
            return self._trouble(said, (
                f"{self._name} refuses this gateway as its client: whoever runs this pair looks at client_id and "
                "client_secret in [access.oidc.login]; meanwhile"
            ), "log in with a token")
        return self._trouble(said, self._odd())

    def _odd(self) -> str:
        return f"{self._name} did not complete the log-in, and the log of this gateway says why: try again in a moment"

    def _trouble(self, fault: str, said: str, way_out: str = _OR_TOKEN) -> Unavailable:
        self._warnings.warn("an issuer did not complete a log-in", issuer=self.issuer, fault=fault)
        return Unavailable(f"{said}, {way_out}", retry_after_s=ASKED_S)

    async def close(self) -> None:
        await self._client.aclose()


def shown_name(issuer: str) -> str:
    """Returns how people read of an issuer: its address, without the scheme."""
    return issuer.partition("://")[2] or issuer
