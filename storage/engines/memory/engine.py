"""The engine contract in plain Python: the dumb twin that clever engines are compared with, and the simulator's storage.

What always holds: deterministic, no thread, no file; what was there before each change since the last `flush` (or move that
must be durable) is noted, so that `crash` can go back; every effect is written down record by record (memory/state.py), with
nothing shared with the clever engines but the meaning of marks. Source: storage/engine.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from storage.engine import EngineState, EpochEntry, KeptSnapshot, RefusedChange, RequestOutcome, StoredRow, TableSet, TableSize
from storage.engines.meaning import (
    admit,
    by_age,
    check_schema,
    refuse_unless_loading,
    refuse_when_failed,
    refuse_while_loading,
    snapshot_ended,
)
from storage.engines.memory.state import MemoryState, apply_record, name_tables, row_as_of, scan_state
from storage.log.frame import COUNTER_BITS, Frame

REQUEST_TTL_S = 24 * 3600


class MemoryEngine:
    """StorageEngine. `crash`, `break_down` and `repair` are what tests and the simulator do to it."""

    def __init__(self) -> None:
        self._state = MemoryState()
        self.durable_seq = 0
        self._notes: dict[str, bytes] = {}
        self._broken: str | None = None
        self.failure: str | None = None
        self.refused: RefusedChange | None = None
        self._life = 0  # snapshots end with it, at a reopen
        self._kept: dict[str, tuple[KeptSnapshot, MemoryState]] = {}

    def crash(self, kept: int = 0) -> None:
        """Everything that was not made durable is gone, but for the first `kept` transactions behind it."""
        self._state.go_back(kept)
        self._make_durable()

    def _make_durable(self) -> None:
        state = self._state
        state.marks.clear()
        state.notes.clear()
        self.durable_seq = state.seq

    def break_down(self, why: str) -> None:
        """From here on every write fails, and so does `reopen`."""
        self._broken = why

    def repair(self) -> None:
        """Undoes `break_down`. A write that failed meanwhile still has to be followed by `reopen`."""
        self._broken = None

    async def reopen(self) -> None:
        """As after a crash: nothing is kept that was not durable."""
        self._life += 1
        self.failure = self._broken
        self._check_usable()
        self.crash()

    def _check_usable(self) -> None:
        self.failure = self.failure or self._broken
        refuse_when_failed(self.failure)

    @property
    def applied(self) -> EngineState:
        return self._state.applied()

    async def request_outcome(self, key: str) -> RequestOutcome | None:
        return self._state.requests.get(key)

    def meta(self, name: str) -> bytes | None:
        return self._notes.get(name)

    async def set_meta(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._notes.pop(name, None)
        else:
            self._notes[name] = value

    async def prepare_schema(self, table: int, schema: bytes | None) -> None:
        self._check_usable()
        check_schema(schema)

    async def apply(self, frames: Sequence[Frame]) -> None:
        self._check_usable()
        refuse_while_loading(self._state.base is not None)
        state = self._state
        new = admit(frames, state.seq, state.epoch)
        before = len(state.marks)
        state.begin()
        try:
            for frame in new:
                for index, record in enumerate(frame.records):
                    apply_record(state, frame, index, record)
                state.reach(frame.last_seq, frame.epoch, max(state.timestamp, frame.timestamp + frame.count - 1))
        except BaseException:
            state.go_back(before)
            raise

    async def flush(self) -> int:
        self._check_usable()
        self._make_durable()
        return self.durable_seq

    async def get(self, table: int, key: bytes) -> StoredRow | None:
        return self._state.rows.get((table, key))

    async def get_as_of(self, table: int, key: bytes, as_of: int) -> StoredRow | None:
        return row_as_of(self._state, (table, key), as_of)

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, as_of: int | None = None
    ) -> Sequence[StoredRow]:
        return scan_state(self._state, table, start, end, reverse, limit, as_of)

    async def snapshot(self) -> MemorySnapshot:
        life = self._life
        return MemorySnapshot(self._state.copy(), lambda: life == self._life)

    async def keep_snapshot(self, name: str, taken_ms: int) -> None:
        self._check_usable()
        self._make_durable()
        state, held = self._state, self._kept.get(name)
        if held is None or (held[0].seq, held[0].epoch) != (state.seq, state.epoch):
            self._kept[name] = KeptSnapshot(name, state.seq, state.epoch, taken_ms, "memory:"), state.copy()

    def kept_snapshots(self) -> list[KeptSnapshot]:
        return sorted((kept for kept, _ in self._kept.values()), key=by_age)

    async def release_snapshot(self, name: str) -> None:
        self._kept.pop(name, None)

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
        state.tables = dict(TableSet(state.tables).without_history({table for table, _, _ in rows}, last_timestamp).by_id)
        state.reach(applied_seq, applied_epoch, state.timestamp)
        state.epochs = {epoch: entry for epoch, entry in state.epochs.items() if epoch <= applied_epoch}
        state.shown = None
        state.requests = {key: outcome for key, outcome in state.requests.items() if outcome.seq <= applied_seq}
        self._make_durable()

    async def load_base(
        self, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
        first: bool, schemas: dict[int, bytes] | None,
    ) -> None:
        self._check_usable()
        if first:
            self._state = MemoryState(base=progress)
        state = self._state
        refuse_unless_loading(self._state.base is not None)
        state.begin()
        state.load(progress)
        if schemas is not None:
            name_tables(state, schemas)
        for table, row in rows:
            state.put(state.rows, (table, row.key), row)
        for key, outcome in outcomes:
            state.put(state.requests, key, outcome)
        if first:
            self._make_durable()

    async def finish_base(self, seq: int, epoch: int, last_timestamp: int, epochs: Sequence[EpochEntry]) -> None:
        self._check_usable()
        refuse_unless_loading(self._state.base is not None)
        tables = TableSet.of_base(self.applied.schemas(), last_timestamp)
        self._state = MemoryState(
            seq=seq, epoch=epoch, timestamp=last_timestamp, rows=self._state.rows, tables=dict(tables.by_id),
            epochs={entry.epoch: entry for entry in epochs}, requests=self._state.requests,
        )
        self._make_durable()

    async def table_size(self, table: int) -> TableSize | None:
        if table not in self._state.tables:
            return None
        rows = [row for (number, _), row in self._state.rows.items() if number == table]
        return TableSize(len(rows), True, sum(len(row.key) + len(row.value) for row in rows))

    def counters(self) -> dict[str, int]:
        return {"disk_bytes": 0, "memtable_bytes": 0, "cache_bytes": 0, "pending_compaction_bytes": 0}

    async def close(self) -> None:
        if self.failure is None:
            await self.flush()


class MemorySnapshot:
    """A copy of the state, readable in the life of the engine that it is of."""

    def __init__(self, state: MemoryState, is_alive: Callable[[], bool]) -> None:
        self.seq = state.seq
        self._copy, self._is_alive = state, is_alive

    @property
    def _state(self) -> MemoryState:
        if not self._is_alive():
            raise snapshot_ended()
        return self._copy

    async def state(self) -> EngineState:
        return self._state.applied()

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, bytes_max: int | None = None
    ) -> Sequence[StoredRow]:
        rows = scan_state(self._state, table, start, end, reverse, limit, None)
        if bytes_max is None:
            return rows
        sizes = accumulate(len(row.key) + len(row.value) for row in rows)
        return rows[: sum(size < bytes_max for size in sizes) + 1]

    async def request_outcomes(self, after: str | None, *, limit: int) -> Sequence[tuple[str, RequestOutcome]]:
        found = sorted(self._state.requests.items())
        return [(key, outcome) for key, outcome in found if after is None or key > after][:limit]

    def close(self) -> None: ...
