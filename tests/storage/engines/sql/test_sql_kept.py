"""Tests of what only a snapshot that PostgreSQL exports can meet: its connection is cut, or the server ends idle ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from storage.engines.sql.engine import SqlEngine
from tests.storage.engines.engine_rig import Log, put_table, upsert, value
from tests.storage.engines.kept_reading import content_of, read_kept
from tests.storage.engines.sql.rig import a_database, postgres, settings_of

HOLDERS = "SELECT {} FROM pg_stat_activity WHERE datname = %s AND query LIKE '%%pg_export_snapshot%%'"


@pytest.fixture
def database() -> Iterator[str]:
    with a_database() as name:
        yield name


async def test_one_whose_connection_was_cut_is_not_held(database: str) -> None:
    engine = await SqlEngine.open(settings_of(database))
    log = Log()
    await engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
    for name in ("lost", "again"):
        await engine.keep_snapshot(name, 1)
    await engine.release_snapshot("again")
    with postgres().connect() as admin:
        assert admin.execute(HOLDERS.format("count(*)"), [database]).fetchone() == (1,), "that of a released one is closed"
        admin.execute(HOLDERS.format("pg_terminate_backend(pid)"), [database])
    for _ in range(1000):
        if not engine.kept_snapshots():
            break
        await asyncio.sleep(0.01)  # a poll of what the server does
    assert engine.kept_snapshots() == []
    assert engine.failure is None
    before = await content_of(engine)
    await engine.keep_snapshot("lost", 2)
    await engine.apply([log.frame(upsert(b"k", value(c1=2)))])
    assert await read_kept(engine, "lost") == before
    await engine.close()
    assert engine.kept_snapshots() == []


async def test_it_outlives_the_time_that_a_server_gives_to_idle_transactions(database: str) -> None:
    engine = await SqlEngine.open(settings_of(database))
    await engine.apply([Log().frame(put_table(), upsert(b"k", value(c1=1)))])
    with postgres().connect() as admin:
        admin.execute(f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '200ms'".encode())
    await engine.keep_snapshot("kept", 1)
    with postgres().connect() as admin:
        admin.execute("SELECT pg_sleep(0.8)")  # four of those times, by the server's own clock
        admin.execute(f"ALTER DATABASE {database} RESET idle_in_transaction_session_timeout".encode())  # for a slow reader
    assert [kept.name for kept in engine.kept_snapshots()] == ["kept"]
    assert await read_kept(engine, "kept") == await content_of(engine)
    await engine.close()
