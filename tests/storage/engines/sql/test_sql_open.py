"""A database that cannot be a storage is refused at start, in words that name the setting; one that goes away is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.servers.postgres import ADMIN, PostgresServer
from storage.engine import StoredRow
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.log.frame import Frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.schema import encode_schema, parse_table
from tests.storage.engines.engine_rig import Log, T, encode, put_table, upsert, value
from tests.storage.engines.sql.rig import a_database, new_server, postgres, settings_of
from twinlog.errors import ConfigError, EngineFailed


@pytest.fixture
def database() -> Iterator[str]:
    with a_database() as name:
        yield name


def execute(database: str, *statements: str, user: str = "") -> None:
    with postgres().connect(database, user) as connection:
        for statement in statements:
            connection.execute(statement.encode())


async def refusal(settings: SqlSettings) -> str:
    with pytest.raises(ConfigError) as caught:
        await SqlEngine.open(settings)
    error = caught.value
    assert error.message.startswith("engine.url: ")
    assert postgres().password not in error.message
    return error.message


@pytest.mark.parametrize("url", ["nonsense", "mysql://h/d", "postgresql+pg8000://h/d", "postgresql+psycopg2://h/d", "oracle://x"])
async def test_an_address_of_no_driver_that_we_have(url: str) -> None:
    assert "must begin with" in (told := await refusal(SqlSettings(url, "p", "a"))) or "no SQLAlchemy address" in told


async def test_a_server_that_cannot_be_reached_a_wrong_password_and_a_database_that_is_not_there(database: str) -> None:
    server = postgres()
    good = settings_of(database)
    assert "refused" in await refusal(replace(good, url=good.url.replace(str(server.port), "1")))
    assert "password" in await refusal(replace(good, password="wrong"))
    assert "password" in await refusal(replace(good, url=server.url(database, password=False)))
    assert "no such database" in await refusal(replace(good, url=server.url("absent")))
    engine = await SqlEngine.open(replace(good, url=server.url(database, password=False), password=server.password))
    await engine.close()


async def test_a_database_that_is_read_only(database: str) -> None:
    execute(database, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    assert "read-only" in await refusal(settings_of(database))


async def test_a_user_without_rights(database: str) -> None:
    """One right after the other is given. Without the last ones the first large batch, or a new column, would fail."""
    server, user = postgres(), f"poor_{database}"
    rich = settings_of(database)
    poor = replace(rich, url=server.url(database).replace(f"twinlog:{server.password}", f"{user}:poor"))
    execute(database, f"CREATE USER {user} PASSWORD 'poor'", f"REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC", user=ADMIN)
    assert f"lacks rights: {user} may not make tables in the schema public" in await refusal(poor)
    execute(database, f"GRANT CREATE, USAGE ON SCHEMA public TO {user}", user=ADMIN)
    assert f"lacks rights: {user} may not make temporary tables" in await refusal(poor)
    execute(database, f"GRANT TEMPORARY ON DATABASE {database} TO {user}", user=ADMIN)
    engine = await SqlEngine.open(rich)
    await engine.apply([Log().frame(put_table(), upsert(b"k", value(c1=1)))])
    await engine.close()
    assert "lacks rights: permission denied for table twinlog_state" in await refusal(poor)
    execute(database, f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {user}", user=ADMIN)
    assert f"lacks rights: the table t belongs to twinlog, not to {user}" in await refusal(poor)
    execute(database, f"GRANT twinlog TO {user}", user=ADMIN)
    engine = await SqlEngine.open(poor)
    assert await engine.get(T, b"k") is not None
    await engine.close()
    execute(database, f"DROP OWNED BY {user}", f"DROP USER {user}", user=ADMIN)


async def test_a_database_of_another_encoding(database: str) -> None:
    with postgres().connect() as admin:
        admin.execute(f"CREATE DATABASE {database}_l ENCODING 'LATIN1' TEMPLATE template0".encode())
    assert "LATIN1" in await refusal(settings_of(f"{database}_l"))
    postgres().drop_database(f"{database}_l")


async def test_a_database_that_holds_something_else(database: str) -> None:
    execute(database, "CREATE TABLE twinlog_state (mine text)")
    assert "twinlog_state of another shape: it lacks one" in await refusal(settings_of(database))
    execute(database, "DROP TABLE twinlog_state", "CREATE VIEW twinlog_history AS SELECT 1 AS one")
    assert "twinlog_history" in await refusal(settings_of(database))


@pytest.mark.parametrize(("change", "told"), [
    ("DROP COLUMN twinlog_version", "a table t of another shape: it lacks twinlog_version;"),
    ("ALTER COLUMN twinlog_version TYPE text", "a table t of another shape: twinlog_version is text, not bigint;"),
    ("ALTER COLUMN c2 TYPE varchar(3)", "a table t of another shape: c2 is varchar(3), not text;"),
    ("DROP CONSTRAINT t_pkey", "a table t of another shape: its primary key is (), not (twinlog_key);"),
    ("ADD COLUMN mine int, ALTER COLUMN mine SET NOT NULL", "a table t that refuses rows: mine is NOT NULL;"),
    ("ALTER COLUMN c1 SET NOT NULL", "a table t that refuses rows: c1 is NOT NULL;"),
])
async def test_a_table_that_was_changed_by_hand(database: str, change: str, told: str) -> None:
    columns = [{"name": name, "type": kind} for name, kind in (("k", "int64"), ("c1", "timestamp"), ("c2", "string"))]
    schema = encode_schema(parse_table({"name": "t", "columns": columns, "primary_key": ["k"]}, T))
    put = SchemaChange(kind="put", table=T, schema=schema, history_s=0)
    made = Record(kind=int(RecordKind.DDL), table=T, value=encode(put))
    engine = await SqlEngine.open(settings_of(database))
    await engine.apply([Log().frame(made)])
    await engine.close()
    execute(database, f"ALTER TABLE t {change}")
    assert told in await refusal(settings_of(database))


async def test_what_a_person_may_do_to_a_table(database: str) -> None:
    engine = await SqlEngine.open(settings_of(database))
    log = Log()
    await engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
    await engine.close()
    for column in ("a int", "b int NOT NULL DEFAULT 3", "c int GENERATED ALWAYS AS (b + 1) STORED"):
        execute(database, f"ALTER TABLE t ADD COLUMN {column}")
    execute(database, "CREATE INDEX mine ON t (twinlog_version)")
    engine = await SqlEngine.open(settings_of(database))
    await engine.apply([log.frame(*(upsert(b"%d" % n, value(c1=2)) for n in range(50)))])
    await engine.close()
    with postgres().connect(database) as connection:
        assert connection.execute("SELECT count(*), sum(b), sum(c) FROM t").fetchone() == (51, 153, 204)


async def test_the_database_of_another_site_and_one_that_is_in_use(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.engines.sql.opening._LOCK_WAIT_S", 0.2)
    engine = await SqlEngine.open(settings_of(database))
    assert "in use by another gateway" in await refusal(settings_of(database))
    await engine.close()
    assert "storage of site a of pair test, not of site b" in await refusal(replace(settings_of(database), site="b"))


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """One of its own, which a test may kill. It syncs, so that what it calls durable is."""
    with new_server(()) as made:
        yield made


async def reopened(engine: SqlEngine) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                await engine.reopen()
                return
            except EngineFailed:
                await asyncio.sleep(0.05)  # a poll of a server that starts, bounded by the time-out


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_server_that_dies_under_load_loses_nothing_that_was_durable(server: PostgresServer, how: str) -> None:
    server.create_database("rows")
    engine = await SqlEngine.open(SqlSettings(server.url("rows"), "test", "a"))
    log = Log()
    frames: list[Frame] = [log.frame(put_table(), upsert(b"0", value(c1=0)))]
    await engine.apply(frames)

    async def write(number: int) -> None:
        frames.append(log.frame(*(upsert(b"%d" % (number % 500 + n), value(c1=number)) for n in range(60))))
        await engine.apply(frames[-1:])
        if number % 10 == 5:
            await engine.flush()

    async def write_on() -> None:
        for number in range(41, 1_000_000):
            await write(number)

    for number in range(1, 41):
        await write(number)
    death = asyncio.ensure_future(asyncio.to_thread(getattr(server, how)))
    with pytest.raises(EngineFailed):
        await write_on()
    await death
    durable, failure = engine.durable_seq, engine.failure
    assert failure
    with pytest.raises(EngineFailed):
        await engine.reopen()
    server.start()
    await reopened(engine)
    assert engine.failure is None
    assert engine.applied.seq >= durable >= frames[35].last_seq
    ends = [frame.last_seq for frame in frames]
    held = ends.index(engine.applied.seq) + 1
    await check_rows(engine, frames[:held])
    await engine.apply(frames)  # what is in is skipped
    await check_rows(engine, frames)
    await engine.close()


async def check_rows(engine: SqlEngine, frames: list[Frame]) -> None:
    expected: dict[bytes, StoredRow] = {}
    for frame in frames:
        for n, record in enumerate(frame.records):
            if record.key:
                expected[record.key] = StoredRow(record.key, record.value, frame.timestamp + n)
    rows = await engine.scan(T, None, None, reverse=False, limit=10_000)
    assert list(rows) == [expected[key] for key in sorted(expected)]


@pytest.mark.parametrize("note", [False, True], ids=["a flush", "a note"])
async def test_what_was_made_durable_survives_a_kill_at_once(note: bool) -> None:
    """A server that writes its log only when it must loses a commit alone, and `durable_seq` does not claim it."""
    with new_server(("wal_writer_delay=10s",)) as server:
        server.create_database("rows")
        engine = await SqlEngine.open(SqlSettings(server.url("rows"), "test", "a"))
        log = Log()
        await engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
        if note:
            await engine.set_meta("note", b"1")
        else:
            assert await engine.flush() == 2
        await engine.apply([log.frame(upsert(b"k", value(c1=2)))])
        assert engine.durable_seq == (0 if note else 2)
        await asyncio.to_thread(server.kill)
        server.start()
        await reopened(engine)
        assert (engine.applied.seq, engine.durable_seq) == (2, 2)
        assert engine.meta("note") == (b"1" if note else None)
        await engine.close()


async def test_reads_go_on_after_a_restart_of_an_idle_server(server: PostgresServer) -> None:
    server.create_database("rows")
    engine = await SqlEngine.open(SqlSettings(server.url("rows"), "test", "a"))
    await engine.apply([Log().frame(put_table(), upsert(b"k", value(c1=1)))])
    assert await engine.get(T, b"k") is not None
    await engine.flush()
    server.restart()
    assert await engine.get(T, b"k") is not None
    assert len(await engine.scan(T, None, None, reverse=False, limit=9)) == 1
    server.stop()
    with pytest.raises(EngineFailed, match=r"cannot read.*engine\.url"):
        await engine.get(T, b"k")
    server.start()
    assert await engine.get(T, b"k") is not None
    await reopened(engine)
    await engine.close()


async def test_a_read_only_sqlite_file(tmp_path: Path) -> None:
    file = tmp_path / "rows.db"
    engine = await SqlEngine.open(SqlSettings(f"sqlite:///{file}", "p", "a"))
    await engine.close()
    told = await refusal(SqlSettings(f"sqlite:///file:{file}?mode=ro&uri=true", "p", "a"))
    assert "read-only" in told
