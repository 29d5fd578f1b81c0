"""The main path on two real sites in one process: load, failover, rejoin, switchover; nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.service.port import Condition, Mutation, WriteRequest, WriteResult
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from twinlog.errors import NotActive, TwinlogError

TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    await made.start("a")
    await made.start("b")
    await made.until(lambda: made.role("a") == "ACTIVE" and made.role("b") == "STANDBY")
    yield made
    await made.stop_all()


async def put(pair: Pair, name: str, key: int, value: str, op: str = "upsert") -> WriteResult:
    service = pair.running[name].service
    table = service.tables.get("t")
    row_key, row_value = RowCodec(table).encode_json_row({"k": key, "v": value})
    return await service.rows.write(WriteRequest(table, [Mutation(op, row_key, row_value)]))


async def rows(pair: Pair, name: str) -> dict[int, str]:
    engine = pair.running[name].site.parts.engine
    table = pair.running[name].site.catalog.get("t")
    codec = RowCodec(table)
    found = await engine.scan(table.id, None, None, reverse=False, limit=100_000)
    return {row["k"]: row["v"] for row in (codec.decode_row(r.key, r.value) for r in found)}


async def test_acknowledged_writes_survive_a_failover_a_rejoin_and_a_switchover(pair: Pair) -> None:
    await pair.running["a"].service.tables.create(TABLE)
    for i in range(50):
        assert (await put(pair, "a", i, f"a{i}")).mode == "sync"
    await pair.stop("a")
    ended = await pair.operate("b", "failover", "b")
    assert ended.state == "succeeded", ended
    assert await rows(pair, "b") == {i: f"a{i}" for i in range(50)}
    result = await put(pair, "b", 50, "b50")
    assert result.mode == "async"
    await pair.start("a")
    await pair.until(lambda: pair.role("a") == "STANDBY" and pair.role("b") == "ACTIVE")
    assert (await put(pair, "b", 51, "b51")).mode == "sync"
    ended = await pair.operate("a", "switchover", "a")
    assert ended.state == "succeeded", ended
    assert pair.role("a") == "ACTIVE"
    expected = {i: f"a{i}" for i in range(50)} | {50: "b50", 51: "b51"}
    assert await rows(pair, "a") == expected
    await pair.until(lambda: pair.role("b") == "STANDBY")
    with pytest.raises(NotActive):
        await put(pair, "b", 1, "no")
    a, b = pair.running["a"].site, pair.running["b"].site
    await pair.until(lambda: b.parts.engine.applied.seq == a.parts.engine.applied.seq)
    assert await rows(pair, "b") == expected


async def test_degrade_and_resync(pair: Pair) -> None:
    await pair.running["a"].service.tables.create(TABLE)
    assert (await pair.operate("a", "degrade")).state == "succeeded"
    assert (await put(pair, "a", 1, "x")).mode == "async"
    assert pair.role("a") == "DOWNGRADE_ACTIVE"
    assert (await pair.operate("a", "resync")).state == "succeeded"
    assert (await put(pair, "a", 2, "y")).mode == "sync"
    assert pair.role("a") == "ACTIVE"


async def test_conditional_writes(pair: Pair) -> None:
    await pair.running["a"].service.tables.create(TABLE)
    await put(pair, "a", 1, "x", "insert")
    with pytest.raises(TwinlogError, match="exists already"):
        await put(pair, "a", 1, "y", "insert")
    service = pair.running["a"].service
    table = service.tables.get("t")
    key, value = RowCodec(table).encode_json_row({"k": 1, "v": "z"})
    row = await service.rows.read(table, key)
    assert row is not None
    wrong = Condition(key, version=row.version + 1)
    with pytest.raises(TwinlogError, match="condition"):
        await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value)], [wrong]))
    await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value)], [Condition(key, version=row.version)]))
    assert (await rows(pair, "a")) == {1: "z"}
