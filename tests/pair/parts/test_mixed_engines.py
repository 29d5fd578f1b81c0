"""A pair whose sites keep their rows in different engines: after whatever happens both hold the same, to the byte."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.service.port import Mutation, WriteRequest
from storage.engine import StorageEngine
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from tests.pair.pair_rig import caught_up, site
from tests.storage.engines.sql.rig import a_database, postgres
from tests.storage.engines.sql.test_sql_engine import HOSTILE, PLAIN, TYPES

TABLE = {
    "name": "t", "columns": [{"name": "k", "type": "int64"}, *({"name": kind, "type": kind} for kind in TYPES)],
    "primary_key": ["k"], "history_s": 600,
}


@pytest.fixture(params=["a in PostgreSQL", "b in PostgreSQL", "b in SQLite"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    name = request.param[0]
    made = Pair(tmp_path)
    with a_database() as database:
        url = f"sqlite:///{tmp_path}/rows.db" if "SQLite" in request.param else postgres().url(database)

        async def open_sql(_: Path) -> StorageEngine:
            return await SqlEngine.open(SqlSettings(url, "test", name))

        made.engines[name] = open_sql
        try:
            for one in "ab":
                await made.start(one)
            await made.until(lambda: made.role("a") == "ACTIVE" and made.role("b") == "STANDBY")
            yield made
        finally:
            await made.stop_all()


async def write(pair: Pair, name: str, op: str, content: dict[str, Any], request: str | None = None) -> None:
    service = pair.running[name].service
    table = service.tables.get("t")
    codec = RowCodec(table)
    if op == "delete":
        mutation = Mutation(op, codec.encode_key(content, native=True), b"")
    else:
        encode = codec.encode_update if op == "update" else codec.encode_json_row
        mutation = Mutation(op, *encode(content, native=True))
    await service.rows.write(WriteRequest(table, [mutation], idempotency_key=request, digest=b"digest" if request else b""))


async def content(pair: Pair, name: str) -> dict[str, Any]:
    engine = site(pair, name).parts.engine
    snapshot = await engine.snapshot()
    told: dict[str, Any] = {"schemas": engine.applied.schemas(), "outcomes": await snapshot.request_outcomes(None, limit=1000)}
    for table in engine.applied.schemas():
        for reverse in (False, True):
            told[f"{table} {reverse}"] = list(await snapshot.scan(table, None, None, reverse=reverse, limit=10_000))
    snapshot.close()
    return told


async def check_equal(pair: Pair) -> dict[str, Any]:
    active = next(name for name in "ab" if pair.role(name) in ("ACTIVE", "DOWNGRADE_ACTIVE"))
    other = {"a": "b", "b": "a"}[active]
    await pair.until(lambda: caught_up(pair, active, other))
    found = await content(pair, active)
    assert found == await content(pair, other)
    return found


async def some_writes(pair: Pair, name: str) -> None:
    for n, row in enumerate([PLAIN, *HOSTILE]):
        await write(pair, name, "upsert", row, request=f"{name}\0{n}")
    await write(pair, name, "update", {"k": 1, "string": "changed", "float64": -0.0})
    await write(pair, name, "delete", {"k": 3})


async def test_both_hold_the_same_through_schema_changes_a_switchover_and_a_failover(pair: Pair) -> None:
    await pair.running["a"].service.tables.create(TABLE)
    await some_writes(pair, "a")
    await pair.running["a"].service.tables.alter("t", {
        "drop": ["json"], "rename": {"string": "text"}, "add": [{"name": "json", "type": "string", "default": "\0"}]
    })
    await write(pair, "a", "update", {"k": 2, "int32": 7})
    await write(pair, "a", "upsert", {"k": 9, "text": "later"})
    found = await check_equal(pair)
    assert len(found["outcomes"]) == 4
    assert len(next(rows for name, rows in found.items() if name.endswith("True"))) == 4
    ended = await pair.operate("b", "switchover", "b")
    assert ended.state == "succeeded", ended
    await write(pair, "b", "update", {"k": 4, "text": "of b"})
    await check_equal(pair)
    await pair.stop("b")
    ended = await pair.force_failover("a")
    assert ended.state == "succeeded", ended
    await write(pair, "a", "upsert", {"k": 10, "text": "alone"})
    await pair.start("b")
    await pair.until(lambda: pair.role("b") == "STANDBY")
    found = await check_equal(pair)
    assert len(found["outcomes"]) == 4


async def test_a_site_is_filled_from_the_other_engine(pair: Pair) -> None:
    await pair.running["a"].service.tables.create(TABLE)
    await some_writes(pair, "a")
    for k in range(100, 400):
        await write(pair, "a", "upsert", {"k": k, "string": "x" * k})
    await check_equal(pair)
    for name in ("b", "a"):
        await site(pair, name).sink.want_base()
        await pair.stop(name)
        other = {"a": "b", "b": "a"}[name]
        if pair.role(other) == "STANDBY":
            assert (await pair.force_failover(other)).state == "succeeded"
        await write(pair, other, "upsert", {"k": 500, "string": f"without {name}"})
        await pair.start(name)
        await pair.until(lambda other=other, name=name: caught_up(pair, other, name))  # type: ignore[misc]
        opened = site(pair, other).active_epoch
        assert opened is not None
        assert opened.shipper.base_rows_sent > 300
        await check_equal(pair)
