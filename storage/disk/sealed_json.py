"""Small JSON files that people may read, sealed with a CRC32C: `{"crc32c":"xxxxxxxx","content":...}`.

What always holds: a bit that turned anywhere in the file is noticed; nothing of such a file is believed, for a digit that
turned is still a digit.
This module is pure.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

import crc32c
import msgspec

from twinlog.decoding import decoded
from twinlog.errors import DamagedLog

_T = TypeVar("_T")
_HEAD = b'{"crc32c":"%08x","content":'
_HEAD_BYTES = len(_HEAD % 0)


def seal(content: object) -> bytes:
    body = msgspec.json.encode(content)
    return _HEAD % crc32c.crc32c(body) + body + b"}"


def unseal(data: bytes, content: type[_T], path: str, remedy: str) -> _T:
    """The inverse. Raises DamagedLog, which names `path` and says `remedy`."""
    body = data[_HEAD_BYTES:-1]
    if data != _HEAD % crc32c.crc32c(body) + body + b"}":
        raise DamagedLog(f"{path} is damaged: its checksum does not fit; {remedy}", file=path, offset=0)
    found: _T = decoded(partial(msgspec.json.decode, type=content), body, lambda what: DamagedLog(
        f"{path} cannot be read: {what}; {remedy}", file=path, offset=0
    ))
    return found
