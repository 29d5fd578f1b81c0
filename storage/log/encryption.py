"""Envelope encryption of a log's segments: a data key for each, wrapped by a key that its header names, seals its frames.

A sealed frame keeps its header, with the flag ENCRYPTED and the length of what is stored. Its payload is the ciphertext of
AES-256-GCM with the tag behind it, and its CRC covers these bytes. So frames are found, ordered, cut and trimmed without a key.
What always holds: a data key is made for one new segment and held by the one process that writes it; it seals each offset of
that file once, in ascending order, and the nonce is the offset: none is used twice. Who reads a segment cannot seal with its
key. The tag covers header and payload, and the nonce and the data key bind them to their place and file, so a frame that was
moved or changed is damage, whatever its CRC says. A key that is missing or does not fit is KeyUnavailable, and never damage.
Source: docs/decisions/2026-11-24-encryption-of-the-logs.md.
This module is pure.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.invariants import InvariantBroken
from storage.log.frame import HEADER_BYTES, TAG_BYTES, Flags, Frame, parse_frame, with_payload
from twinlog.errors import DamagedLog, KeyUnavailable

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES, NONCE_BYTES = 32, 12
WRAPPED_BYTES = NONCE_BYTES + KEY_BYTES + TAG_BYTES
KEY_ID_BYTES_MAX = 32
SETTINGS = "remote_log.encryption_keys (of a WAL: wal.encryption_keys)"
PLAIN = "plain"  # in the place of a key: segments that are not encrypted
KEY_ID = "[A-Za-z0-9][A-Za-z0-9._-]{0,31}"
KEY_REFERENCE = f"plain|(?!plain=){KEY_ID}=(file:.+|env:.+)"


@dataclass(frozen=True, slots=True)
class LogKey:
    """A key that wraps data keys, or PLAIN, which has no secret."""

    key_id: str
    secret: bytes = field(default=b"", repr=False)


def log_keys(references: Sequence[str], resolve: Callable[[str], str]) -> tuple[LogKey, ...]:
    """The keys that `references` name, each ID=file:PATH, ID=env:NAME, or PLAIN. `resolve`: the text behind a reference.
    Raises ValueError that names the key."""
    found: list[LogKey] = []
    for number, reference in enumerate(references, 1):
        if not re.fullmatch(KEY_REFERENCE, reference):  # it may be a secret, and is not shown
            raise ValueError(f"has no reference at place {number}")
        key_id, _, where = reference.partition("=")
        if any(key.key_id == key_id for key in found):
            raise ValueError(f"names {key_id!r} twice")
        found.append(LogKey(key_id, _secret(key_id, resolve(where)) if where else b""))
    return tuple(found)


def _secret(key_id: str, text: str) -> bytes:
    try:
        secret = b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        secret = b""
    if len(secret) != KEY_BYTES:
        way = f"`openssl rand -base64 {KEY_BYTES}` makes one"
        raise ValueError(f"has the key {key_id!r}, which is not {KEY_BYTES} bytes in base64: {way}")
    return secret


def _aesgcm(key: bytes) -> AESGCM:
    """Imported when there is a key: a command line that has none must not wait for it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


def _opened(aead: AESGCM, nonce: bytes, sealed: bytes | memoryview, bound: bytes) -> bytes | None:
    """None: the tag does not fit."""
    from cryptography.exceptions import InvalidTag

    try:
        return aead.decrypt(nonce, sealed, bound)
    except InvalidTag:
        return None


class SegmentCipher:
    """The data key of one segment. `file`: its name, for messages."""

    def __init__(self, data_key: bytes, file: str, *, seals: bool = False) -> None:
        self._aead, self._file = _aesgcm(data_key), file
        self._sealed_to: int | None = 0 if seals else None

    def seal(self, frame: Frame, offset: int) -> bytes:
        """The bytes of `frame` for its place at `offset`. HOT. Raises InvariantBroken for a place that may have been used."""
        if self._sealed_to is None or offset < self._sealed_to:
            raise InvariantBroken(
                f"{self._file}: nothing is sealed twice at one offset, nor by a reader: {frame!r} at {offset}"
            )
        self._sealed_to = offset + len(frame.data) + TAG_BYTES
        payload = frame.payload
        return with_payload(
            frame, frame.flags | Flags.ENCRYPTED, len(payload) + TAG_BYTES,
            lambda header: self._aead.encrypt(_nonce(offset), payload, _authenticated(header)),
        )

    def open(self, buffer: bytes | memoryview, at: int, offset: int) -> Frame:
        """The frame that begins at `at` in `buffer`, which is at `offset` of the file, as it was before it was sealed.

        Raises BrokenFrame and LogError as `parse_frame`; DamagedLog for a whole one that was not sealed for this place.
        """
        stored = parse_frame(buffer, at, sealed=True)
        if not stored.flags & Flags.ENCRYPTED:
            raise self._damaged(f"{stored!r} is not encrypted, and its segment is", offset)
        payload = _opened(self._aead, _nonce(offset), stored.payload, _authenticated(stored.data))
        if payload is None:
            raise self._damaged(f"{stored!r} was changed, or was put here from another place", offset)
        flags = stored.flags & ~Flags.ENCRYPTED
        return Frame(
            log=stored.log, epoch=stored.epoch, first_seq=stored.first_seq, count=stored.count, previous=stored.previous,
            timestamp=stored.timestamp, committed=stored.committed, flags=flags,
            data=with_payload(stored, flags, len(payload), lambda _: payload),
        )

    def seal_whole(self, data: bytes, bound: bytes) -> bytes:
        """The bytes of a file that is sealed at once, together with `bound`. Raises InvariantBroken for a key that was used."""
        if self._sealed_to != 0:
            raise InvariantBroken(f"{self._file}: nothing is sealed twice at one offset, nor by a reader")
        self._sealed_to = len(data) + TAG_BYTES
        return self._aead.encrypt(_nonce(0), data, bound)

    def open_whole(self, sealed: bytes, bound: bytes) -> bytes:
        """The inverse. Raises DamagedLog for a file that was changed, or was put here from another place."""
        data = _opened(self._aead, _nonce(0), sealed, bound)
        if data is None:
            raise DamagedLog(
                f"{self._file} is damaged: it was changed, or was put here from another place; restore the file from a copy",
                file=self._file, offset=0,
            )
        return data

    def _damaged(self, what: str, offset: int) -> DamagedLog:
        return DamagedLog(
            f"{self._file}: {what}, at offset {offset}: its CRC fits and its tag does not; restore the file from a copy, or"
            " rejoin this site from the other one",
            file=self._file, offset=offset,
        )


