"""The token by which a client says who it is: where it comes from, and to whom it is shown.

What always holds: it is sent to the addresses that the client was given, and to no other, whatever an answer names; it stands
in no request, error, log or text that shows an object, only in the bytes that go to a site; a token that could not stand in a
header is an error before anything is sent, which does not show it. A file
is read again when it changes, so that a new token needs no restart; while it cannot be read, the last one stays.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from twinlog.addresses import address_token
from twinlog.errors import ConfigError, InvalidInput, reason
from twinlog.wire.home_paths import expanded

TOKEN_VARIABLE = "TWINLOG_TOKEN"
FILE = "file:"
TOKEN_LENGTH_MAX = 16 << 10
_VISIBLE = re.compile("[!-~]+")
_LOOK_S = 1.0  # a file is looked at no more often


def token_source(address: str | Mapping[str, str], given: str | None = None) -> str:
    """Returns where the token for the pair at `address` is: what is given, TWINLOG_TOKEN, or the file of the pair; empty: there
    is none. Raises ConfigError where a file has a token itself, and not a reference."""
    if given is not None:
        return given
    return os.environ.get(TOKEN_VARIABLE) or address_token(address)


class Token:
    """`source`: the token, or `file:PATH`. `urls`: whom it is shown to. Safe to use from several threads."""

    def __init__(self, source: str, urls: Iterable[str]) -> None:
        """Raises InvalidInput, ConfigError."""
        self._origins = {_origin(url) for url in urls}
        self._file = expanded(source.removeprefix(FILE), "the token's file") if source.startswith(FILE) else None
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._looked_s = 0.0
        self._header: dict[str, str] = {} if self._file is not None else _header(source, "the token")
        if self._file is not None:
            self._look(self._file)

    def headers(self, url: str) -> Mapping[str, str]:
        """The header for a request to `url`; none where this is not the address of a site that the client was given."""
        if _origin(url) not in self._origins:
            return {}
        if self._file is not None and time.monotonic() - self._looked_s >= _LOOK_S:
            with self._lock, contextlib.suppress(ConfigError, InvalidInput):  # else a write might end with that, its fate open
                self._look(self._file)
        return self._header

    def _look(self, file: Path) -> None:
        self._looked_s = time.monotonic()
        try:
            found = file.stat()
            now = found.st_ino, found.st_size, found.st_mtime_ns
            if now == self._seen:
                return
            with file.open("rb") as opened:
                text = opened.read(TOKEN_LENGTH_MAX + 2).decode("latin-1")
        except OSError as error:
            raise ConfigError(f"the file of the token, {file}, cannot be read: {reason(error)}", path=str(file)) from error
        self._header = _header(text.removesuffix("\n").removesuffix("\r"), f"the token in {file}")
        self._seen = now


def token_for(address: str | Mapping[str, str], urls: Mapping[str, str], given: str | None = None) -> Token | None:
    """The token of a client of the pair at `address`, whose sites are at `urls`; None: it has none."""
    source = token_source(address, given)
    return Token(source, urls.values()) if source else None


def _header(token: str, what: str) -> dict[str, str]:
    if not _VISIBLE.fullmatch(token) or len(token) > TOKEN_LENGTH_MAX:
        problem = "is empty" if not token else "is too long" if len(token) > TOKEN_LENGTH_MAX else (
            "has a newline" if "\n" in token or "\r" in token else "has a blank, or a character that is not visible ASCII"
        )
        raise InvalidInput(f"{what} {problem}: nothing was sent; give the text that `twinlog token create` printed, alone")
    return {"Authorization": f"Bearer {token}"}


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
