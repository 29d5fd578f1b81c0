"""One write of an engine, whatever the database behind it is: what goes, what is put, and the state that holds then.

What always holds: what goes (`emptied`, `dropped`, `without_history`) goes first, then the rest is put; so one write means the
same to every engine. Only the engine itself knows under which keys, or in which tables, it puts anything.
Source: storage/engine.py.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from storage.engine import EngineState, EpochEntry, RequestOutcome, Table

VERSION_BYTES = 8
_NONE: Mapping[Any, Any] = MappingProxyType({})

Packed = bytes  # a row as engines, digests and audits take it: its version (VERSION_BYTES, big endian), then its stored value
Rows = Mapping[int, Mapping[bytes, Packed | None]]  # table: key: the row, or None where it goes


class EngineWrite(NamedTuple):
    """`state` holds once all of it is written.

    `emptied`: everything goes but notes, watermark and the progress of a base. `dropped`: tables that lose their rows,
    `without_history`: tables that lose their replaced versions. `history`: for each table, by key and by the version of the
    record that replaced it, the row as it was. `schemas`: tables as they are from now on, None where one is gone. `requests`:
    idempotency keys with what they answered, in order: one that comes twice counts by its last.
    """

    state: EngineState
    emptied: bool = False
    dropped: Collection[int] = ()
    without_history: Collection[int] = ()
    rows: Rows = _NONE
    history: Mapping[int, Mapping[tuple[bytes, int], Packed]] = _NONE
    schemas: Mapping[int, Table | None] = _NONE
    epochs: Sequence[EpochEntry] = ()
    requests: Sequence[tuple[str, RequestOutcome]] = ()


def pack_row(version: int, value: bytes) -> Packed:
    """The row as one byte string."""
    return version.to_bytes(VERSION_BYTES, "big") + value


def version_of(packed: Packed) -> int:
    """The hybrid timestamp at the beginning of a packed row."""
    return int.from_bytes(packed[:VERSION_BYTES], "big")
