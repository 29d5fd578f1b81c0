"""The file of tokens on the disk: written whole and for its owner alone, and read again when it changes.

What always holds: a reader sees the file before a change or behind it, and so does whoever finds it after a crash; its mode
is 0600; two commands at once lose neither's change; while the file cannot be read, or is none, what it said last stays valid
and the log says so each time that the file changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import structlog

from gateway.access.authenticator import Presented, Proof, refused, unknown
from gateway.access.caller import Caller
from gateway.access.grants import parse_grants
from gateway.access.tokens import PREFIX, SECRET_BYTES, TokenIndex, TokenList, read_tokens, write_tokens
from twinlog.errors import ConfigError, reason

OWNER_ONLY = 0o600
BYTES_MAX = 16 << 20
_log = structlog.get_logger("gateway.access.tokens")
Identity = tuple[int, int, int, int]  # of a file as it was read


def new_token() -> str:
    """256 random bits, behind a prefix by which scanners of secrets know it."""
    return PREFIX + secrets.token_urlsafe(SECRET_BYTES)


def load_tokens(path: Path) -> TokenList:
    """Raises ConfigError that names the file."""
    return _read(path)[0]


def _read(path: Path) -> tuple[TokenList, Identity]:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {reason(error)}; `twinlog token create --tokens {path}` makes it", path=str(path)
        ) from error
    if len(data) > BYTES_MAX:
        raise ConfigError(f"{path} is longer than {BYTES_MAX} bytes: it is no file of tokens", path=str(path))
    try:
        return read_tokens(data), _identity(found)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error.message}", path=str(path)) from error


def _identity(found: os.stat_result) -> Identity:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextlib.contextmanager
def changing(path: Path) -> Iterator[tuple[TokenList, Callable[[TokenList], None]]]:
    """The tokens, and a function that stores others, with nobody else changing the file meanwhile. A missing file is empty.

    Raises ConfigError.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise ConfigError(f"the folder {path.parent} cannot be opened: {reason(error)}", path=str(path)) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tokens = load_tokens(path) if path.exists() else TokenList()
        yield tokens, lambda changed: _store(path, folder, changed)
    finally:
        os.close(folder)


def _store(path: Path, folder: int, tokens: TokenList) -> None:
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), OWNER_ONLY)
            with contextlib.suppress(FileNotFoundError):
                before = path.stat()
                if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)  # the site reads it, whoever changes it
            file.write(write_tokens(tokens))
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise ConfigError(f"{path} cannot be written: {reason(error)}", path=str(path)) from error
    os.fsync(folder)


class TokenFile:
    """The authenticator of bearer tokens. `wall_s` is the clock that ends them."""

    def __init__(self, path: Path, wall_s: Callable[[], float]) -> None:
        """Raises ConfigError."""
        self._path, self._wall_s = path, wall_s
        self.fault = ""  # why the file cannot be read again
        tokens, self._seen = _read(path)
        self._tokens, self._index = tokens, TokenIndex(tokens)
        self._warn_of_mode()

    async def authenticate(self, presented: Presented) -> Proof | None:
        if not presented.bearer.startswith(PREFIX):
            return None
        entry = self._index.find(presented.bearer)
        if entry is None:
            raise unknown("no token of the file has this text")
        until_s = None if entry.expires_at is None else entry.expires_at.timestamp()
        if until_s is not None and until_s <= self._wall_s():
            raise refused(f"the token {entry.name!r} expired")
        return Proof(Caller(entry.name, "token", parse_grants(entry.grants)), until_s)

    async def refresh(self) -> bool:
        found = await asyncio.to_thread(self._changed)
        if found is None:
            return False
        self._tokens, self._index = found, TokenIndex(found)
        _log.info("the tokens were read again", file=str(self._path), tokens=len(found.tokens))
        return True

    def shown(self) -> dict[str, Any]:
        """The file, and for each name its grants and its end; for the audit trail, so without a digest of a token."""
        known = {
            entry.name: {"grants": entry.grants, "created_at": entry.created_at, "expires_at": entry.expires_at}
            for entry in self._tokens.tokens
        }
        return {"file": str(self._path), "known": known}

    def _changed(self) -> TokenList | None:
        """Returns the tokens of the file as it is now; None: as before, or nothing that can be read."""
        try:
            now = _identity(self._path.stat())
            if now == self._seen:
                return None  # also a file that was found faulty, and is as it was
            tokens, self._seen = _read(self._path)
            self._warn_of_mode()
            self.fault = ""
            return tokens
        except OSError as error:
            now, fault = (0, 0, 0, 0), reason(error)
        except ConfigError as error:
            fault = error.message
        if now != self._seen:
            self._seen = now
            said = "the tokens cannot be read again; those that were read last stay valid"
            self.fault = f"{said}: {fault}" if str(self._path) in fault else f"{said}: {self._path}: {fault}"
            _log.error(
                "the tokens cannot be read again; those that were read last stay valid", file=str(self._path), fault=fault
            )
        return None

    def _warn_of_mode(self) -> None:
        mode = self._path.stat().st_mode & 0o777
        if mode & 0o077:
            _log.warning("others than the owner may read the file of tokens: chmod 600", file=str(self._path), mode=f"{mode:o}")

    async def close(self) -> None: ...
