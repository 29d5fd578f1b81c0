"""JSON Web Tokens of an OIDC issuer.

What always holds: a token counts only with a signature by a key of the issuer, in an algorithm with a public key (`none` and
those with a shared secret are refused whatever the token says), for this audience, by this issuer, and within its time; what
it grants stands in the configuration of the site, by the values of one claim, and never in the token itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
SHOWN_MAX = 5  # values of the claim, to whoever is granted nothing by them


class Claims(NamedTuple):
    """A token whose signature, issuer and audience hold. `name`: by the claim that names people; `said`: all that it says;
    `until_s`: its end on the wall clock, with the leeway."""

    name: str
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
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError) as error:  # the signature holds
            raise refused(f"the token of the issuer does not hold: {words(error)[:200]} ({_whose(token)})") from error
        except (jwt.PyJWTError, *UNDECODABLE) as error:  # the library reads JSON by itself
            raise refused(f"the token of the issuer does not hold: {words(error)[:200]}") from error
        name = claims.get(self._settings.name)
        if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name) <= NAME_LENGTH_MAX:
            raise refused(f"the claim {self._settings.name!r} of the token is no text of printable characters, or too long")
        return Claims(name, claims, until_s)

    def caller_of(self, claims: Claims) -> Caller:
        """Returns the caller with what the configuration grants to the values of the claim."""
        return Caller(claims.name, "oidc", self._granted(_texts(_value(claims.said, self._settings.claim))))

    def _granted(self, values: list[str]) -> Grants:
        return joined([self._grants[value] for value in values if value in self._grants])

    def why_nothing_is_granted(self, claims: Claims) -> str:
        """Returns what the claim has, for whoever compares it with the configuration."""
        claim = self._settings.claim
        value = _value(claims.said, claim)
        if value is None:
            return f"the token has no claim {claim!r}"
        texts = _texts(value)
        if not texts:
            return f"the claim {claim!r} has no text"
        more = f" and {len(texts) - SHOWN_MAX} more" if len(texts) > SHOWN_MAX else ""
        shown = ", ".join(repr(text[:NAME_LENGTH_MAX]) for text in texts[:SHOWN_MAX])
        return f"the claim {claim!r} has {shown}{more}, and none of these is in [access.oidc.grants]"

    @property
    def fault(self) -> str:
        """Says why the issuer's keys cannot be read; an empty text where they can."""
        if not self._keys.fault:
            return ""
        none = "none were read yet, so nobody is known by it"
        kept = "those that were read last stay valid" if self._keys.are_known else none
        return f"the keys of {self._settings.issuer} cannot be read; {kept}: {self._keys.fault}"

    async def refresh(self) -> bool:
        return await self._keys.refresh()

    async def close(self) -> None:
        await self._keys.close()


def _whose(token: str) -> str:
    """Returns the issuer and the audience of a signed token, for whoever compares that with the configuration."""
    said = jwt.decode(token, options={"verify_signature": False})
    return f"it is of {str(said.get('iss'))[:200]!r}, for {str(said.get('aud'))[:200]!r}"


def _value(said: Mapping[str, Any], claim: str) -> object:
    """Returns a claim of the token; a name with dots that is none of its claims is a way into them (`realm_access.roles`)."""
    if claim in said:
        return said[claim]
    found: object = said
    for name in claim.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _texts(value: object) -> list[str]:
    listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return [text for text in listed if isinstance(text, str)]
