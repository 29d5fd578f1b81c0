"""Envelope encryption of the files of a backup: with the keys and the ciphers of the logs (storage/log/encryption.py).

    magic 8 | key id 32 | wrapped data key 60 | ciphertext and tag

What always holds: each file has a data key of its own, which seals that file alone and once, so that no nonce repeats; the name
of the file is bound to it, so one that was moved or changed is damage; a key that is missing or does not fit is
KeyUnavailable, which names its id. The proof of a manifest is such a file around the digest of the rest: who has no key
can neither make a manifest nor change one.
This module is pure.
"""

from __future__ import annotations

import hashlib

from msgspec.structs import replace

from storage.backup.manifest import Manifest, encode_manifest, manifest_name
from storage.log.encryption import KEY_ID_BYTES_MAX, WRAPPED_BYTES, Keyring
from twinlog.errors import DamagedLog

MAGIC = b"TWLBAK01"
_FRONT = len(MAGIC) + KEY_ID_BYTES_MAX
_HEAD = _FRONT + WRAPPED_BYTES


def seal_file(keys: Keyring, name: str, data: bytes) -> bytes:
    """The bytes of the file `name`; `data` itself where `keys` write plain."""
    if not keys.writes:
        return data
    front = MAGIC + keys.writes.encode("ascii").ljust(KEY_ID_BYTES_MAX, b"\0")
    wrapped, cipher = keys.wrap(name, front + name.encode())
    return front + wrapped + cipher.seal_whole(data, front)


def open_file(keys: Keyring, key_id: str, name: str, data: bytes, where: str) -> bytes:
    """The inverse, of a file whose manifest names `key_id`; "": it is plain. Raises KeyUnavailable, DamagedLog."""
    if not key_id:
        keys.unwrap("", b"", b"", where)
        return data
    front = MAGIC + key_id.encode("ascii").ljust(KEY_ID_BYTES_MAX, b"\0")
    if data[:_FRONT] != front or len(data) < _HEAD:
        raise DamagedLog(f"{where} is damaged: it is not encrypted with the key {key_id!r}, and its manifest says so",
                         file=where, offset=0)
    cipher = keys.unwrap(key_id, data[_FRONT:_HEAD], front + name.encode(), where)
    assert cipher is not None
    return cipher.open_whole(data[_HEAD:], front)


def proven(keys: Keyring, manifest: Manifest) -> Manifest:
    """`manifest` with its proof, where it is encrypted."""
    if not manifest.key_id:
        return manifest
    return replace(manifest, proof=seal_file(keys, manifest_name(manifest.number), _digest(manifest)))


def check_proof(keys: Keyring, manifest: Manifest, where: str) -> None:
    """Raises KeyUnavailable, DamagedLog for a manifest that was changed by one who has no key."""
    if open_file(keys, manifest.key_id, manifest_name(manifest.number), manifest.proof, where) != (
        _digest(manifest) if manifest.key_id else manifest.proof
    ):
        raise DamagedLog(f"{where} was changed: its proof does not fit; take it from a copy", file=where, offset=0)


def sealed_schemas(keys: Keyring, base_id: str, schemas: dict[int, bytes]) -> dict[int, bytes]:
    """Seals the tables of a base, by id: their names and columns are as secret as rows."""
    return {table: seal_file(keys, f"{base_id}/{table}", schema) for table, schema in schemas.items()}


def opened_schemas(keys: Keyring, manifest: Manifest, where: str) -> dict[int, bytes]:
    """The inverse. Raises KeyUnavailable, DamagedLog."""
    base = manifest.base
    return {
        table: open_file(keys, manifest.key_id, f"{base.id}/{table}", schema, where) for table, schema in base.schemas.items()
    }


def _digest(manifest: Manifest) -> bytes:
    return hashlib.sha256(encode_manifest(replace(manifest, proof=b""))).digest()
