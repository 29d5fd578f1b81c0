"""Keys for tests: made of their ids, so that the same id is the same key everywhere."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

from storage.log.encryption import PLAIN, Keyring, LogKey

SETTING = "remote_log.encryption_keys"


def log_key(key_id: str) -> LogKey:
    return LogKey(key_id, b"" if key_id == PLAIN else hashlib.sha256(key_id.encode()).digest())


def ring(*key_ids: str, setting: str = SETTING, new_bytes: Callable[[int], bytes] = secrets.token_bytes) -> Keyring:
    return Keyring(setting, [log_key(key_id) for key_id in key_ids], new_bytes)
