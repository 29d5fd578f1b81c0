"""The file of bearer tokens: what stands in it, how a token is made, and how one is found again.

What always holds: the file has the SHA-256 of each token and never a token; what is no such file is a ConfigError that names
the fault and shows no digest; a name stands in it once.
This module is pure.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from datetime import datetime
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from gateway.access.grants import parse_grants
from twinlog.decoding import decoded
from twinlog.errors import ConfigError, Conflict, InvalidInput, NotFound

PREFIX = "twinlog_"
SECRET_BYTES = 32
NAME = r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}"
_NAME = re.compile(NAME)
_INDEX_BYTES = 8
Moment = Annotated[datetime, Meta(tz=True)]


class TokenEntry(Struct, forbid_unknown_fields=True, frozen=True):
    """One token. `sha256` is of its whole text; `expires_at` null: never."""

    name: Annotated[str, Meta(pattern=f"^{NAME}$")]
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    grants: Annotated[list[str], Meta(max_length=1000)]
    created_at: Moment
    expires_at: Moment | None = None


class TokenList(Struct, forbid_unknown_fields=True, frozen=True):
    tokens: list[TokenEntry] = []


_decode = msgspec.json.Decoder(TokenList).decode


def read_tokens(data: bytes) -> TokenList:
    """Raises ConfigError."""
    found: TokenList = decoded(_decode, data, lambda what: ConfigError(f"it is no file of tokens: {what}"))
    names: set[str] = set()
    for entry in found.tokens:
        if entry.name in names:
            raise ConfigError(f"it has the token {entry.name!r} twice: give each its own name")
        names.add(entry.name)
        try:
            parse_grants(entry.grants)
        except InvalidInput as error:
            raise ConfigError(f"the token {entry.name!r}: {error.message}") from None
    return found


def write_tokens(tokens: TokenList) -> bytes:
    return msgspec.json.format(msgspec.json.encode(tokens), indent=2) + b"\n"


def digest_of(token: str) -> bytes:
    return sha256(token.encode()).digest()


def with_token(
    tokens: TokenList, name: str, token: str, grants: Iterable[str], now: datetime, expires_at: datetime | None
) -> TokenList:
    """The list with one more. Raises InvalidInput, and Conflict for a name that is there."""
    if not _NAME.fullmatch(name):
        raise InvalidInput(f"{name[:80]!r} is no name of a token: use letters, digits, and . _ @ - behind the first")
    if any(entry.name == name for entry in tokens.tokens):
        raise Conflict(f"there is a token {name!r} already: revoke it first, or take another name")
    if expires_at is not None and expires_at <= now:
        ends, at = expires_at.isoformat(timespec="seconds"), now.isoformat(timespec="seconds")
        raise InvalidInput(f"the token would end at {ends}, and it is {at}: it would never be valid")
    texts = parse_grants(grants).texts()
    entry = TokenEntry(name, digest_of(token).hex(), texts, now, expires_at)
    return TokenList([*tokens.tokens, entry])


def without_token(tokens: TokenList, name: str) -> TokenList:
    """The list without one. Raises NotFound."""
    left = [entry for entry in tokens.tokens if entry.name != name]
    if len(left) == len(tokens.tokens):
        known = ", ".join(entry.name for entry in tokens.tokens) or "none"
        raise NotFound(f"there is no token {name[:80]!r}: the file has {known}")
    return TokenList(left)


class TokenIndex:
    """Finds the entry of a token. The digests that begin alike are compared in constant time."""

    def __init__(self, tokens: TokenList) -> None:
        self._entries: dict[bytes, list[tuple[bytes, TokenEntry]]] = {}
        for entry in tokens.tokens:
            digest = bytes.fromhex(entry.sha256)
            self._entries.setdefault(digest[:_INDEX_BYTES], []).append((digest, entry))

    def find(self, token: str) -> TokenEntry | None:
        digest = digest_of(token)
        for other, entry in self._entries.get(digest[:_INDEX_BYTES], ()):
            if hmac.compare_digest(digest, other):
                return entry
        return None
