"""Every engine against the dumb twin: whatever happens to both, both tell the same."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chaos.servers.janitor import own_prefix
from storage.engine import RequestOutcome, StorageEngine, StoredRow
from storage.engines.memory.engine import MemoryEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.frame import COUNTER_BITS, Flags, Frame
from storage.log.record import Record, RecordKind
from tests.storage.engines.engine_rig import (
    SECOND,
    Log,
    Rig,
    delete,
    drop_table,
    put_table,
    request,
    schema_of,
    start_epoch,
    update,
    upsert,
    value,
)
from tests.storage.engines.rocks.rig import RocksRig
from tests.storage.engines.sql.rig import PostgresRig, SqliteRig, a_database

T = TypeVar("T")
TABLES = (1, 2, (1 << 32) - 1)
KEYS = (b"", b"\x00", b"\x00\xff", b"a", b"a\x00", b"b", b"\xff\xff")
REQUESTS = ("r", "s", "longer key")
DAY_MS = 24 * 3600 * 1000

tables, row_keys = st.sampled_from(TABLES), st.sampled_from(KEYS)
values = st.dictionaries(st.sampled_from(["c1", "c2", "c3"]), st.integers(0, 9) | st.none()).map(lambda row: value(**row))
rows = st.one_of(
    st.builds(upsert, row_keys, values, tables),
    st.builds(update, row_keys, values, tables),
    st.builds(delete, row_keys, tables),
)
others = st.one_of(
    st.builds(put_table, tables, st.sampled_from([0, 1, 100])), st.builds(drop_table, tables),
    st.sampled_from([RecordKind.NOOP, RecordKind.MODE, RecordKind.BARRIER, RecordKind.CURSOR]).map(
        lambda kind: Record(kind=int(kind), key=b"a")
    ),
)
marks = st.none() | st.tuples(st.sampled_from(REQUESTS), st.integers(1, 3))
records = st.lists(st.tuples(st.one_of(rows, rows, rows, others), marks), min_size=1, max_size=9)
bounds = st.none() | row_keys
named = st.dictionaries(tables, st.sampled_from([0, 100])).map(
    lambda kept: {number: schema_of(number, history_s) for number, history_s in kept.items()}
)


def marked(chosen: list[tuple[Record, tuple[str, int] | None]]) -> list[Record]:
    """Request marks put on records that have room behind them for the request's count."""
    for index, (record, mark) in enumerate(chosen):
        record.request = b"" if mark is None or index + mark[1] > len(chosen) else request(*mark)
    return [record for record, _ in chosen]


async def everything(engine: StorageEngine, moments: list[int]) -> dict[str, Any]:
    applied = engine.applied
    told: dict[str, Any] = {
        "applied": (applied.seq, applied.epoch, applied.timestamp, engine.durable_seq, applied.base),
        "schemas": applied.schemas(),
        "epochs": applied.epochs,
        "requests": [await engine.request_outcome(key) for key in REQUESTS],
        "notes": engine.meta("note"),
    }
    for table in TABLES:
        told[f"rows {table}"] = await engine.scan(table, None, None, reverse=False, limit=1000)
        told[f"history {table}"] = [engine.applied.history_from(table, moment >> COUNTER_BITS) for moment in moments]
        told[f"gets {table}"] = [await engine.get(table, key) for key in KEYS]
        for moment in moments:
            told[f"{table} as of {moment}"] = await engine.scan(table, None, None, reverse=False, limit=1000, as_of=moment)
    return told


