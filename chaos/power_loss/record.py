"""The record that recorded.c writes: one entry for each call that changed a recorded file, or made it durable.

What always holds: entries stand in an order in which their callers continued; the last one may still be on its way into the
file, and is left for the next time.
This module is pure.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

WROTE, SIZED, ALLOCATED, SYNCED, MADE_FILE, MADE_FOLDER, LINKED, RENAMED, GONE = range(1, 10)
_HEAD = struct.Struct("<QQQQqIIII")


@dataclass(frozen=True, slots=True)
class Entry:
    """A call. `at`: the offset of a write, or a length. `other`: the second path of LINKED and RENAMED."""

    kind: int
    began_ns: int
    ended_ns: int
    inode: int = 0
    at: int = 0
    is_synced: bool = False
    path: str = ""
    other: str = ""
    data: bytes = b""


def parse(record: bytes) -> tuple[list[Entry], int]:
    """Returns the entries that are whole, and how many bytes they take. Raises ValueError for what is no record."""
    at, entries = 0, []
    while at + _HEAD.size <= len(record):
        size, began_ns, ended_ns, inode, place, kind, is_synced, path_bytes, other_bytes = _HEAD.unpack_from(record, at)
        data_at = at + _HEAD.size + path_bytes + other_bytes
        if not WROTE <= kind <= GONE or at + size < data_at:
            raise ValueError(f"byte {at} of the record begins no entry")
        if at + size > len(record):
            break
        path = record[at + _HEAD.size : data_at]
        entries.append(Entry(
            kind, began_ns, ended_ns, inode, place, bool(is_synced), _name(path[:path_bytes]), _name(path[path_bytes:]),
            record[data_at : at + size],
        ))
        at += size
    return entries, at


def _name(path: bytes) -> str:
    return path.decode(errors="surrogateescape").rstrip("/")
