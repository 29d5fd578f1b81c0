"""The id of an operation, which is known before the site that begins it has answered.

This module is pure.
"""

from __future__ import annotations

import hashlib


def operation_of_key(key: str) -> str:
    """The id of the operation that a request with this idempotency key begins: so the journal keeps the key."""
    return "key-" + hashlib.blake2b(key.encode(), digest_size=8).hexdigest()
