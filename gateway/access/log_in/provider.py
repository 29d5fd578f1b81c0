"""The issuer as a provider of log-ins: where its endpoints are, and the ID token that it gives for a code.

What always holds: each call has a deadline, a bound on its answer, and follows no redirect; a discovery document counts only
where it names the configured issuer and encrypted addresses; an old one stays valid while no new one can be had, and one that
cannot be had is asked for no more often than RETRY_S. No code, token or secret stands in an error or in the log.
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
from twinlog.errors import TwinlogError, Unavailable, words

DISCOVERY = "/.well-known/openid-configuration"
DISCOVERY_S, RETRY_S = 3600.0, 5.0
DISCOVERY_BYTES_MAX, TOKEN_BYTES_MAX, ID_TOKEN_LENGTH_MAX = 256 << 10, 256 << 10, 16 << 10
_OR_TOKEN = "or log in with a token"
_BASIC, _POST = "client_secret_basic", "client_secret_post"


class Endpoints(NamedTuple):
    """`in_form`: the secret goes into the form, because the issuer takes it nowhere else."""

    authorization_url: str
    token_url: str
    in_form: bool = False


class _Discovery(Struct, frozen=True):
    issuer: str
    authorization_endpoint: str
    token_endpoint: str
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
        self._deadline_s = settings.fetch_deadline_s
        self._client = issuer_client(settings, transport)
        self._warnings = BoundedWarnings("gateway.access.log_in", now_s)
        self._asking = asyncio.Lock()
        self._asked_s, self._is_due_s = -RETRY_S, 0.0
        self._endpoints: Endpoints | None = None
        if login.authorization_url:
            self._endpoints, self._is_due_s = Endpoints(login.authorization_url, login.token_url), float("inf")

    async def endpoints(self) -> Endpoints:
        """Raises Unavailable where they are not known and cannot be found out now."""
        if self._now_s() >= self._is_due_s or self._endpoints is None:
            async with self._asking:
                if self._now_s() >= self._is_due_s and self._now_s() - self._asked_s >= RETRY_S:
                    await self._discover()
        if self._endpoints is None:
            raise Unavailable(
                f"{self._name} cannot be reached from this gateway now, so nobody can log in there: try again in a moment, "
                f"{_OR_TOKEN}", retry_after_s=RETRY_S,
            )
        return self._endpoints

    async def _discover(self) -> None:
        url = self.issuer.rstrip("/") + DISCOVERY
        self._asked_s = self._now_s()
        try:
            async with asyncio.timeout(self._deadline_s):
                data = await fetched(self._client, url, DISCOVERY_BYTES_MAX)
            self._endpoints, self.fault = self._read(decoded(_read_discovery, data, ValueError)), ""
            self._is_due_s = self._now_s() + DISCOVERY_S
        except (OSError, httpx.HTTPError, ValueError) as error:  # a TimeoutError is an OSError
            self.fault = f"{url}: {self._told(error)}"
            self._warnings.warn("an issuer does not say where its log-in is", issuer=self.issuer, fault=self.fault)

    def _read(self, found: _Discovery) -> Endpoints:
        if found.issuer != self.issuer:
            raise ValueError(f"it is of the issuer {found.issuer[:200]!r}, and not of {self.issuer!r}")
        for url in (found.authorization_endpoint, found.token_endpoint):
            if not is_protected(url):
                raise ValueError(f"it names {url[:200]!r}, which is no https address")
        methods = found.token_endpoint_auth_methods_supported
        return Endpoints(found.authorization_endpoint, found.token_endpoint, _BASIC not in methods and _POST in methods)

    def _told(self, error: Exception) -> str:
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return f"no answer within {self._deadline_s:g} s"
        return words(error)[:300]

    # ---- a code
    async def exchange(self, code: str, verifier: str) -> str:
        """Returns the ID token for a code, not verified. Raises Unauthenticated, Unavailable."""
        endpoints, login = await self.endpoints(), self.login
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
        except (OSError, httpx.HTTPError, ValueError) as error:
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
        return Unavailable(f"{said}, {way_out}", retry_after_s=RETRY_S)

    async def close(self) -> None:
        await self._client.aclose()


def shown_name(issuer: str) -> str:
    """Returns how people read of an issuer: its address, without the scheme."""
    return issuer.partition("://")[2] or issuer