def read_frame(buffer: bytes | memoryview, at: int, cipher: SegmentCipher | None, offset: int) -> Frame:
    """The frame that begins at `at` in `buffer`, which is at `offset` of its file. Raises as `parse_frame` and `open`. HOT."""
    return parse_frame(buffer, at) if cipher is None else cipher.open(buffer, at, offset)


def _authenticated(frame: bytes) -> bytes:
    """The header without its CRC, which is there for those who have no key."""
    return frame[: HEADER_BYTES - 4]


def _nonce(offset: int) -> bytes:
    return offset.to_bytes(NONCE_BYTES, "big")


class Keyring:
    """The keys of one log: the first one writes, all of them read. None: it is plain. `setting`: where they come from, for
    messages. `new_bytes`: of a random source that nobody can guess; only who writes needs one. `remedy`: what to do about a key
    that is missing, with {key} and {setting}."""

    def __init__(
        self, setting: str = SETTINGS, keys: Sequence[LogKey] = (), new_bytes: Callable[[int], bytes] | None = None,
        remedy: str = "add {key} to the end of {setting}, and start anew",
    ) -> None:
        self._setting, self._new_bytes, self._remedy = setting, new_bytes, remedy
        self._reads_plain = not keys or any(key.key_id == PLAIN for key in keys)
        self._keys = {key.key_id: _aesgcm(key.secret) for key in keys if key.key_id != PLAIN}
        self.writes = keys[0].key_id if keys and keys[0].key_id != PLAIN else ""  # the id of the key; "": plain

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def added_bytes(self) -> int:
        """Returns how much longer a frame is in a segment that is written now."""
        return TAG_BYTES if self.writes else 0

    def wrap(self, file: str, bound: bytes) -> tuple[bytes, SegmentCipher]:
        """A new data key for a segment: wrapped, together with what its header says (`bound`), and as the cipher that seals."""
        if self._new_bytes is None:
            raise InvariantBroken("a keyring without a random source writes nothing")
        data_key, nonce = self._new_bytes(KEY_BYTES), self._new_bytes(NONCE_BYTES)
        return nonce + self._keys[self.writes].encrypt(nonce, data_key, bound), SegmentCipher(data_key, file, seals=True)

    def unwrap(self, key_id: str, wrapped: bytes, bound: bytes, file: str) -> SegmentCipher | None:
        """The cipher that reads a segment; None: it is plain, which `key_id` "" says. Raises KeyUnavailable."""
        if not key_id:
            if not self._reads_plain:
                raise self._unavailable(
                    f"{file} is not encrypted, and {self._setting} does not allow that: it may be forged; where it was"
                    f" written before encryption was begun, {self._todo(PLAIN)}, until no such file is left", PLAIN, file,
                )
            return None
        key = self.require(key_id, file)
        data_key = _opened(key, wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], bound)
        if data_key is None:
            raise self._unavailable(
                f"{file} names the key {key_id!r}, and the key of that id in {self._setting} does not open it: it is not the"
                " one that wrote it, or the header was forged", key_id, file,
            )
        return SegmentCipher(data_key, file)

    def require(self, key_id: str, file: str) -> AESGCM:
        """Raises KeyUnavailable for a key that is not here."""
        key = self._keys.get(key_id)
        if key is None:
            raise self._unavailable(
                f"{file} is encrypted with the key {key_id!r}, which {self._setting} does not have:"
                f" {self._todo(f'{key_id}=file:PATH')}; nothing is wrong with the file", key_id, file,
            )
        return key

    def _todo(self, key: str) -> str:
        return self._remedy.format(key=key, setting=self._setting)

    def _unavailable(self, message: str, key_id: str, file: str) -> KeyUnavailable:
        return KeyUnavailable(message, file=file, key_id=key_id, setting=self._setting)


NO_KEYS = Keyring()
