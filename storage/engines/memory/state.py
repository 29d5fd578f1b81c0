"""The state of the memory engine, and what records do to it, one by one, as the contract says.

What always holds: nothing inside the containers is ever changed in place, and what was there before each change since the
state was durable is noted, so that any number of the last transactions can be taken back. Source: storage/engine.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from storage.engine import EngineState, EpochEntry, RequestOutcome, StoredRow, Table, TableSet
from storage.engines.meaning import epoch_entry, request_outcome, schema_change
from storage.log.frame import Frame
from storage.log.record import Record, RecordKind
from storage.rows.codec import merge_values
from twinlog.errors import LogError

Place = tuple[int, bytes]  # table, key


class _Replaced(msgspec.Struct, frozen=True, gc=False):
    row: StoredRow
    until: int  # version of what replaced or deleted it


@dataclass(slots=True)
class _Mark:
    """Before a transaction: the watermark, the progress of a base, and how many changes had been noted."""

    noted: int
    seq: int
    epoch: int
    timestamp: int
    base: bytes | None


@dataclass(slots=True)
class MemoryState:
    seq: int = 0
    epoch: int = 0
    timestamp: int = 0
    base: bytes | None = None  # the progress of an unfinished base
    rows: dict[Place, StoredRow] = field(default_factory=dict)
    history: dict[Place, tuple[_Replaced, ...]] = field(default_factory=dict)
    tables: dict[int, Table] = field(default_factory=dict)
    epochs: dict[int, EpochEntry] = field(default_factory=dict)
    requests: dict[str, RequestOutcome] = field(default_factory=dict)
    marks: list[_Mark] = field(default_factory=list)  # of the transactions since everything was durable
    notes: list[tuple[dict[Any, Any], Any, Any]] = field(default_factory=list)  # of their changes: where, and what was there
    shown: tuple[TableSet, tuple[EpochEntry, ...]] | None = None  # the tables and epochs as values; None: one has changed
    value: EngineState | None = None  # all that `applied` shows; None: something of it has changed

    def copy(self) -> MemoryState:
        """To read from. Nothing inside the containers is ever changed in place."""
        return replace(
            self, rows=dict(self.rows), history=dict(self.history), tables=dict(self.tables),
            epochs=dict(self.epochs), requests=dict(self.requests), marks=[], notes=[],
        )

    def applied(self) -> EngineState:
        """The same as one frozen value, which is made once for many looks."""
        if self.value is None:
            if self.shown is None:
                self.shown = TableSet(dict(self.tables)), tuple(entry for _, entry in sorted(self.epochs.items()))
            self.value = EngineState(self.seq, self.epoch, self.timestamp, self.base, *self.shown)
        return self.value

    def reach(self, seq: int, epoch: int, timestamp: int) -> None:
        """The watermark is there now."""
        self.seq, self.epoch, self.timestamp, self.value = seq, epoch, timestamp, None

    def load(self, progress: bytes) -> None:
        """A base is in as far as `progress`."""
        self.base, self.value = progress, None

    def begin(self) -> None:
        """A transaction."""
        self.marks.append(_Mark(len(self.notes), self.seq, self.epoch, self.timestamp, self.base))

    def put(self, where: dict[Any, Any], key: object, value: object | None) -> None:
        """None: nothing is there any more."""
        self.notes.append((where, key, where.get(key)))
        if where is self.tables or where is self.epochs:
            self.shown = self.value = None
        if value is None:
            where.pop(key, None)
        else:
            where[key] = value

    def go_back(self, kept: int) -> None:
        """All but the first `kept` transactions have not happened."""
        if kept >= len(self.marks):
            return
        mark = self.marks[kept]
        self.shown = self.value = None
        for where, key, before in reversed(self.notes[mark.noted :]):
            if before is None:
                where.pop(key, None)
            else:
                where[key] = before
        self.seq, self.epoch, self.timestamp, self.base = mark.seq, mark.epoch, mark.timestamp, mark.base
        del self.marks[kept:], self.notes[mark.noted :]


def apply_record(state: MemoryState, frame: Frame, index: int, record: Record) -> None:
    version = frame.timestamp + index
    place = (record.table, record.key)
    if record.kind == RecordKind.UPSERT:
        _put(state, place, StoredRow(record.key, record.value, version), version)
    elif record.kind == RecordKind.UPDATE:
        row = state.rows.get(place)
        if row is not None:
            _put(state, place, StoredRow(record.key, merge_values(row.value, record.value), version), version)
    elif record.kind == RecordKind.DELETE:
        _put(state, place, None, version)
    elif record.kind == RecordKind.DDL:
        _change_schema(state, record.value, version)
    elif record.kind == RecordKind.EPOCH_START:
        entry = epoch_entry(frame, index, record.value)
        state.put(state.epochs, entry.epoch, entry)
    elif record.kind not in (RecordKind.MODE, RecordKind.BARRIER, RecordKind.CURSOR, RecordKind.NOOP):
        raise LogError(f"{frame!r} has a record of kind {record.kind}, which this release does not know")
    if record.request:
        key, outcome = request_outcome(frame, index, record.request)
        state.put(state.requests, key, outcome)


def _put(state: MemoryState, place: Place, row: StoredRow | None, version: int) -> None:
    old = state.rows.get(place)
    table = state.tables.get(place[0])
    if old is not None and table is not None and table.history_s > 0:
        state.put(state.history, place, (*state.history.get(place, ()), _Replaced(old, version)))
    state.put(state.rows, place, row)


def _change_schema(state: MemoryState, value: bytes, version: int) -> None:
    number, table = schema_change(value)
    if table is not None:
        table = table.following(state.tables.get(number), version)
    state.put(state.tables, number, table)
    gone: list[dict[Place, Any]] = [state.rows] if table is None else []
    if table is None or table.history_s == 0:
        gone.append(state.history)
    for places in gone:
        for place in [place for place in places if place[0] == number]:
            state.put(places, place, None)


def name_tables(state: MemoryState, schemas: Mapping[int, bytes]) -> None:
    """The tables of a base: the rows of those that it no longer names go."""
    for number in state.tables.keys() - schemas.keys():
        state.put(state.tables, number, None)
        for place in [place for place in state.rows if place[0] == number]:
            state.put(state.rows, place, None)
    for number, table in TableSet.of_base(schemas, 0).by_id.items():
        state.put(state.tables, number, table)


def row_as_of(state: MemoryState, place: Place, as_of: int) -> StoredRow | None:
    row = state.rows.get(place)
    if row is not None and row.version <= as_of:
        return row
    for entry in state.history.get(place, ()):
        if entry.row.version <= as_of < entry.until:
            return entry.row
    return None


def scan_state(
    state: MemoryState, table: int, start: bytes | None, end: bytes | None, reverse: bool, limit: int, as_of: int | None
) -> list[StoredRow]:
    rows: list[StoredRow] = []
    found = [
        place for place in (state.rows if as_of is None else {*state.rows, *state.history})
        if place[0] == table and (start is None or place[1] >= start) and (end is None or place[1] < end)
    ]
    for place in sorted(found, reverse=reverse):
        if len(rows) == limit:
            break
        row = state.rows.get(place) if as_of is None else row_as_of(state, place, as_of)
        if row is not None:
            rows.append(row)
    return rows
