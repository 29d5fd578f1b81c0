"""A barrier under full write load on two whole sites, whatever their engines: both keep the same, to the byte."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from gateway.service.port import Mutation, WriteRequest
from gateway.site.site import Site
from storage.engine import StorageEngine
from storage.engines.applying import BarrierLimits
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.log.record import Record, RecordKind
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, epoch, site
from tests.storage.engines.kept_reading import read_kept
from tests.storage.engines.sql.rig import a_database, postgres
from twinlog.errors import Conflict, NotActive, NotFound, TwinlogError

WRITERS, KEYS = 6, 40
READER = """
import sys
from rocksdict import AccessType, Options, Rdict
database = Rdict(sys.argv[1], Options(raw_mode=True), access_type=AccessType.read_only())
print(sum(1 for key in database.keys() if key[:1] == b"\\x01"))
"""


@pytest.fixture(params=["two RocksDB", "b in PostgreSQL", "a in PostgreSQL", "b in SQLite"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    with a_database() if "PostgreSQL" in request.param else nullcontext() as database:
        if "two" not in request.param:
            url = postgres().url(database) if database else f"sqlite:///{tmp_path}/rows.db"

            async def open_sql(_: Path) -> StorageEngine:
                return await SqlEngine.open(SqlSettings(url, "test", request.param[0]))

            made.engines[request.param[0]] = open_sql
        async with _open(made):
            yield made


@asynccontextmanager
async def _open(pair: Pair) -> AsyncIterator[None]:
    try:
        for name in "ab":
            await pair.start(name)
        await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
        await pair.running["a"].service.tables.create(TABLE)
        yield
    finally:
        await pair.stop_all()


@pytest.fixture
async def rocks(tmp_path: Path) -> AsyncIterator[Pair]:
    pair = Pair(tmp_path)
    limits = {"barriers": BarrierLimits(kept_max=2, kept_s=3600.0)}
    pair.settings = {"a": dict(limits), "b": dict(limits)}
    async with _open(pair):
        yield pair


@asynccontextmanager
async def load(pair: Pair, name: str) -> AsyncIterator[list[int]]:
    """Upserts, updates and deletes of few keys without a pause; how many were acknowledged."""
    service, acknowledged = pair.running[name].service, [0]
    table = service.tables.get("t")
    codec = RowCodec(table)

    async def write(seed: int) -> None:
        draw = random.Random(seed)
        while True:
            mutations = []
            for _ in range(draw.randint(1, 8)):
                key, value = codec.encode_json_row({"k": draw.randrange(KEYS), "v": "v" * draw.randrange(300) + str(seed)})
                mutations.append(Mutation("delete", key) if draw.random() < 0.3 else Mutation("upsert", key, value))
            with suppress(TwinlogError):
                await service.rows.write(WriteRequest(table, mutations))
                acknowledged[0] += 1

    tasks = [asyncio.create_task(write(seed)) for seed in range(WRITERS)]
    try:
        yield acknowledged
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def held(site: Site) -> list[str]:
    return [kept.name for kept in site.parts.engine.kept_snapshots()]


async def test_both_keep_the_same_under_load(pair: Pair) -> None:
    async with load(pair, "a") as acknowledged:
        contents = []
        for name in ("first", "second", "third"):
            before = acknowledged[0]
            await pair.until(lambda before=before: acknowledged[0] >= before + 20)  # type: ignore[misc]
            document, is_new = await pair.running["a"].service.barriers.take(name)
            assert is_new
            await pair.until(lambda name=name: name in held(site(pair, "b")))  # type: ignore[misc]
            other = pair.running["b"].service.barriers.get(name)
            told = ("epoch", "seq", "taken_at", "expires_at")
            assert [getattr(other, member) for member in told] == [getattr(document, member) for member in told]
            contents.append([await read_kept(site(pair, one).parts.engine, name) for one in "ab"])
        seen = acknowledged[0]
        await pair.until(lambda: acknowledged[0] > seen + 20)
    assert len({content.seq for content, _ in contents}) == 3
    for here, there in contents:
        assert sum(map(len, here.rows.values())) > 5
        assert here == there
    assert contents[0][0].rows != contents[2][0].rows


async def test_another_process_reads_it_while_writes_go_on(rocks: Pair) -> None:
    async with load(rocks, "a") as acknowledged:
        await rocks.until(lambda: acknowledged[0] > 20)
        document, _ = await rocks.running["a"].service.barriers.take("one")
        before = acknowledged[0]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", READER, document.place.removeprefix("rocksdb:"), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert acknowledged[0] > before
        (table,) = site(rocks, "a").parts.engine.applied.schemas()
        expected = (await read_kept(site(rocks, "a").parts.engine, "one")).rows[table]
    assert process.returncode == 0
    assert int(output) == len(expected) > 5


async def test_a_frame_ends_with_its_barrier(rocks: Pair) -> None:
    """Whatever comes with it: what was asked for before is in the snapshot, what was asked for after is not."""
    commit = epoch(rocks, "a").commit
    before, barrier, after = (
        commit.submit_mark(Record(RecordKind.NOOP), 5.0), commit.submit_barrier("x", 5.0),
        commit.submit_mark(Record(RecordKind.NOOP), 5.0),
    )
    acks = await asyncio.gather(before, barrier, after)
    (kept,) = site(rocks, "a").parts.engine.kept_snapshots()
    assert acks[0].seq < kept.seq == acks[1].seq < acks[2].seq
    assert commit.snapshots.buckets()[-1][1] == 1  # and the wait for it is counted as one for a snapshot
    assert commit.applies.buckets()[-1][1] > 0


async def test_names_and_limits(rocks: Pair) -> None:
    a, b = rocks.running["a"].service, rocks.running["b"].service
    document, is_new = await a.barriers.take(None)
    assert is_new
    assert document.engine == "rocksdb"
    again, is_new = await a.barriers.take(document.name)
    assert (again, is_new) == (document, False)
    both = await asyncio.gather(a.barriers.take("x"), a.barriers.take("x"))
    assert sorted(is_new for _, is_new in both) == [False, True]
    with pytest.raises(Conflict, match="kept_max"):
        await a.barriers.take("y")
    with pytest.raises(NotActive):
        await b.barriers.take("y")
    await rocks.until(lambda: held(site(rocks, "b")) == [document.name, "x"])
    await a.barriers.release("x")
    assert [one.name for one in a.barriers.all().barriers] == [document.name]
    with pytest.raises(NotFound):
        a.barriers.get("x")
    assert b.barriers.get("x").seq == both[0][0].seq
    await a.barriers.take("y")
    await rocks.until(lambda: held(site(rocks, "b")) == ["x", "y"])  # the oldest has made room


async def test_what_is_over_is_released_by_each_site(rocks: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await rocks.running["a"].service.barriers.take("x")
    await rocks.until(lambda: held(site(rocks, "b")) == ["x"])
    clock: Any = site(rocks, "b").parts.clock
    now_ms = clock.wall_ms()
    monkeypatch.setattr(clock, "wall_ms", lambda: now_ms + 3_600_000)
    await rocks.until(lambda: held(site(rocks, "b")) == [])
    assert held(site(rocks, "a")) == ["x"]


async def test_a_snapshot_that_cannot_be_kept_fails_the_request_and_not_the_site(rocks: Pair) -> None:
    folder = rocks.root / "a" / "engine" / "kept"
    folder.write_text("no folder")
    with pytest.raises(TwinlogError, match="no snapshot"):
        await rocks.running["a"].service.barriers.take("x")
    async with load(rocks, "a") as acknowledged:
        await rocks.until(lambda: acknowledged[0] > 5)
    assert rocks.role("a") == "ACTIVE"
    await rocks.until(lambda: held(site(rocks, "b")) == ["x"])
    folder.unlink()
    await rocks.running["a"].service.barriers.take("y")
    assert held(site(rocks, "a")) == ["y"]
