"""A schema change that the database refuses, and the engine applies unshown: the log means what it says, at each replay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from chaos.servers.postgres import ADMIN
from storage.engine import RefusedChange, StorageEngine, StoredRow
from storage.engines.unshown import leave_unshown
from storage.log.frame import Frame
from storage.rows.schema import alter, encode_schema
from tests.storage.engines.engine_rig import Log, drop_table
from tests.storage.engines.sql.rig import PostgresRig, a_database, postgres
from tests.storage.engines.sql.test_sql_engine import ddl, row, schema, seen
from twinlog.errors import EngineFailed

FIRST = schema([{"name": "a", "type": "string"}, {"name": "b", "type": "int32"}])
SECOND = alter(FIRST, {"drop": ["a"], "rename": {"b": "c"}, "add": [{"name": "d", "type": "int32"}]})
THIRD = alter(SECOND, {"add": [{"name": "e", "type": "string", "default": "x"}]})


@pytest.fixture
def database() -> Any:
    with a_database() as name:
        yield name


@pytest.fixture
async def rig(database: str) -> AsyncIterator[PostgresRig]:
    made = await PostgresRig.make(database)
    yield made
    await made.engine.close()


def person(database: str, statement: str, user: str = "") -> None:
    with postgres().connect(database, user) as connection:
        connection.execute(statement.encode())


async def refused(engine: StorageEngine, *frames: Frame) -> RefusedChange:
    """The frames cannot be applied, however often."""
    for _ in range(2):
        with pytest.raises(EngineFailed, match=r"refuses a change of table 'flights': .*twinlog log skip a --epoch 1 --seq"):
            await engine.apply(frames)
        await engine.reopen()
    assert engine.refused is not None
    return engine.refused


async def held(engine: StorageEngine) -> list[StoredRow]:
    return list(await engine.scan(1, None, None, reverse=False, limit=99))


@pytest.mark.parametrize("together", [True, False])
async def test_a_change_that_is_refused_is_applied_unshown(rig: PostgresRig, database: str, together: bool) -> None:
    log = Log()
    await rig.engine.apply([log.frame(ddl(FIRST), row(FIRST, {"k": 1, "a": "one", "b": 1}))])
    person(database, "CREATE VIEW mine AS SELECT a FROM flights")
    frames = [
        log.frame(ddl(SECOND), row(SECOND, {"k": 2, "c": 2, "d": 20})),
        log.frame(row(SECOND, {"k": 1, "c": 10, "d": 10})),
        log.frame(*(row(SECOND, {"k": 100 + n, "d": n}) for n in range(40))),
    ]
    change = await refused(rig.engine, *frames)
    assert (change.epoch, change.seq, change.table) == (1, 3, 1)
    assert "view mine depends" in change.problem
    await leave_unshown(rig.engine, change)
    for group in [frames] if together else [[frame] for frame in frames]:
        await rig.engine.apply(group)
    assert rig.engine.refused is None
    assert rig.engine.applied.schemas() == {1: encode_schema(SECOND)}
    before = await held(rig.engine)
    assert [one.value for one in before[:2]] == [
        row(SECOND, {"k": 1, "c": 10, "d": 10}).value, row(SECOND, {"k": 2, "c": 2, "d": 20}).value
    ]
    shown = "SELECT k, a, b FROM flights WHERE k < 100 ORDER BY k"
    assert seen(database, shown) == [(1, None, 10), (2, None, 2)]
    await rig.restart()
    assert await held(rig.engine) == before
    await rig.engine.replace_rows([], rig.engine.applied.seq, 1, rig.engine.applied.timestamp)  # a rejoin names all schemas
    await rig.engine.apply([log.frame(row(SECOND, {"k": 3, "c": 3}))])
    assert seen(database, "SELECT b FROM flights WHERE k = 3") == [(3,)]
    person(database, "DROP VIEW mine")
    await rig.engine.apply([log.frame(ddl(THIRD), row(THIRD, {"k": 4, "d": 40}))])
    assert seen(database, "SELECT k, c, d, e FROM flights WHERE k < 100 ORDER BY k") == [
        (1, 10, 10, "x"), (2, 2, 20, "x"), (3, 3, None, "x"), (4, None, 40, "x")
    ]
    await rig.restart()
    assert len(await held(rig.engine)) == 44


async def test_a_new_table_that_is_refused_holds_its_rows(rig: PostgresRig, database: str) -> None:
    log = Log()
    person(database, "CREATE FUNCTION no() RETURNS event_trigger LANGUAGE plpgsql AS "
                     "$$ BEGIN IF EXISTS (SELECT FROM pg_tables WHERE tablename = 'flights') "
                     "THEN RAISE EXCEPTION 'no flights here'; END IF; END $$", ADMIN)
    person(database, "CREATE EVENT TRIGGER no ON ddl_command_end EXECUTE FUNCTION no()", ADMIN)
    frame = log.frame(ddl(FIRST), row(FIRST, {"k": 1, "a": "one", "b": 1}))
    change = await refused(rig.engine, frame)
    assert "no flights here" in change.problem
    await leave_unshown(rig.engine, change)
    await rig.engine.apply([frame])
    assert len(await held(rig.engine)) == 1
    await rig.restart()
    person(database, "DROP EVENT TRIGGER no", ADMIN)
    await rig.engine.apply([log.frame(ddl(SECOND))])
    assert seen(database, "SELECT k, c FROM flights") == [(1, 1)]


async def test_a_storage_that_cannot_be_opened_anew_says_why(rig: PostgresRig, database: str) -> None:
    """It said what had failed before: after `twinlog log skip`, that the change waits for `twinlog log skip`."""
    log = Log()
    person(database, "REVOKE CREATE ON SCHEMA public FROM PUBLIC, twinlog", ADMIN)
    frame = log.frame(ddl(FIRST), row(FIRST, {"k": 1, "a": "one", "b": 1}))
    with pytest.raises(EngineFailed, match="permission denied for schema public"):
        await rig.engine.apply([frame])
    assert rig.engine.refused is not None
    await leave_unshown(rig.engine, rig.engine.refused)
    with pytest.raises(EngineFailed, match="may not make tables"):
        await rig.engine.reopen()
    assert "GRANT CREATE, USAGE ON SCHEMA public TO twinlog" in str(rig.engine.failure)
    person(database, "GRANT CREATE ON SCHEMA public TO twinlog", ADMIN)
    await rig.engine.reopen()
    await rig.engine.apply([frame])
    assert len(await held(rig.engine)) == 1


async def test_a_drop_that_is_refused_forgets_the_table(rig: PostgresRig, database: str) -> None:
    log = Log()
    await rig.engine.apply([log.frame(ddl(FIRST), row(FIRST, {"k": 1, "a": "one"}))])
    person(database, "CREATE VIEW mine AS SELECT a FROM flights")
    frame = log.frame(drop_table(1))
    await leave_unshown(rig.engine, await refused(rig.engine, frame))
    await rig.engine.apply([frame])
    assert rig.engine.applied.schemas() == {}
    assert await held(rig.engine) == []
    again = schema([{"name": "a", "type": "string"}], table_id=2)
    await rig.engine.apply([log.frame(ddl(again), row(again, {"k": 7, "a": "new"}))])
    assert seen(database, "SELECT a FROM mine") == [("one",)]
    assert seen(database, "SELECT k FROM flights_2") == [(7,)]


async def test_base_data_brings_a_schema_that_stays_unshown(rig: PostgresRig, database: str) -> None:
    log = Log()
    await rig.engine.apply([log.frame(ddl(FIRST))])
    person(database, "CREATE VIEW mine AS SELECT a FROM flights")
    frame = log.frame(ddl(SECOND))
    await leave_unshown(rig.engine, await refused(rig.engine, frame))
    await rig.engine.apply([frame])
    kept = [(1, StoredRow(b"\x80", b"\x80", 1000))]
    await rig.engine.load_base(kept, [], b"1", True, {1: encode_schema(SECOND)})
    await rig.engine.finish_base(50, 1, 2000, [])
    assert await held(rig.engine) == [kept[0][1]]
    assert rig.engine.applied.schemas() == {1: encode_schema(SECOND)}


async def test_a_later_epoch_takes_the_sequence_of_a_change_that_was_cut_off(rig: PostgresRig, database: str) -> None:
    """A rejoin cuts off the refused change. Nothing waits for it then, and what was left unshown with it was no other one."""
    log = Log()
    await rig.engine.apply([log.frame(ddl(FIRST), row(FIRST, {"k": 1, "a": "one", "b": 1}))])
    person(database, "CREATE VIEW mine AS SELECT a FROM flights")
    await rig.engine.apply([log.frame(row(FIRST, {"k": 2}))])
    change = await refused(rig.engine, log.frame(ddl(SECOND)))
    assert (change.epoch, change.seq) == (1, 4)
    await leave_unshown(rig.engine, change)
    await rig.engine.replace_rows([], 2, 1, rig.engine.applied.timestamp)
    log.epoch, log.seq = 2, 2
    await rig.engine.apply([log.frame(row(FIRST, {"k": 3}))])
    assert rig.engine.refused is None
    with pytest.raises(EngineFailed, match=r"--epoch 2 --seq 4"):
        await rig.engine.apply([log.frame(ddl(SECOND))])
