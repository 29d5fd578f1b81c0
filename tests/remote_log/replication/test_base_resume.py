"""Base data that is cut off: whatever breaks, and whatever is written meanwhile, the standby ends equal to the active, and no
more is sent again than was lost (base_world.py)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from remote_log.replication.messages import BASE_DONE, BaseDoneRequest, Position
from storage.engine import Snapshot, StoredRow
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.schema import Column, decode_schema, encode_schema
from tests.remote_log.replication.base_world import PER_PART, ROWS, a_world
from tests.remote_log.replication.tables import delete, key, put_table, schema_of, update, upsert
from tests.storage.engines.engine_rig import T, drop_table, noop, request, value

PARTS = 2 * ROWS // PER_PART  # and an empty one at the end


async def test_a_cut_link_costs_the_part_that_was_under_way() -> None:
    world = await a_world()
    for _ in range(PARTS):
        await world.cut_after(1)
    await world.finish()
    assert world.shipper.base_rows_sent == ROWS
    await world.close()


async def test_an_answer_that_is_lost_costs_nothing() -> None:
    world = await a_world()
    for _ in range(4):
        await world.cut_after(1, lose_answer=True)
    await world.finish()
    assert world.rows_taken == ROWS
    await world.close()


async def test_a_standby_that_was_killed_goes_on_where_its_storage_stands() -> None:
    world = await a_world()
    await world.cut_after(4)
    await world.standby.engine.flush()
    await world.cut_after(2)
    world.standby.engine.crash()
    world.standby.restart()
    await world.finish()
    assert world.shipper.base_rows_sent == ROWS + 2 * PER_PART  # what was not durable, a second time
    await world.close()


async def test_an_active_that_restarts_goes_on_from_another_snapshot() -> None:
    world = await a_world()
    await world.cut_after(6)
    first = world.shipper.base_rows_sent
    assert first == 6 * PER_PART
    await world.write(upsert(b"000", value(c1="changed below")), delete(b"001"), upsert(b"0000", value(c1="new below")))
    await world.write(update(b"039", value(c2="changed above")), delete(b"038"))
    await world.restart_active()
    assert not world.standby.sink.is_prefix
    await world.finish()
    assert world.shipper.base_rows_sent == ROWS - 1 - first
    await world.close()


async def test_the_schemas_come_with_the_first_part_from_each_snapshot() -> None:
    """Typed rows need them before they come; a cut link is no new snapshot."""
    world = await a_world()
    for _ in range(2):
        await world.cut_after(2)
    assert world.schemas_told == [[T], None, None, None]
    await world.write(put_table(T + 1))
    await world.restart_active()
    await world.finish()
    assert world.schemas_told[4] == [T, T + 1]
    assert set(map(type, world.schemas_told[5:])) == {type(None)}
    await world.close()


def changed_table(revision: int, columns: int) -> Record:
    """Table T with so many columns beside its key; column ids are never given twice."""
    schema = decode_schema(schema_of(T))
    more = tuple(Column(number, f"c{number}", "json", True) for number in range(4, 2 + columns))
    change = msgspec.structs.replace(schema, columns=(*schema.columns, *more), revision=revision, next_column_id=5)
    value = msgspec.msgpack.encode(SchemaChange("put", T, encode_schema(change), 0))
    return Record(int(RecordKind.DDL), T, value=value)


async def test_a_table_that_changes_between_two_snapshots_begins_the_base_anew() -> None:
    """Found by the simulator (seed 773237): the log was refused from the first one on, for its tables did not follow from those
    of the second one, and the standby stood still for ever."""
    world = await a_world()
    await world.cut_after(6)
    await world.write(changed_table(2, 3))
    await world.write(upsert(b"000", value(c1="x", c4="y")))
    await world.write(changed_table(3, 2))
    await world.restart_active()
    await world.finish()
    assert world.shipper.base_rows_sent == ROWS, "all of them once more"
    await world.close()


async def test_base_data_is_of_one_moment_however_late_its_snapshot_is_given() -> None:
    """A snapshot of a database is made in a thread: tables change before its sender hears of it. What the sender then says of
    tables and time is what the snapshot holds, and the standby meets the changes in the log."""
    world = await a_world()
    take, at_once = world.engine.snapshot, world.engine.applied.timestamp

    async def given_late() -> Snapshot:
        snapshot = await take()
        world.engine.snapshot = take  # type: ignore[method-assign]
        await world.write(changed_table(2, 3))
        await world.write(upsert(b"000", value(c1="x", c4="y")))
        await world.write(put_table(T + 1), upsert(b"1", value(c1=1), T + 1))
        await world.write(changed_table(3, 2))
        return snapshot

    world.engine.snapshot = given_late  # type: ignore[method-assign, assignment]
    done = world.standby.sink.base_done
    moments: list[int] = []

    async def noted(request: BaseDoneRequest) -> Position:
        moments.append(request.last_timestamp)
        return await done(request)

    world.standby.calls[BASE_DONE] = BaseDoneRequest, noted
    await world.finish()
    assert (world.schemas_told[0], moments) == ([T], [at_once])
    await world.close()


async def test_between_two_snapshots_the_storage_is_no_prefix_and_says_so() -> None:
    world = await a_world()
    await world.cut_after(6)
    for n in range(5):
        await world.write(upsert(b"000", value(c1=n)))
    await world.restart_active()
    seen = []
    apply = world.standby.engine.apply

    async def one_by_one(frames: Any) -> None:
        for frame in frames:
            seen.append((world.standby.engine.applied.seq, world.standby.sink.is_prefix))
            await apply([frame])

    world.standby.engine.apply = one_by_one  # type: ignore[method-assign]
    await world.write(noop())
    await world.finish()
    point = world.log.seq - 1  # of the second snapshot, or behind it
    assert {whole for seq, whole in seen if seq < point - 1} == {False}
    assert len(seen) >= 5
    await world.close()


async def test_without_the_log_in_between_the_base_begins_again() -> None:
    world = await a_world()
    await world.cut_after(6)
    for n in range(60):
        await world.write(upsert(b"000", value(c1=n)))
    await world.wal.trim(world.log.seq + 1)
    assert (world.wal.first_previous or 0) > ROWS + 2
    await world.restart_active()
    await world.finish()
    assert world.shipper.base_rows_sent == ROWS
    await world.close()


async def test_rows_of_another_log_are_not_kept() -> None:
    """An epoch that this active's history does not have, or that it ended earlier."""
    world = await a_world()
    await world.cut_after(6)
    progress = msgspec.msgpack.decode(world.standby.engine.applied.base or b"")
    foreign = msgspec.msgpack.encode({**progress, "floor": progress["floor"] + 1})
    await world.standby.engine.load_base([(T, StoredRow(key(b"foreign"), value(c1=1), 1))], [], foreign, False, None)
    await world.restart_active()
    await world.finish()
    assert world.shipper.base_rows_sent == ROWS
    await world.close()


