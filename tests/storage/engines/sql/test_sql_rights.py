"""Roles of docs/postgresql/ on a real server: each part works with its role, and the role can do nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from chaos.servers.postgres import ADMIN, find_program
from storage.clock import SystemClock
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from switchover.operations.sql_journal import SqlJournal
from switchover.register.port import PairState
from switchover.register.sql import SqlCoordinator
from tests.storage.engines.engine_rig import Log, T, put_table, upsert, value
from tests.storage.engines.sql.rig import postgres
from tests.switchover.operations.test_journal import entry, operation
from twinlog.errors import ConfigError, Unavailable

SCRIPTS = Path(__file__).parents[4] / "docs" / "postgresql"
PASSWORD = "of-the-role"
_numbers = count(1)


@contextmanager
def role_of(script: str) -> Iterator[tuple[str, str]]:
    """(name of the role, address with its password), as the script makes it in a database of the superuser."""
    server, name = postgres(), f"{script}_{next(_numbers)}"
    with server.connect() as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING 'UTF8' TEMPLATE template0".encode())
    try:
        subprocess.run(
            [find_program("psql"), "-X", "-v", "ON_ERROR_STOP=1", "-v", f"role={name}", "-v", f"database={name}",
             "-f", str(SCRIPTS / f"{script}.sql"), f"host=127.0.0.1 port={server.port} user={ADMIN} dbname={name}"],
            check=True, capture_output=True, env={"PGPASSWORD": server.password},
        )
        with server.connect(name, ADMIN) as admin:
            admin.execute(f"ALTER ROLE {name} PASSWORD '{PASSWORD}'".encode())
        yield name, f"postgresql+psycopg://{name}:{PASSWORD}@127.0.0.1:{server.port}/{name}"
    finally:
        server.drop_database(name)
        with server.connect() as admin:
            admin.execute(f"DROP ROLE IF EXISTS {name}".encode())


def can(role: str, *statements: str) -> list[str]:
    """Returns those of the statements that the role may do."""
    found = []
    for statement in statements:
        with psycopg.connect(
            host="127.0.0.1", port=postgres().port, user=role, password=PASSWORD, dbname=role, autocommit=True
        ) as connection:
            try:
                connection.execute(statement.encode())
            except psycopg.errors.InsufficientPrivilege:
                continue
        found.append(statement)
    return found


MORE = (
    "CREATE ROLE more", "CREATE DATABASE more", "CREATE SCHEMA more", "SELECT pg_read_file('/etc/hostname')",
    "SELECT * FROM pg_authid", "ALTER SYSTEM SET port = 1", "COPY (SELECT 1) TO PROGRAM 'true'",
)


async def test_the_engine_works_with_its_role_alone() -> None:
    with role_of("engine") as (role, url):
        settings = SqlSettings(url, "test", "a", lock_wait_s=2.0)
        log = Log()
        for turn in range(2):  # the second one finds its own tables
            engine = await SqlEngine.open(settings)
            await engine.apply([log.frame(*([] if turn else [put_table()]), upsert(b"k%d" % turn, value(c1=turn)))])
            await engine.apply([log.frame(*(upsert(b"m%04d" % n, value(c1=n)) for n in range(3000)))])  # by a temporary table
            await engine.flush()
            assert await engine.get(T, b"k%d" % turn) is not None
            await engine.close()
        assert can(role, *MORE) == []


async def test_the_coordinator_works_with_its_role_alone() -> None:
    with role_of("coordinator") as (role, url):
        for _ in range(2):
            coordinator = SqlCoordinator(url, "test", SystemClock())
            before = await coordinator.read()
            await coordinator.compare_and_set(before, PairState(0, 1, 1, "a", "plan"))
            assert len(await coordinator.history()) >= 1
            await coordinator.close()
        assert can(role, *MORE, "CREATE TABLE public.more (k int)", "CREATE TEMPORARY TABLE more (k int)") == []


async def test_the_journal_works_with_its_role_alone() -> None:
    with role_of("journal") as (role, url):
        journal = SqlJournal(url)
        await journal.create(operation(), entry("created"))
        await journal.save(operation(), entry("running"))
        assert (await journal.load("op-1")).id == "op-1"
        assert len(await journal.history(10)) == 2
        await journal.close()
        assert can(role, *MORE, "CREATE TABLE public.more (k int)", "CREATE TEMPORARY TABLE more (k int)") == []


async def test_no_role_reaches_the_database_of_another_one() -> None:
    with role_of("engine") as (_, url), role_of("journal") as (other, _):
        with pytest.raises(ConfigError, match="permission denied for database"):
            await SqlEngine.open(SqlSettings(url.rpartition("/")[0] + f"/{other}", "test", "a"))
        coordinator = SqlCoordinator(url.rpartition("/")[0] + f"/{other}", "test", SystemClock())
        with pytest.raises(Unavailable, match="permission denied for database"):
            await coordinator.read()
        await coordinator.close()
