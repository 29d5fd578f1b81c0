"""From frames to one write of an engine, whatever the database behind it is. It asks a function for the rows as they are.

What always holds: within one collection later records see what earlier ones did, without anything being written; what goes goes
first, then the rest is put, and this order gives what record by record would have given. HOT: `add` runs once for each record
that a site takes.
Source: storage/engine.py, storage/log/record.py.
This module is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final

from storage.engine import EngineState, EpochEntry, RequestOutcome, Table
from storage.engines.entries.write import VERSION_BYTES, EngineWrite, Packed
from storage.engines.meaning import epoch_entry, request_outcome, schema_change
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

ReadRow = Callable[[int, bytes], Packed | None]  # table, key -> the row as it is before this write


class Effects:
    """Collects the effects of frames on what `state` says, one `add` each, in order; `write` is all of them."""

    __slots__ = (
        "_dropped", "_epoch", "_epochs", "_history", "_read", "_requests", "_rows", "_schemas", "_seq", "_state", "_tables",
        "_timestamp", "_without_history",
    )

    def __init__(self, read: ReadRow, state: EngineState) -> None:
        self._read, self._state = read, state
        self._seq, self._epoch, self._timestamp, self._tables = state.seq, state.epoch, state.timestamp, state.tables
        self._dropped: set[int] = set()
        self._without_history: set[int] = set()
        self._rows: defaultdict[int, dict[bytes, Packed | None]] = defaultdict(dict)
        self._history: defaultdict[int, dict[tuple[bytes, int], Packed]] = defaultdict(dict)
        self._schemas: dict[int, Table | None] = {}
        self._epochs: list[EpochEntry] = []
        self._requests: list[tuple[str, RequestOutcome]] = []

    def add(self, frame: Frame) -> None:
        """Take one frame. Raises LogError for a record of a kind that this release does not know."""
        rows, kept = self._rows, self._tables.with_history
        version = frame.timestamp
        for record in frame.records:
            kind, table = record.kind, record.table
            if kind == _UPSERT:
                if table in kept:
                    self._keep(record, version)
                rows[table][record.key] = version.to_bytes(VERSION_BYTES, "big") + record.value
            elif kind == _UPDATE:
                self._update(record, version)
            elif kind == _DELETE:
                if table in kept:
                    self._keep(record, version)
                rows[table][record.key] = None
            elif kind == _DDL:
                self._change_schema(record.value, version)
                kept = self._tables.with_history
            elif kind == _EPOCH_START:
                self._epochs.append(epoch_entry(frame, version - frame.timestamp, record.value))
            elif kind not in _MARKS:
                raise LogError(f"{frame!r} has a record of kind {kind}, which this release does not know")
            if record.request:
                self._requests.append(request_outcome(frame, version - frame.timestamp, record.request))
            version += 1
        self._timestamp = max(self._timestamp, version - 1)
        self._seq, self._epoch = frame.last_seq, frame.epoch

    def write(self) -> EngineWrite:
        """Everything that was collected."""
        epochs = (*self._state.epochs, *self._epochs) if self._epochs else self._state.epochs
        after = EngineState(self._seq, self._epoch, self._timestamp, None, self._tables, epochs)
        return EngineWrite(  # by position: names would cost a single write half a microsecond
            after, False, self._dropped, self._without_history, self._rows, self._history, self._schemas, self._epochs,
            self._requests,
        )

    def _current(self, table: int, key: bytes) -> Packed | None:
        collected = self._rows.get(table)
        if collected is not None and key in collected:
            return collected[key]
        return None if table in self._dropped else self._read(table, key)

    def _keep(self, record: Record, version: int) -> None:
        """The row that is about to be replaced goes to the history."""
        old = self._current(record.table, record.key)
        if old is not None:
            self._history[record.table][record.key, version] = old

    def _update(self, record: Record, version: int) -> None:
        table, key = record.table, record.key
        old = self._current(table, key)
        if old is None:
            return  # after a rejoin the row may be gone already: the log will say so further on
        if table in self._tables.with_history:
            self._history[table][key, version] = old
        self._rows[table][key] = version.to_bytes(VERSION_BYTES, "big") + merge_values(old[VERSION_BYTES:], record.value)

    def _change_schema(self, value: bytes, version: int) -> None:
        number, table = schema_change(value)
        if table is not None:
            table = table.following(self._tables.by_id.get(number), version)
        had_history = number in self._tables.with_history
        self._tables = self._tables.changed(number, table)
        self._schemas[number] = table
        if table is None:  # what goes goes before anything is put, so what was collected for it must go from here
            self._dropped.add(number)
            self._rows.pop(number, None)
        if had_history and number not in self._tables.with_history:
            self._without_history.add(number)
            self._history.pop(number, None)