class Twins(RuleBasedStateMachine):
    """Small groups go inline and larger ones to the thread; the write buffer never fills by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = Path(tempfile.mkdtemp(prefix=own_prefix("twins")))
        self.memory = MemoryEngine()
        self.log = Log()
        self.frames: list[Frame] = []
        self.moments = [0]

    def run(self, waited: Awaitable[T]) -> T:
        async def wait() -> T:
            return await waited

        return self.runner.run(wait())

    @initialize()
    def open(self) -> None:
        self.rig = self.make_rig()

    def make_rig(self) -> Rig:
        return self.run(RocksRig.make(self.folder, RocksSettings(inline_records_max=10)))

    def before_crash(self) -> None:
        """A crash takes exactly what was not flushed, to the frame."""

    def both(self, method: str, *arguments: Any, **named: Any) -> Any:
        """The same call on both must answer the same."""
        first = self.run(getattr(self.memory, method)(*arguments, **named))
        second = self.run(getattr(self.rig.engine, method)(*arguments, **named))
        assert first == second
        return first

    def is_whole(self) -> bool:
        return not self.memory.applied.loading

    @precondition(is_whole)
    @rule(
        groups=st.lists(st.tuples(records, st.booleans(), st.sampled_from([0, 0, 3])), min_size=1, max_size=4),
        new_epoch=st.booleans(), duplicates=st.integers(0, 3), wait_s=st.sampled_from([0, 1, 90]),
    )
    def apply(self, groups: list[Any], new_epoch: bool, duplicates: int, wait_s: int) -> None:
        self.log.timestamp += wait_s * SECOND
        frames = self.frames[len(self.frames) - duplicates :]
        if new_epoch:
            self.log.epoch += 1
            frames.append(self.log.frame(start_epoch(self.log.epoch, "b", "takeover")))
        for chosen, was_async, excluded in groups:
            if excluded:
                frames.append(self.log.frame_after_excluded(excluded, *marked(chosen)))
            else:
                frames.append(self.log.frame(*marked(chosen), flags=int(Flags.ASYNC) if was_async else 0))
            self.moments = [*self.moments[-3:], frames[-1].timestamp + frames[-1].count // 2]
        self.frames += frames
        self.both("apply", frames)

    @rule()
    def flush(self) -> None:
        self.both("flush")

    @rule()
    def crash(self) -> None:
        self.before_crash()
        self.memory.crash()
        self.run(self.rig.crash())
        self.go_back(self.memory.applied.seq)

    @rule()
    def restart(self) -> None:
        self.run(self.memory.close())
        self.run(self.rig.restart())

    @rule(note=st.none() | st.binary(max_size=3))
    def take_note(self, note: bytes | None) -> None:
        self.both("set_meta", "note", note)

    @rule(ahead_ms=st.sampled_from([0, 1, 50_000, 100_000, DAY_MS, 2 * DAY_MS]))
    def purge(self, ahead_ms: int) -> None:
        self.both("purge", (self.log.timestamp >> COUNTER_BITS) + ahead_ms)

    @rule(table=tables, start=bounds, end=bounds, reverse=st.booleans(), limit=st.integers(0, 4))
    def scan(self, table: int, start: bytes | None, end: bytes | None, reverse: bool, limit: int) -> None:
        for as_of in (None, *self.moments):
            self.both("scan", table, start, end, reverse=reverse, limit=limit, as_of=as_of)

    @rule(table=tables)
    def get_as_of(self, table: int) -> None:
        for moment in self.moments:
            for key in KEYS:
                self.both("get_as_of", table, key, moment)

    @rule(table=tables, start=bounds, end=bounds, reverse=st.booleans(), bytes_max=st.integers(1, 40), after=st.sampled_from(
        [None, *REQUESTS]
    ))
    def take_snapshot(
        self, table: int, start: bytes | None, end: bytes | None, reverse: bool, bytes_max: int, after: str | None
    ) -> None:
        told = []
        engines: list[StorageEngine] = [self.memory, self.rig.engine]
        for engine in engines:
            snapshot = self.run(engine.snapshot())
            rows = self.run(snapshot.scan(table, start, end, reverse=reverse, limit=3, bytes_max=bytes_max))
            told.append((snapshot.seq, rows, self.run(snapshot.request_outcomes(after, limit=2))))
            snapshot.close()
        assert told[0] == told[1]

    @precondition(is_whole)
    @rule(replaced=st.lists(st.tuples(tables, row_keys, st.none() | values), max_size=4), back=st.integers(0, 4))
    def cut(self, replaced: list[tuple[int, bytes, bytes | None]], back: int) -> None:
        """A rejoin: the last frames are cut, and the rows fetched instead are newer than anything here."""
        kept = self.frames[: len(self.frames) - back]
        seq, epoch = (kept[-1].last_seq, kept[-1].epoch) if kept else (0, 0)
        fetched = [
            (table, key, None if row is None else StoredRow(key, row, self.log.timestamp + 1)) for table, key, row in replaced
        ]
        self.both("replace_rows", fetched, min(seq, self.memory.applied.seq), epoch, self.log.timestamp + 1)
        self.go_back(self.memory.applied.seq)
        self.log.epoch += 1

    @rule(
        base=st.lists(st.tuples(tables, row_keys, values), max_size=8), asked=st.lists(st.sampled_from(REQUESTS), unique=True),
        first=named, then=st.none() | named, data=st.data(),
    )
    def load_base(
        self, base: list[tuple[int, bytes, bytes]], asked: list[str], first: dict[int, bytes], then: dict[int, bytes] | None,
        data: Any,
    ) -> None:
        rows = [(table, StoredRow(key, content, self.log.timestamp)) for table, key, content in base]
        outcomes = [
            (key, RequestOutcome(b"d", self.log.epoch, self.log.seq, self.log.timestamp + 1, n, n == 1))
            for n, key in enumerate(asked)
        ]
        self.both("load_base", rows[:3], outcomes[:1], b"one", True, first)
        self.frames = []
        if data.draw(st.booleans(), "crash in mid-base"):
            self.crash()
        if data.draw(st.booleans(), "never finished"):
            return
        self.both("load_base", rows[3:], outcomes[1:], b"two", False, then)
        self.log.seq += 7
        epochs = self.memory.applied.epochs
        self.both("finish_base", self.log.seq, self.log.epoch, self.log.timestamp + 1, epochs)

    def go_back(self, seq: int) -> None:
        """Lets what comes next follow `seq`, newer than everything that ever was."""
        self.frames = [frame for frame in self.frames if frame.last_seq <= seq]
        self.log.seq = seq

    @invariant()
    def tell_the_same(self) -> None:
        if hasattr(self, "rig"):
            told = self.run(everything(self.memory, self.moments))
            assert self.run(everything(self.rig.engine, self.moments)) == told

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.run(self.rig.engine.close())
        self.runner.close()
        shutil.rmtree(self.folder)


class SqliteTwins(Twins):
    def make_rig(self) -> Rig:
        return self.run(SqliteRig.make(self.folder))

    def before_crash(self) -> None:
        """A database may keep more than was flushed."""
        self.both("flush")


class PostgresTwins(SqliteTwins):
    def make_rig(self) -> Rig:
        self.database = ExitStack()
        return self.run(PostgresRig.make(self.database.enter_context(a_database())))

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "database"):
            self.database.close()


TestTwins = Twins.TestCase
TestTwins.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestSqliteTwins = SqliteTwins.TestCase
TestSqliteTwins.settings = settings(
    max_examples=8, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestPostgresTwins = PostgresTwins.TestCase
TestPostgresTwins.settings = settings(
    max_examples=6, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