async def test_a_snapshot_that_brings_nobody_forward_is_let_go() -> None:
    world = await a_world()
    await world.cut_after(6)
    closed: list[bool] = []
    held = world.shipper._base._held
    assert held is not None
    held.snapshot.close = lambda: closed.append(True)  # type: ignore[method-assign]
    world.broken.clear()
    await world.broken.wait()
    assert not closed
    world.clock.now_s += 1_000
    world.broken.clear()
    await world.broken.wait()
    assert closed == [True]
    await world.finish()
    assert world.shipper.base_rows_sent == ROWS
    await world.close()


keys = st.integers(0, ROWS + 5).map(lambda n: b"%03d" % n)
numbers = st.integers(0, 1000)
writes = st.one_of(
    st.builds(lambda key, n, asked: upsert(key, value(c1=n), request=request(asked) if asked else b""), keys, numbers,
              st.none() | st.integers(0, ROWS + 5).map(lambda n: f"{n:03}")),
    st.builds(lambda key, n: update(key, value(c2=n)), keys, numbers),
    st.builds(delete, keys),
    st.sampled_from([0, 7, 100_000]).map(lambda kept: put_table(T, kept)),
    st.just(None).map(lambda _: drop_table(T + 1)),
    st.just(None).map(lambda _: put_table(T + 1)),
)
breaks = st.tuples(
    st.integers(0, 9), st.booleans(),
    st.sampled_from(["link", "link", "standby restarts", "standby killed", "flush", "active restarts", "trim", "time"]),
    st.lists(writes, max_size=4),
)


async def whatever_breaks(plan: list[tuple[int, bool, str, list[Record]]], during: list[Record]) -> None:
    world = await a_world()
    meanwhile = iter(during)

    async def write_one() -> None:
        for record in meanwhile:
            await world.write(record)
            return

    world.before_part = write_one
    for parts, lose_answer, what, records in plan:
        await world.cut_after(parts, lose_answer=lose_answer)
        for record in records:
            await world.write(record)
        if what == "standby restarts":
            world.standby.restart()
        elif what == "standby killed":
            world.standby.engine.crash()
            world.standby.restart()
        elif what == "flush":
            await world.standby.engine.flush()
        elif what == "active restarts":
            await world.restart_active()
        elif what == "trim":
            await world.wal.trim(world.log.seq + 1)
        elif what == "time":
            world.clock.now_s += 1_000
    await world.finish()
    await world.close()


@settings(max_examples=60, deadline=None)
@given(plan=st.lists(breaks, max_size=8), during=st.lists(writes, max_size=30))
def test_whatever_breaks_the_standby_ends_equal_to_the_active(
    plan: list[tuple[int, bool, str, list[Record]]], during: list[Record]
) -> None:
    asyncio.run(whatever_breaks(plan, during))
