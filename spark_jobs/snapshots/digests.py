"""Digests of ranges of keys: what two sites compare before they compare rows.

What always holds: the digest of a range is BLAKE2b-128 over all its rows in key order, each as the lengths of key and packed
row (4 bytes each, big endian), the key, the packed row. So two ranges of equal digests hold the same keys, versions and
stored bytes, whatever engines they come from and however they were read.
This module is pure.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

DIGEST_BYTES = 16
RANGE_ROWS = 8192
RANGE_BYTES = 8 << 20
_lengths = struct.Struct(">II").pack


class Digest(NamedTuple):
    """The digest of the `rows` rows with keys in `[start, end)`. `size` is the sum over keys and packed rows, in bytes."""

    start: bytes
    end: bytes | None
    rows: int
    size: int
    digest: bytes


def digest_of(rows: Iterable[tuple[bytes, bytes]], start: bytes, end: bytes | None) -> Digest:
    """The digest of `rows`, which are all of `[start, end)`."""
    (one,) = cut_digests(rows, start, end, rows_max=None, bytes_max=None)
    return one


def cut_digests(
    rows: Iterable[tuple[bytes, bytes]], start: bytes, end: bytes | None, rows_max: int | None = RANGE_ROWS,
    bytes_max: int | None = RANGE_BYTES,
) -> Iterator[Digest]:
    """HOT. The digests of `rows`, which are all of `[start, end)`, in ranges that follow each other without a gap: at least
    one, each of at most `rows_max` rows, and ended by the row that brings it to `bytes_max`.
    """
    count = size = 0
    hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
    update = hashed.update
    for key, packed in rows:
        if count == rows_max or (bytes_max is not None and size >= bytes_max):
            yield Digest(start, key, count, size, hashed.digest())
            start, count, size = key, 0, 0
            hashed = hashlib.blake2b(digest_size=DIGEST_BYTES)
            update = hashed.update
        update(_lengths(len(key), len(packed)) + key + packed)
        count += 1
        size += len(key) + len(packed)
    yield Digest(start, end, count, size, hashed.digest())
