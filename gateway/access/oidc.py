"""JSON Web Tokens of an OIDC issuer.

What always holds: a token counts only with a signature by a key of the issuer, in an algorithm with a public key (`none` and
those with a shared secret are refused whatever the token says), for this audience, by this issuer, and within its time; what
it grants stands in the configuration of the site, by the values of one claim, and never in the token itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import jwt

from gateway.access.authenticator import Presented, Proof, refused
from gateway.access.caller import Caller
from gateway.access.grants import Grants, joined, parse_grants
from gateway.access.jwks import Keys
from gateway.access.settings import OidcSettings
from twinlog.decoding import UNDECODABLE
from twinlog.errors import words

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_S = 30.0  # by which the issuer's clock and this site's may differ
NAME_LENGTH_MAX = 128


class Claims(NamedTuple):
    """A token whose signature, issuer and audience hold. `said`: all that it says; `until_s`: its end on the wall clock, with
    the leeway."""

    subject: str
    said: dict[str, Any]
    until_s: float


class Oidc:
    def __init__(
        self, settings: OidcSettings, now_s: Callable[[], float], transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Raises InvalidInput, ConfigError."""
        self._keys = Keys(settings, now_s, transport)
        self.apply(settings)

    def apply(self, settings: OidcSettings) -> None:
        """Another claim and other grants from now on; the issuer and its keys stay. Raises InvalidInput."""
        self._settings = settings
        self._grants = {value: parse_grants(texts.split()) for value, texts in settings.grants.items()}

    async def authenticate(self, presented: Presented) -> Proof | None:
        if presented.bearer.count(".") != 2:
            return None
        claims = await self.claims_of(presented.bearer, self._settings.audience)
        return Proof(self.caller_of(claims), claims.until_s)

    async def claims_of(self, token: str, audience: str, *, ends: bool = True) -> Claims:
        """Returns what a token of the issuer for `audience` says. `ends`: its own end counts; else whoever asks has another.

        Raises Unauthenticated, and Unavailable where the issuer's key cannot be found out now."""
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in ALGORITHMS:
                raise refused(f"a token signed by {str(algorithm)[:20]!r} is never taken")
            if key_id is not None and not isinstance(key_id, str):
                raise refused("the key id of the token is no text")
            key = await self._keys.find(key_id)
            if key.algorithm not in (None, algorithm):
                raise refused(f"the key {str(key_id)[:80]!r} signs by {key.algorithm}, and the token says {algorithm}")
            claims = jwt.decode(
                token, key.public, algorithms=[algorithm], audience=audience, issuer=self._settings.issuer, leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_exp": ends},
            )
            until_s = float(claims["exp"]) + LEEWAY_S
        except (jwt.PyJWTError, *UNDECODABLE) as error:  # the library reads JSON by itself
            raise refused(f"the token of the issuer does not hold: {words(error)[:200]}") from error
        name = claims["sub"]
        if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= NAME_LENGTH_MAX:
            raise refused("the subject of the token is no text of printable characters, or too long")
        return Claims(name, claims, until_s)

    def caller_of(self, claims: Claims) -> Caller:
        """Returns the caller with what the configuration grants to the values of the claim."""
        return Caller(claims.subject, "oidc", self._granted(claims.said.get(self._settings.claim)))

    def _granted(self, values: object) -> Grants:
        listed = [values] if isinstance(values, str) else values if isinstance(values, list) else []
        held = [self._grants[value] for value in listed if isinstance(value, str) and value in self._grants]
        return joined(held)

    @property
    def fault(self) -> str:
        """Says why the issuer's keys cannot be read; an empty text where they can."""
        said = f"the keys of {self._settings.issuer} cannot be read; those that were read last stay valid"
        return f"{said}: {self._keys.fault}" if self._keys.fault else ""

    async def refresh(self) -> bool:
        return await self._keys.refresh()

    async def close(self) -> None:
        await self._keys.close()
