"""Tables that change while base data is being sent, over every engine at either end: what the standby is told is of ONE moment.

A plan of changes is drawn, each with its moment: while the snapshot is being made, once it is made and before its sender has
it, or before one of the parts. The log is applied to a plain twin as well, which knows what the tables were at each sequence.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from remote_log.replication.messages import BASE_DONE, BaseDoneRequest, Position
from storage.engine import Snapshot, StorageEngine
from storage.engines.memory.engine import MemoryEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.frame import Frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.codec import RowCodec
from storage.rows.schema import TableSchema, alter, dropped, encode_schema, parse_table, restored
from tests.remote_log.replication.base_world import World
from tests.storage.engines.engine_rig import delete, drop_table, upsert
from tests.storage.engines.rocks.rig import RocksRig
from tests.storage.engines.sql.rig import PostgresRig, SqliteRig, a_database

KINDS = ("add", "remove", "hide", "restore", "drop", "make", "rows", "gone")
Moment = Literal["making", "made"] | int  # of the change; a number: before that part
Plan = list[tuple[Moment, str, int]]  # the moment, what happens, and to which table
MOMENTS: st.SearchStrategy[Moment] = st.one_of(st.sampled_from(["making", "made"]), st.integers(0, 12))
PLANS = st.lists(st.tuples(MOMENTS, st.sampled_from(KINDS), st.integers(0, 3)), min_size=1, max_size=7)


class Tables:
    """The tables of an active, and the records that change them as its API would."""

    def __init__(self) -> None:
        self.shown: list[TableSchema] = []
        self.hidden: list[TableSchema] = []
        self._ids, self._numbers = iter(range(1, 1_000)), iter(range(10**6))

    def make(self) -> list[Record]:
        taken = {made.name for made in self.shown}
        name = next(f"t{number}" for number in range(100) if f"t{number}" not in taken)  # the name of one that is gone, too
        columns = [{"name": "k", "type": "int64"}, {"name": "c", "type": "string"}, {"name": "d", "type": "int64"}]
        made = parse_table({"name": name, "columns": columns, "primary_key": ["k"], "history_s": 100_000}, next(self._ids))
        self.shown.append(made)
        return [self._put(made), *self.rows(made, 6)]

    def rows(self, made: TableSchema, count: int) -> list[Record]:
        codec, written = RowCodec(made), []
        for place in range(count):
            number = next(self._numbers)
            given: dict[str, Any] = {
                column.name: f"of {number}" if column.type == "string" else number for column in made.columns
            }
            written.append(upsert(*codec.encode_json_row({**given, "k": place * 3 % 8}, native=True), table=made.id))
        return written

    def change(self, kind: str, which: int) -> list[Record]:
        """The records of one change; none when there is nothing to change so."""
        if kind == "make":
            return self.make()
        if kind == "restore":
            return self._restored()
        if not self.shown:
            return []
        place = which % len(self.shown)
        made = self.shown[place]
        if kind == "rows":
            return self.rows(made, 4)
        if kind == "gone":
            return [delete(RowCodec(made).encode_key({"k": 3}, native=True), made.id)]
        if kind == "drop":
            del self.shown[place]
            return [drop_table(made.id)]
        if kind == "hide":
            self.hidden.append(dropped(made, 1))
            del self.shown[place]
            return [self._put(self.hidden[-1])]
        return self._altered(place, kind)

    def _altered(self, place: int, kind: str) -> list[Record]:
        made = self.shown[place]
        others = [column.name for column in made.columns if column.name != "k"]
        if kind == "remove" and len(others) < 2:
            return []
        added = {"name": f"c{made.next_column_id}", "type": "string", "default": "as made"}
        self.shown[place] = after = alter(made, {"add": [added]} if kind == "add" else {"drop": [others[0]]})
        return [self._put(after), *self.rows(after, 2)]

    def _restored(self) -> list[Record]:
        if not self.hidden or any(made.name == restored(self.hidden[0]).name for made in self.shown):
            return []
        self.shown.append(restored(self.hidden.pop(0)))
        return [self._put(self.shown[-1])]

    def _put(self, made: TableSchema) -> Record:
        change = SchemaChange(kind="put", table=made.id, schema=encode_schema(made), history_s=made.history_s)
        return Record(kind=int(RecordKind.DDL), table=made.id, value=msgspec.msgpack.encode(change))


async def content(engine: StorageEngine) -> dict[str, Any]:
    state = engine.applied
    return {
        "at": (state.seq, state.epoch, state.timestamp), "schemas": state.schemas(),
        "rows": {table: list(await engine.scan(table, None, None, reverse=False, limit=1_000)) for table in state.schemas()},
    }


class Changing(World):
    """Makes the changes of a plan at their moments, and keeps every frame for the twin."""

    def __init__(self, active: StorageEngine, standby: StorageEngine, plan: Plan) -> None:
        super().__init__(active, standby)
        self.tables, self.plan, self.frames = Tables(), list(plan), list[Frame]()
        self.compared = self.part = 0
        self._snapshot, self._apply = active.snapshot, active.apply
        active.snapshot, active.apply = self.snapshot, self.apply  # type: ignore[method-assign]
        self.before_part = self.next_part
        self.standby.calls[BASE_DONE] = BaseDoneRequest, self.base_done

    async def apply(self, frames: Any) -> None:
        self.frames += frames
        await self._apply(frames)

    async def begin(self) -> None:
        await self.open()
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        for _ in range(3):
            await self.write(*self.tables.make())
        await self.wal.trim(self.log.seq + 1)
        await self.standby.engine.load_base([], [], b"", True, {})
        self.running = asyncio.create_task(self.shipper.run())

    async def changes(self, moment: Moment) -> None:
        due = [step for step in self.plan if step[0] == moment]
        self.plan = [step for step in self.plan if step[0] != moment]
        for _, kind, which in due:
            if records := self.tables.change(kind, which):
                await self.write(*records)

    async def snapshot(self) -> Snapshot:
        taking = asyncio.ensure_future(self._snapshot())
        await asyncio.sleep(0)
        try:
            await self.changes("making")
        finally:
            await asyncio.wait([taking])
        snapshot = taking.result()
        await self.changes("made")
        return snapshot

    async def next_part(self) -> None:
        await self.changes(self.part)
        self.part += 1

    async def base_done(self, request: BaseDoneRequest) -> Position:
        position = await self.standby.sink.base_done(request)
        base = request.after
        if base.floor == base.seq:  # all of it came from one snapshot
            twin = MemoryEngine()
            await twin.apply([frame for frame in self.frames if frame.last_seq <= base.seq])
            assert await content(self.standby.engine) == await content(twin), f"base data is not that of sequence {base.seq}"
            self.compared += 1
        return position

    async def compare(self) -> None:
        """Both ends, once the standby has followed the log behind the base."""
        await self.changes_left()
        equal = asyncio.ensure_future(self.equal())
        async with asyncio.timeout(60):
            await asyncio.wait([equal, self.running], return_when=asyncio.FIRST_COMPLETED)
        if not equal.done():
            equal.cancel()
            self.running.result()
        twin = MemoryEngine()
        await twin.apply(self.frames)
        assert await content(self.standby.engine) == await content(self.engine) == await content(twin)

    async def changes_left(self) -> None:
        for moment in dict.fromkeys(step[0] for step in self.plan):
            if isinstance(moment, int):
                await self.changes(moment)


@asynccontextmanager
async def engines(name: str, folder: Path) -> AsyncIterator[tuple[StorageEngine, StorageEngine]]:
    """Two new engines of a kind, open."""
    if name == "PostgreSQL":
        with a_database() as one, a_database() as other:
            rigs: list[Any] = [await PostgresRig.make(database) for database in (one, other)]
            yield rigs[0].engine, rigs[1].engine
            for rig in rigs:
                await rig.engine.close()
        return
    folders = [folder / "active", folder / "standby"]
    for each in folders:
        each.mkdir()
    if name == "SQLite":
        rigs = [await SqliteRig.make(each) for each in folders]
    else:
        rigs = [await RocksRig.make(each, RocksSettings(inline_records_max=10)) for each in folders]
    yield rigs[0].engine, rigs[1].engine
    for rig in rigs:
        await rig.engine.close()


async def sends(name: str, plan: Plan) -> int:
    with tempfile.TemporaryDirectory() as folder:
        async with engines(name, Path(folder)) as (active, standby):
            world = Changing(active, standby, plan)
            await world.begin()
            try:
                await world.compare()
            finally:
                await world.close()
            return world.compared


@pytest.mark.long
@pytest.mark.parametrize("name", ["RocksDB", "SQLite", "PostgreSQL"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(PLANS)
@example([("made", "add", 0), ("made", "drop", 1), ("made", "make", 0), ("made", "rows", 0)])
@example([("making", "add", 0), ("making", "drop", 1), ("making", "make", 0), ("making", "rows", 0)])
@example([(2, "add", 0), (2, "drop", 1), (2, "make", 0), (3, "rows", 0), (4, "hide", 0), (5, "restore", 0)])
def test_base_data_is_of_one_moment_whatever_changes_meanwhile(name: str, plan: Plan) -> None:
    compared = asyncio.run(sends(name, plan))
    assert compared or any(isinstance(moment, int) for moment, _, _ in plan), "one snapshot was enough, and nobody looked"
