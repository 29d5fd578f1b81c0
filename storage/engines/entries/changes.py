"""From frames to the changes of one RocksDB write batch. Current rows are asked for through a function.

What always holds: within one collection later records see what earlier ones did, without anything being written;
`ranges` are deleted first, then `changes` are put (bytes) or deleted (None), and this order gives what record by record
would have given. HOT: `add` runs once for each record that a site takes.
Source: storage/engine.py, storage/log/record.py.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from storage.engine import EpochEntry
from storage.engines.entries.layout import (
    APPLIED_KEY,
    VERSION_BYTES,
    Range,
    encode,
    epoch_key,
    history_key,
    history_range,
    pack_applied,
    request_entries,
    row_prefix,
    row_range,
    schema_key,
)
from storage.engines.meaning import Tables, epoch_entry, request_outcome, schema_change
from storage.log.frame import Frame
from storage.log.record import Record, RecordKind
from storage.rows.codec import merge_values
from twinlog.errors import LogError

# Plain ints: comparing with a member of an IntEnum costs several times as much.
_UPSERT: Final = int(RecordKind.UPSERT)
_UPDATE: Final = int(RecordKind.UPDATE)
_DELETE: Final = int(RecordKind.DELETE)
_DDL: Final = int(RecordKind.DDL)
_EPOCH_START: Final = int(RecordKind.EPOCH_START)
_MARKS: Final = frozenset(map(int, (RecordKind.MODE, RecordKind.BARRIER, RecordKind.CURSOR, RecordKind.NOOP)))


class Changes:
    """Collects the effects of frames, one `add` each, in order."""

    __slots__ = ("_dropped", "_read", "changes", "epochs", "ranges", "tables", "timestamp")

    def __init__(self, read: Callable[[bytes], bytes | None], tables: Tables, timestamp: int) -> None:
        self._read = read
        self._dropped: set[int] = set()
        self.changes: dict[bytes, bytes | None] = {}
        self.ranges: list[Range] = []
        self.tables = tables
        self.epochs: list[EpochEntry] = []
        self.timestamp = timestamp

    def add(self, frame: Frame) -> None:
        """Take one frame. Raises LogError for a record of a kind that this release does not know."""
        changes, kept = self.changes, self.tables.with_history
        version = frame.timestamp
        for record in frame.records:
            kind, table = record.kind, record.table
            if kind == _UPSERT:
                key = row_prefix(table) + record.key
                if table in kept:
                    self._keep(record, key, version)
                changes[key] = version.to_bytes(VERSION_BYTES, "big") + record.value
            elif kind == _UPDATE:
                self._update(record, version)
            elif kind == _DELETE:
                key = row_prefix(table) + record.key
                if table in kept:
                    self._keep(record, key, version)
                changes[key] = None
            elif kind == _DDL:
                self._change_schema(record.value, version)
                kept = self.tables.with_history
            elif kind == _EPOCH_START:
                self._begin_epoch(frame, version - frame.timestamp, record.value)
            elif kind not in _MARKS:
                raise LogError(f"{frame!r} has a record of kind {kind}, which this release does not know")
            if record.request:
                self._remember(frame, version - frame.timestamp, record.request)
            version += 1
        self.timestamp = max(self.timestamp, version - 1)
        changes[APPLIED_KEY] = pack_applied(frame.last_seq, frame.epoch, self.timestamp)

    def _current(self, table: int, key: bytes) -> bytes | None:
        if key in self.changes:
            return self.changes[key]
        return None if table in self._dropped else self._read(key)

    def _keep(self, record: Record, key: bytes, version: int) -> None:
        """The row that is about to be replaced goes to the history."""
        old = self._current(record.table, key)
        if old is not None:
            self.changes[history_key(record.table, record.key, version)] = old

    def _update(self, record: Record, version: int) -> None:
        key = row_prefix(record.table) + record.key
        old = self._current(record.table, key)
        if old is None:
            return  # after a rejoin the row may be gone already: the log will say so further on
        if record.table in self.tables.with_history:
            self.changes[history_key(record.table, record.key, version)] = old
        self.changes[key] = version.to_bytes(VERSION_BYTES, "big") + merge_values(old[VERSION_BYTES:], record.value)

    def _change_schema(self, value: bytes, version: int) -> None:
        number, table = schema_change(value)
        if table is not None:
            table = table.following(self.tables.by_id.get(number), version)
        had_history = number in self.tables.with_history
        self.tables = self.tables.changed(number, table)
        if table is None:
            self._dropped.add(number)
            self._delete(row_range(number))
            self.changes[schema_key(number)] = None
        else:
            self.changes[schema_key(number)] = encode(table)
        if had_history and number not in self.tables.with_history:
            self._delete(history_range(number))

    def _delete(self, gone: Range) -> None:
        """Ranges are deleted before anything is put, so what was collected for this one must go from here."""
        begin, end = gone
        for key in [key for key in self.changes if begin <= key < end]:
            del self.changes[key]
        self.ranges.append(gone)

    def _begin_epoch(self, frame: Frame, index: int, value: bytes) -> None:
        entry = epoch_entry(frame, index, value)
        self.epochs.append(entry)
        self.changes[epoch_key(entry.epoch)] = encode(entry)

    def _remember(self, frame: Frame, index: int, mark: bytes) -> None:
        key, outcome = request_outcome(frame, index, mark)
        self.changes.update(request_entries(key, outcome))
