"""The keys of an OIDC issuer: from a file or an address, kept, and fetched again when they change.

What always holds: a fetch ends by its deadline and one is under way at most, however many requests need it; while it runs,
tokens of known keys are judged as before; a key that is unknown makes a fetch no more often than `RETRY_S`; what is no set of
keys, or too long, changes nothing that is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jwt
import structlog
from cryptography.exceptions import UnsupportedAlgorithm

from gateway.access.authenticator import refused
from gateway.access.fetching import fetched, issuer_client
from gateway.access.settings import OidcSettings
from twinlog.decoding import OBJECT, UNDECODABLE, decoded
from twinlog.errors import ConfigError, Unavailable, reason, words
from twinlog.wire.tls import tls_words

RETRY_S = 10.0
BYTES_MAX = 1 << 20
_log = structlog.get_logger("gateway.access.oidc")


class Key(NamedTuple):
    """`algorithm`: the one that it signs by; None: the issuer does not say."""

    public: Any
    algorithm: str | None


def read_keys(data: bytes) -> dict[str, Key]:
    """Key id -> key, of those that sign. Raises ValueError."""
    try:
        document = decoded(OBJECT, data, ValueError)
        algorithms = {str(key.get("kid")): key.get("alg") for key in document["keys"]}
        found = jwt.PyJWKSet.from_dict(document)
    except (jwt.PyJWTError, UnsupportedAlgorithm, *UNDECODABLE, AttributeError, KeyError) as error:
        raise ValueError(f"it is no set of keys (JWKS): {words(error)}") from error
    return {
        (kid := str(key.key_id)): Key(key.key, algorithms.get(kid)) for key in found.keys if key.public_key_use in (None, "sig")
    }


class Keys:
    """`transport`: for tests. `now_s`: a monotonic clock."""

    def __init__(
        self, settings: OidcSettings, now_s: Callable[[], float], transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        """Raises ConfigError for a file that cannot be read. An address is asked later."""
        self._settings, self._now_s = settings, now_s
        self._keys: dict[str, Key] = {}
        self._data = b""
        self._are_new = False  # since the last refresh
        self.fault = "the keys of the issuer were not fetched yet"  # why they cannot be read; "": they can
        self._tried_s = -RETRY_S - settings.refresh_s
        self._fetching: asyncio.Task[None] | None = None
        self._client = issuer_client(settings, transport)
        if settings.jwks_file is not None:
            try:
                self._take(_read(settings.jwks_file))
            except (OSError, ValueError) as error:
                why = reason(error) if isinstance(error, OSError) else words(error)
                raise ConfigError(f"{settings.jwks_file}, the keys of {settings.issuer}: {why}") from error
            self._are_new = False

    @property
    def are_known(self) -> bool:
        return bool(self._keys)

    async def find(self, key_id: str | None) -> Key:
        """Raises Unauthenticated for a key that the issuer does not have, Unavailable where that cannot be found out now."""
        found = self._known(key_id)
        if found is None and self._now_s() - self._tried_s >= RETRY_S:
            await self._fetch()
            found = self._known(key_id)
        elif found is None and self._fetching is not None:
            await asyncio.shield(self._fetching)
            found = self._known(key_id)
        if found is not None:
            return found
        if self.fault:
            raise Unavailable(
                "the issuer's keys cannot be fetched now, so it is not known whether this token is valid: try again later",
                retry_after_s=RETRY_S,
            )
        raise refused(f"the issuer has no key {str(key_id)[:80]!r}")

    def _known(self, key_id: str | None) -> Key | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    async def refresh(self) -> bool:
        """True: the keys changed since the last call, by this one or by a token of a key that was unknown."""
        every_s = min(RETRY_S, self._settings.refresh_s) if self.fault else self._settings.refresh_s
        if self._settings.jwks_file is not None or self._now_s() - self._tried_s >= every_s:
            await self._fetch()
        are_new, self._are_new = self._are_new, False
        return are_new

    async def _fetch(self) -> None:
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._fetched(), name="jwks")
        await asyncio.shield(self._fetching)

    async def _fetched(self) -> None:
        self._tried_s = self._now_s()
        try:
            async with asyncio.timeout(self._settings.fetch_deadline_s):
                data = await self._load()
            self._take(data)
        except (OSError, httpx.HTTPError, ValueError) as error:  # a TimeoutError is an OSError
            fault = self._told(error)
            if fault != self.fault:
                _log.error("the keys of an issuer cannot be read; those that were read last stay valid",
                           issuer=self._settings.issuer, fault=fault)
            self.fault = fault
        finally:
            self._fetching = None

    def _told(self, error: Exception) -> str:
        place = self._settings.jwks_file or self._settings.jwks_url
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return f"{place} does not answer within {self._settings.fetch_deadline_s:g} s"
        said = tls_words(error)
        return said if str(place) in said else f"{place}: {said}"

    async def _load(self) -> bytes:
        if self._settings.jwks_file is not None:
            return await asyncio.to_thread(_read, self._settings.jwks_file)
        return await fetched(self._client, self._settings.jwks_url, BYTES_MAX)

    def _take(self, data: bytes) -> None:
        if data != self._data:
            self._keys, self._data, self._are_new = read_keys(data), data, True
            _log.info("the keys of an issuer were read", issuer=self._settings.issuer, keys=sorted(self._keys))
        self.fault = ""

    async def close(self) -> None:
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait((self._fetching,))
        await self._client.aclose()


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(BYTES_MAX)
