"""Stored column values: a msgpack map {column id: value}, so that drop, add and rename of columns never touch old rows.

What always holds: `merge_values` is a pure function of its two byte strings, so both sites merge to the same bytes:
columns of the old row keep their order, new ones are appended.
"""

from __future__ import annotations

from typing import Any

import msgspec

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(dict[int, Any]).decode


def merge_values(old: bytes, changes: bytes) -> bytes:
    """The old row's columns with those of `changes` put over them."""
    row = _decode(old)
    row.update(_decode(changes))
    return _encode(row)
