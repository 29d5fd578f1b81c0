"""A site whose PostgreSQL is restarted, killed, cut off, made read-only or runs out of room under load: nothing that was
acknowledged is lost, and the pair goes on by itself once the database is back."""

from __future__ import annotations

import asyncio
import random
import resource
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chaos.servers.postgres import PostgresServer
from gateway.service.port import Mutation, WriteRequest
from storage.engine import StorageEngine
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from tests.pair.pair_rig import caught_up, rows, site
from tests.storage.engines.sql.rig import new_server
from twinlog.errors import TwinlogError

TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}
KEYS = 50  # written together, each time with the same number
FILE_BYTES_MAX = 17 << 20  # what a "full disk" lets a file have: more than a file of PostgreSQL's own log
_SLOW_S = 60.0  # a server that starts, on a busy machine


@dataclass
class Story:
    """A pair under load. `name`: the site whose rows are in `server`."""

    pair: Pair
    server: PostgresServer
    name: str
    tried: int = 0
    acknowledged: int = 0
    is_over: bool = False
    refusals: list[str] = field(default_factory=list)

    @property
    def failure(self) -> str | None:
        return site(self.pair, self.name).parts.engine.failure

    async def write(self, filler: str = "") -> None:
        self.tried += 1
        service = self.pair.running["a"].service
        table = service.tables.get("t")
        encode = RowCodec(table).encode_json_row
        mutations = [Mutation("upsert", *encode({"k": k, "v": f"{self.tried} {filler}"})) for k in range(KEYS)]
        await service.rows.write(WriteRequest(table, mutations), 5.0)
        self.acknowledged = self.tried

    async def write_on(self, filler_bytes: int) -> None:
        noise = random.Random(1)
        while not self.is_over:
            try:
                await self.write(noise.randbytes(filler_bytes // 2).hex())
            except TwinlogError as error:
                self.refusals.append(error.message)
                await asyncio.sleep(0.01)  # a client that tries again

    async def more(self, count: int = 5) -> None:
        """Wait for `count` further acknowledgements."""
        wanted = self.acknowledged + count
        await self.pair.until(lambda: self.acknowledged >= wanted, _SLOW_S)

    async def check(self) -> None:
        standby = site(self.pair, "b")  # its catalog is loaded anew a moment after the thread has applied the table
        await self.pair.until(lambda: caught_up(self.pair, "a", "b") and standby.catalog.find("t") is not None, _SLOW_S)
        found = await rows(self.pair, "a")
        assert found == await rows(self.pair, "b")
        (number,) = {int(value.split()[0]) for value in found.values()}
        assert self.acknowledged <= number <= self.tried
        assert len(found) == KEYS


@pytest.fixture(params=["a", "b"], ids=["the active's", "the standby's"])
async def story(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Story]:
    pair = Pair(tmp_path)
    with new_server(()) as server:
        server.create_database("rows")

        async def open_sql(_: Path) -> StorageEngine:
            return await SqlEngine.open(SqlSettings(server.url("rows"), "test", request.param, lock_wait_s=2.0))

        pair.engines[request.param] = open_sql
        try:
            for name in "ab":
                await pair.start(name)
            await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY", _SLOW_S)
            await pair.running["a"].service.tables.create(TABLE)
            yield Story(pair, server, request.param)
        finally:
            await pair.stop_all()


def admin(server: PostgresServer, *statements: str) -> None:
    with server.connect() as connection:
        for statement in statements:
            connection.execute(statement.encode())


def cut(server: PostgresServer) -> None:
    admin(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'rows'")


def read_only(server: PostgresServer, yes: bool) -> None:
    admin(server, f"ALTER SYSTEM SET default_transaction_read_only = {'on' if yes else 'off'}", "SELECT pg_reload_conf()")


def full(server: PostgresServer) -> None:
    """Started again where every file ends at a size, as on a disk that has no more room: a process inherits our limit."""
    server.stop()
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, usual[1]))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


@dataclass(frozen=True)
class Fault:
    begin: Callable[[PostgresServer], None]
    end: Callable[[PostgresServer], None]
    says: str = ""  # in the engine's failure while it lasts
    filler_bytes: int = 20


FAULTS = {
    "restarted": Fault(PostgresServer.restart, lambda server: None),
    "cut off": Fault(cut, lambda server: None),
    "killed": Fault(PostgresServer.kill, PostgresServer.start, says="connect"),
    "read-only": Fault(lambda server: read_only(server, True), lambda server: read_only(server, False), says="read-only"),
    "full": Fault(full, PostgresServer.restart, says="could not extend", filler_bytes=10_000),
}


@pytest.mark.parametrize("kind", list(FAULTS))
async def test_a_database_that_goes_away_under_load(story: Story, kind: str) -> None:
    fault, pair = FAULTS[kind], story.pair
    writing = asyncio.ensure_future(story.write_on(fault.filler_bytes))
    try:
        await story.more(10)
        await asyncio.to_thread(fault.begin, story.server)
        if fault.says:
            await pair.until(lambda: fault.says in (story.failure or ""), _SLOW_S)
            await asyncio.to_thread(fault.end, story.server)
        await story.more(10)
    finally:
        story.is_over = True
        await writing
    await story.check()
    assert all("postgresql" not in text and "127.0.0.1" not in text for text in story.refusals)
