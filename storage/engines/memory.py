"""The engine contract in plain Python: the dumb twin that clever engines are compared with, and the simulator's storage.

What always holds: deterministic, no thread, no file; what was there before each change since the last `flush` (or move that
must be durable) is noted, so that `crash` can go back; every effect is written down record by record, as the contract says
it, with nothing shared with the clever engines but the meaning of marks. Source: storage/engine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from storage.engine import EpochEntry, RequestOutcome, StoredRow
from storage.engines.effects import (
    Table,
    Tables,
    admit,
    epoch_entry,
    refuse_unless_loading,
    refuse_while_loading,
    request_outcome,
    schema_change,
    snapshot_ended,
)
from storage.errors import EngineFailed, LogError
from storage.frame import Frame
from storage.record import Kind, Record
from storage.timestamps import COUNTER_BITS
from storage.values import merge_values

REQUEST_TTL_S = 24 * 3600

_Place = tuple[int, bytes]  # table, key


@dataclass(frozen=True, slots=True)
class _Replaced:
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
class _State:
    seq: int = 0
    epoch: int = 0
    timestamp: int = 0
    base: bytes | None = None  # the progress of an unfinished base
    rows: dict[_Place, StoredRow] = field(default_factory=dict)
    history: dict[_Place, tuple[_Replaced, ...]] = field(default_factory=dict)
    tables: dict[int, Table] = field(default_factory=dict)
    epochs: dict[int, EpochEntry] = field(default_factory=dict)
    requests: dict[str, RequestOutcome] = field(default_factory=dict)
    marks: list[_Mark] = field(default_factory=list)  # of the transactions since everything was durable
    notes: list[tuple[dict[Any, Any], Any, Any]] = field(default_factory=list)  # of their changes: where, and what was there

    def copy(self) -> _State:
        """To read from. Nothing inside the containers is ever changed in place."""
        return replace(
            self, rows=dict(self.rows), history=dict(self.history), tables=dict(self.tables),
            epochs=dict(self.epochs), requests=dict(self.requests), marks=[], notes=[],
        )

    def begin(self) -> None:
        """A transaction."""
        self.marks.append(_Mark(len(self.notes), self.seq, self.epoch, self.timestamp, self.base))

    def put(self, where: dict[Any, Any], key: object, value: object | None) -> None:
        """None: nothing is there any more."""
        self.notes.append((where, key, where.get(key)))
        if value is None:
            where.pop(key, None)
        else:
            where[key] = value

    def go_back(self, kept: int) -> None:
        """All but the first `kept` transactions have not happened."""
        if kept >= len(self.marks):
            return
        mark = self.marks[kept]
        for where, key, before in reversed(self.notes[mark.noted :]):
            if before is None:
                where.pop(key, None)
            else:
                where[key] = before
        self.seq, self.epoch, self.timestamp, self.base = mark.seq, mark.epoch, mark.timestamp, mark.base
        del self.marks[kept:], self.notes[mark.noted :]


class MemoryEngine:
    """StorageEngine. `crash`, `break_down` and `mend` are what tests and the simulator do to it."""

    def __init__(self) -> None:
        self._state = _State()
        self._durable_seq = 0
        self._notes: dict[str, bytes] = {}
        self._broken: str | None = None
        self._failure: str | None = None
        self._life = 0  # of which snapshots end with a reopen

    def crash(self, kept: int = 0) -> None:
        """Everything that was not made durable is gone, but for the first `kept` transactions behind it."""
        self._state.go_back(kept)
        self._make_durable()

    def _make_durable(self) -> None:
        state = self._state
        state.marks.clear()
        state.notes.clear()
        self._durable_seq = state.seq

    def break_down(self, why: str) -> None:
        """From here on every write fails, and so does `reopen`."""
        self._broken = why

    def mend(self) -> None:
        """What broke it is gone. A write that failed meanwhile still has to be followed by `reopen`."""
        self._broken = None

    @property
    def failure(self) -> str | None:
        return self._failure

    async def reopen(self) -> None:
        """As after a crash: nothing is kept that was not durable."""
        self._life += 1
        self._failure = self._broken
        self._check_usable()
        self.crash()

    def _check_usable(self) -> None:
        self._failure = self._failure or self._broken
        if self._failure is not None:
            raise EngineFailed(f"the storage failed, and must be opened anew: {self._failure}")

    @property
    def applied_seq(self) -> int:
        return self._state.seq

    @property
    def applied_epoch(self) -> int:
        return self._state.epoch

    @property
    def durable_seq(self) -> int:
        return self._durable_seq

    @property
    def last_timestamp(self) -> int:
        return self._state.timestamp

    @property
    def loading(self) -> bool:
        return self._state.base is not None

    @property
    def base_progress(self) -> bytes | None:
        return self._state.base

    def schemas(self) -> dict[int, bytes]:
        return {number: table.schema for number, table in self._state.tables.items()}

    def epochs(self) -> list[EpochEntry]:
        return [entry for _, entry in sorted(self._state.epochs.items())]

    async def request_outcome(self, key: str) -> RequestOutcome | None:
        return self._state.requests.get(key)

    def meta(self, name: str) -> bytes | None:
        return self._notes.get(name)

    async def set_meta(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._notes.pop(name, None)
        else:
            self._notes[name] = value

    async def apply(self, frames: Sequence[Frame]) -> None:
        self._check_usable()
        refuse_while_loading(self.loading)
        state = self._state
        new = admit(frames, state.seq, state.epoch)
        before = len(state.marks)
        state.begin()
        try:
            for frame in new:
                for index, record in enumerate(frame.records):
                    _apply(state, frame, index, record)
                state.seq, state.epoch = frame.last_seq, frame.epoch
                state.timestamp = max(state.timestamp, frame.timestamp + frame.count - 1)
        except BaseException:
            state.go_back(before)
            raise

    async def flush(self) -> int:
        self._check_usable()
        self._make_durable()
        return self._durable_seq

    async def get(self, table: int, key: bytes) -> StoredRow | None:
        return self._state.rows.get((table, key))

    async def get_as_of(self, table: int, key: bytes, as_of: int) -> StoredRow | None:
        return _as_of(self._state, (table, key), as_of)

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, as_of: int | None = None
    ) -> Sequence[StoredRow]:
        return _scan(self._state, table, start, end, reverse, limit, as_of)

    async def snapshot(self) -> MemorySnapshot:
        life = self._life
        return MemorySnapshot(self._state.copy(), lambda: life == self._life)

    def history_from(self, table: int, now_ms: int) -> int:
        return Tables(self._state.tables).history_from(table, self._state.timestamp, now_ms)

    async def purge(self, now_ms: int) -> None:
        self._check_usable()
        state = self._state
        state.begin()
        for place, entries in list(state.history.items()):
            horizon = (now_ms - state.tables[place[0]].history_s * 1000) << COUNTER_BITS
            kept = tuple(entry for entry in entries if entry.until > horizon)
            if len(kept) < len(entries):
                state.put(state.history, place, kept or None)
        horizon = (now_ms - REQUEST_TTL_S * 1000) << COUNTER_BITS
        for key in [key for key, outcome in state.requests.items() if outcome.version <= horizon]:
            state.put(state.requests, key, None)

    async def replace_rows(
        self, rows: Sequence[tuple[int, bytes, StoredRow | None]], applied_seq: int, applied_epoch: int, last_timestamp: int
    ) -> None:
        self._check_usable()
        state = self._state
        assert applied_seq <= state.seq
        for table, key, row in rows:
            state.history.pop((table, key), None)
            state.rows.pop((table, key), None)
            if row is not None:
                state.rows[table, key] = row
        state.tables = dict(Tables(state.tables).without_history({table for table, _, _ in rows}, last_timestamp).by_id)
        state.seq, state.epoch = applied_seq, applied_epoch
        state.epochs = {epoch: entry for epoch, entry in state.epochs.items() if epoch <= applied_epoch}
        state.requests = {key: outcome for key, outcome in state.requests.items() if outcome.seq <= applied_seq}
        self._make_durable()

    async def load_base(
        self, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
        first: bool, schemas: dict[int, bytes] | None,
    ) -> None:
        self._check_usable()
        if first:
            self._state = _State(base=progress)
        state = self._state
        refuse_unless_loading(self.loading)
        state.begin()
        state.base = progress
        if schemas is not None:
            _name_tables(state, schemas)
        for table, row in rows:
            state.put(state.rows, (table, row.key), row)
        for key, outcome in outcomes:
            state.put(state.requests, key, outcome)
        if first:
            self._make_durable()

    async def finish_base(self, seq: int, epoch: int, last_timestamp: int, epochs: Sequence[EpochEntry]) -> None:
        self._check_usable()
        refuse_unless_loading(self.loading)
        self._state = _State(
            seq=seq, epoch=epoch, timestamp=last_timestamp, rows=self._state.rows,
            tables=dict(Tables.of_base(self.schemas(), last_timestamp).by_id), epochs={entry.epoch: entry for entry in epochs},
            requests=self._state.requests,
        )
        self._make_durable()

    def counters(self) -> dict[str, int]:
        return {"disk_bytes": 0, "memtable_bytes": 0, "pending_compaction_bytes": 0}

    async def close(self) -> None:
        if self._failure is None:
            await self.flush()


class MemorySnapshot:
    """A copy of the state, readable in the life of the engine that it is of."""

    def __init__(self, state: _State, is_alive: Callable[[], bool]) -> None:
        self.seq = state.seq
        self._copy, self._is_alive = state, is_alive

    @property
    def _state(self) -> _State:
        if not self._is_alive():
            raise snapshot_ended()
        return self._copy

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, bytes_max: int | None = None
    ) -> Sequence[StoredRow]:
        rows = _scan(self._state, table, start, end, reverse, limit, None)
        if bytes_max is None:
            return rows
        sizes = accumulate(len(row.key) + len(row.value) for row in rows)
        return rows[: sum(size < bytes_max for size in sizes) + 1]

    async def request_outcomes(self, after: str | None, *, limit: int) -> Sequence[tuple[str, RequestOutcome]]:
        found = sorted(self._state.requests.items())
        return [(key, outcome) for key, outcome in found if after is None or key > after][:limit]

    def close(self) -> None: ...


def _apply(state: _State, frame: Frame, index: int, record: Record) -> None:
    version = frame.timestamp + index
    place = (record.table, record.key)
    if record.kind == Kind.UPSERT:
        _put(state, place, StoredRow(record.key, record.value, version), version)
    elif record.kind == Kind.UPDATE:
        row = state.rows.get(place)
        if row is not None:
            _put(state, place, StoredRow(record.key, merge_values(row.value, record.value), version), version)
    elif record.kind == Kind.DELETE:
        _put(state, place, None, version)
    elif record.kind == Kind.DDL:
        _change_schema(state, record.value, version)
    elif record.kind == Kind.EPOCH_START:
        entry = epoch_entry(frame, index, record.value)
        state.put(state.epochs, entry.epoch, entry)
    elif record.kind not in (Kind.MODE, Kind.BARRIER, Kind.CURSOR, Kind.NOOP):
        raise LogError(f"{frame!r} has a record of kind {record.kind}, which this release does not know")
    if record.request:
        key, outcome = request_outcome(frame, index, record.request)
        state.put(state.requests, key, outcome)


def _put(state: _State, place: _Place, row: StoredRow | None, version: int) -> None:
    old = state.rows.get(place)
    table = state.tables.get(place[0])
    if old is not None and table is not None and table.history_s > 0:
        state.put(state.history, place, (*state.history.get(place, ()), _Replaced(old, version)))
    state.put(state.rows, place, row)


def _change_schema(state: _State, value: bytes, version: int) -> None:
    number, table = schema_change(value)
    if table is not None:
        table = table.following(state.tables.get(number), version)
    state.put(state.tables, number, table)
    gone: list[dict[_Place, Any]] = [state.rows] if table is None else []
    if table is None or table.history_s == 0:
        gone.append(state.history)
    for places in gone:
        for place in [place for place in places if place[0] == number]:
            state.put(places, place, None)


def _name_tables(state: _State, schemas: Mapping[int, bytes]) -> None:
    """The tables of a base: the rows of those that it no longer names go."""
    for number in state.tables.keys() - schemas.keys():
        state.put(state.tables, number, None)
        for place in [place for place in state.rows if place[0] == number]:
            state.put(state.rows, place, None)
    for number, table in Tables.of_base(schemas, 0).by_id.items():
        state.put(state.tables, number, table)


def _as_of(state: _State, place: _Place, as_of: int) -> StoredRow | None:
    row = state.rows.get(place)
    if row is not None and row.version <= as_of:
        return row
    for entry in state.history.get(place, ()):
        if entry.row.version <= as_of < entry.until:
            return entry.row
    return None


def _scan(
    state: _State, table: int, start: bytes | None, end: bytes | None, reverse: bool, limit: int, as_of: int | None
) -> list[StoredRow]:
    rows: list[StoredRow] = []
    found = [
        place for place in (state.rows if as_of is None else {*state.rows, *state.history})
        if place[0] == table and (start is None or place[1] >= start) and (end is None or place[1] < end)
    ]
    for place in sorted(found, reverse=reverse):
        if len(rows) == limit:
            break
        row = state.rows.get(place) if as_of is None else _as_of(state, place, as_of)
        if row is not None:
            rows.append(row)
    return rows
