"""Base data between two real sites: an empty standby, a load that is interrupted, a site that only base data can mend."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.service.port import Mutation, WriteRequest, WriteResult
from gateway.site.cluster_document import cluster_document
from gateway.site.site import Site
from remote_log.replication.base_sender import BaseSettings
from remote_log.replication.messages import BASE
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair, settings
from twinlog.errors import EngineFailed, HistoryNotHeld, PeerError

TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}
SMALL = {**TABLE, "name": "small"}
FILLING = "x" * 2000  # a WAL segment of the test pair takes some thirty such rows
ROWS = 120


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    made = Pair(tmp_path)
    for name, changes in made.settings.items():
        changes["replication"] = replace(settings(name).replication, base=BaseSettings(part_entries=50, part_bytes=20_000))
    await made.start("a")
    await made.start("b")
    await made.until(lambda: made.role("a") == "ACTIVE" and made.role("b") == "STANDBY")
    yield made
    await made.stop_all()


async def put(pair: Pair, name: str, key: int, value: str, request: str | None = None, table_name: str = "t") -> WriteResult:
    service = pair.running[name].service
    table = service.tables.get(table_name)
    row_key, row_value = RowCodec(table).encode_json_row({"k": key, "v": value})
    return await service.rows.write(
        WriteRequest(table, [Mutation("upsert", row_key, row_value)], (), request, b"digest" if request is not None else b"")
    )


def site(pair: Pair, name: str) -> Site:
    return pair.running[name].site


async def content(pair: Pair, name: str) -> dict[str, Any]:
    """Everything that a site keeps for the pair."""
    engine = site(pair, name).parts.engine
    snapshot = await engine.snapshot()
    try:
        return {
            "rows": {
                table: await snapshot.scan(table, None, None, reverse=False, limit=10_000) for table in engine.applied.schemas()
            },
            "schemas": engine.applied.schemas(),
            "outcomes": await snapshot.request_outcomes(None, limit=10_000),
            "epochs": engine.applied.epochs,
        }
    finally:
        snapshot.close()


async def fill(pair: Pair, name: str) -> dict[str, WriteResult]:
    """Rows, some under idempotency keys, until the WAL is trimmed; a restart takes what the active still had in memory."""
    service = pair.running[name].service
    await service.tables.create(TABLE)
    await service.tables.create(SMALL)
    results = {}
    for n in range(ROWS):
        result = await put(pair, name, n, f"{n} {FILLING}", f"request {n}" if n % 2 else None)
        if n % 2:
            results[f"request {n}"] = result
    await put(pair, name, 1, "small", "small request", "small")
    await put(pair, name, 7, "changed since")
    wal = site(pair, name).parts.wal
    await pair.until(lambda: (wal.first_previous or 0) > ROWS // 2)
    await pair.stop(name)
    await pair.start(name)
    await pair.until(lambda: pair.role(name) == "ACTIVE")
    return results


async def lose_storage(pair: Pair, name: str) -> None:
    """The site's disk is gone; what the other site wrote to its DFS is not."""
    await pair.stop(name)
    for left in (pair.root / name).iterdir():
        if left.name != "dfs":
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def caught_up(pair: Pair, active: str, standby: str) -> bool:
    ahead, behind = site(pair, active), site(pair, standby)
    return behind.takeover_blocker() is None and behind.parts.engine.applied.seq == ahead.parts.engine.applied.seq > 0


@dataclass
class Interrupted:
    """A peer's API that takes `parts` parts of base data and no more."""

    inner: Any
    parts: int
    refused: int = 0

    async def call_bytes(self, method: str, body: bytes) -> bytes:
        if method == BASE:
            if self.parts == 0:
                self.refused += 1
                raise PeerError("injected: the connection broke")
            self.parts -= 1
        answer: bytes = await self.inner.call_bytes(method, body)
        return answer


def interrupt(pair: Pair, name: str, parts: int) -> Interrupted:
    running = pair.running[name]
    interrupted = Interrupted(running.peer_api, parts)
    running.peer_api = interrupted  # type: ignore[assignment]
    return interrupted


async def check_retries_at(pair: Pair, name: str, results: dict[str, WriteResult]) -> None:
    """Checks that a retry under an idempotency key is answered from the record, and not done again."""
    before = (await content(pair, name))["rows"]
    for request, first in results.items():
        again = await put(pair, name, int(request.split()[1]), "a retry", request)
        assert (again.version, again.count) == (first.version, first.count)
    assert (await content(pair, name))["rows"] == before


async def test_nobody_says_that_nothing_is_at_risk_while_the_standby_lacks_its_base(pair: Pair) -> None:
    """Writes are in both logs meanwhile; what came before them is at one site only."""
    def at_risk() -> Any:
        return msgspec.to_builtins(cluster_document(site(pair, "a"), None).at_risk)

    await fill(pair, "a")
    await pair.until(lambda: at_risk() == {"records": 0, "exact": True})
    await lose_storage(pair, "b")
    await pair.start("b")
    interrupted = interrupt(pair, "b", 1)
    await pair.until(lambda: interrupted.refused > 0)
    assert site(pair, "a").active_epoch.core.mode.label == "sync"  # type: ignore[union-attr]
    assert at_risk() == {"records": None, "exact": False}
    interrupted.parts = 1_000_000
    await pair.until(lambda: caught_up(pair, "a", "b") and at_risk() == {"records": 0, "exact": True})


async def test_an_empty_standby_joins_a_pair_whose_log_is_trimmed_and_takes_over(pair: Pair) -> None:
    results = await fill(pair, "a")
    await lose_storage(pair, "b")
    await pair.start("b")
    await pair.until(lambda: caught_up(pair, "a", "b"))
    epoch = site(pair, "a").active_epoch
    assert epoch is not None
    assert epoch.shipper.base_rows_sent == ROWS + 1
    assert await content(pair, "b") == await content(pair, "a")
    assert [table.name for table in site(pair, "b").catalog.all()] == ["small", "t"]
    assert len((await content(pair, "b"))["outcomes"]) == len(results) + 1
    logged = await put(pair, "a", ROWS, "after the base", f"request {ROWS}")
    await pair.stop("a")
    ended = await pair.operate("b", "failover", "b")
    assert ended.state == "succeeded", ended
    await check_retries_at(pair, "b", results)
    assert (await put(pair, "b", ROWS, "again", f"request {ROWS}")).version == logged.version
    assert (await put(pair, "b", 1, "new", "a new request")).version > logged.version


async def test_an_interrupted_base_goes_on_where_it_was_cut_off(pair: Pair) -> None:
    results = await fill(pair, "a")
    await lose_storage(pair, "b")
    await pair.start("b")
    interrupted = interrupt(pair, "b", parts=3)
    await pair.until(lambda: interrupted.refused > 0)
    engine = site(pair, "b").parts.engine
    assert engine.applied.loading
    assert "base data" in (site(pair, "b").takeover_blocker() or "")
    ended = await pair.operate("b", "failover", "b")
    assert ended.state == "failed", ended
    assert "base data" in str(ended.error)
    await pair.stop("b")
    await put(pair, "a", 3, "written meanwhile")
    await pair.start("b")
    interrupted = interrupt(pair, "b", parts=0)
    assert site(pair, "b").parts.engine.applied.loading
    await pair.until(lambda: interrupted.refused > 0)
    assert "base data" in (site(pair, "b").takeover_blocker() or "")
    interrupted.parts = 10_000
    await pair.until(lambda: caught_up(pair, "a", "b"))
    epoch = site(pair, "a").active_epoch
    assert epoch is not None
    assert epoch.shipper.base_rows_sent == ROWS + 1
    assert await content(pair, "b") == await content(pair, "a")
    ended = await pair.operate("b", "switchover", "b")
    assert ended.state == "succeeded", ended
    await check_retries_at(pair, "b", results)


async def test_an_active_that_restarts_in_the_middle_goes_on_from_another_snapshot(pair: Pair) -> None:
    results = await fill(pair, "a")
    await lose_storage(pair, "b")
    await pair.start("b")
    interrupted = interrupt(pair, "b", parts=3)
    await pair.until(lambda: interrupted.refused > 0)
    before = site(pair, "a").active_epoch
    assert before is not None
    sent = before.shipper.base_rows_sent
    assert 0 < sent < ROWS
    await put(pair, "a", 0, "changed, though it is in already")
    await put(pair, "a", ROWS, "new at the end", f"request {ROWS}")
    await pair.stop("a")
    await pair.start("a")
    interrupted.parts = 10_000
    await pair.until(lambda: pair.role("a") == "ACTIVE" and caught_up(pair, "a", "b"))
    after = site(pair, "a").active_epoch
    assert after is not None
    assert after.shipper.base_rows_sent == ROWS + 2 - sent
    assert await content(pair, "b") == await content(pair, "a")
    ended = await pair.operate("b", "switchover", "b")
    assert ended.state == "succeeded", ended
    await check_retries_at(pair, "b", results)


async def test_history_that_did_not_come_with_base_data_is_not_made_up(pair: Pair) -> None:
    """The row was there at that time. A site that was filled later does not know it, and says so."""
    await pair.running["a"].service.tables.create({**TABLE, "history_s": 3600})
    first, second = await put(pair, "a", 1, "first"), await put(pair, "a", 1, "second")
    await pair.running["a"].service.tables.create(SMALL)
    small = await put(pair, "a", 1, "first", table_name="small")
    await put(pair, "a", 1, "second", table_name="small")
    table = pair.running["a"].service.tables.get("t")
    key, value = RowCodec(table).encode_json_row({"k": 1, "v": "first"})
    row = await pair.running["a"].service.rows.read(table, key, as_of=first.version)
    assert row is not None
    assert row.value == value
    with pytest.raises(HistoryNotHeld, match="none is kept"):
        await pair.running["a"].service.rows.read(pair.running["a"].service.tables.get("small"), key, as_of=small.version)
    await lose_storage(pair, "b")
    await pair.start("b")
    await site(pair, "b").sink.want_base()
    await pair.until(lambda: caught_up(pair, "a", "b"))
    for stale, name in ((True, "b"), (False, "b")):
        if not stale:
            assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        service = pair.running[name].service
        for as_of in (first.version, second.version):
            with pytest.raises(HistoryNotHeld, match="not held at this site") as refused:
                await service.rows.read(table, key, as_of=as_of, stale=stale)
            with pytest.raises(HistoryNotHeld):
                await service.rows.scan(table, None, None, reverse=False, limit=9, as_of=as_of, stale=stale)
        held_from = refused.value.fields["held_from"]
        assert isinstance(held_from, int)
        rows = await service.rows.scan(table, None, None, reverse=False, limit=9, as_of=held_from, stale=stale)
        assert [row.version for row in rows] == [second.version]
    third = await put(pair, "b", 1, "third")
    row = await pair.running["b"].service.rows.read(table, key, as_of=third.version - 1)
    assert row is not None
    assert row.version == second.version


async def test_a_site_that_only_base_data_can_mend_does_not_take_over_before(pair: Pair) -> None:
    await pair.running["a"].service.tables.create(TABLE)
    await put(pair, "a", 1, "shared", "request 1")
    pair.cut = True
    assert (await pair.operate("a", "degrade")).state == "succeeded"
    await pair.running["a"].service.tables.create(SMALL)  # tables that diverge are not mended row by row
    assert (await put(pair, "a", 2, "diverges", "request 2")).mode == "async"
    await pair.stop("a")
    pair.cut = False
    ended = await pair.force_failover("b")
    assert ended.state == "succeeded", ended
    await put(pair, "b", 3, "after", "request 3")
    await pair.start("a")
    interrupted = interrupt(pair, "a", parts=0)
    await pair.until(lambda: interrupted.refused > 0)
    assert not site(pair, "a").parts.engine.applied.loading
    assert "base data" in (site(pair, "a").takeover_blocker() or "")
    interrupted.parts = 10_000
    await pair.until(lambda: caught_up(pair, "b", "a"))
    assert await content(pair, "a") == await content(pair, "b")
    outcome = site(pair, "a").parts.engine.request_outcome
    assert [await outcome(f"request {n}") is not None for n in (1, 2, 3)] == [True, False, True]


async def test_the_supervisor_purges_and_goes_on_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.site.supervisor.PURGE_INTERVAL_S", 0.02)
    pair = Pair(tmp_path)
    for name in "ab":
        await pair.start(name)
    try:
        await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
        await pair.running["a"].service.tables.create(TABLE)
        await put(pair, "a", 1, "x", "request 1")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        parts = site(pair, "b").parts
        assert await parts.engine.request_outcome("request 1") is not None
        purge = parts.engine.purge
        failed: list[int] = []

        async def fail_once(now_ms: int) -> None:
            if not failed:
                failed.append(now_ms)
                raise EngineFailed("injected")
            await purge(now_ms)

        monkeypatch.setattr(parts.engine, "purge", fail_once)
        await pair.until(lambda: failed)
        monkeypatch.setattr(parts.clock, "wall_ms", lambda: failed[0] + 25 * 3600 * 1000)

        async def is_forgotten() -> bool:
            return await parts.engine.request_outcome("request 1") is None

        await pair.until(is_forgotten)
        assert await site(pair, "a").parts.engine.request_outcome("request 1") is not None  # its day is not over yet
    finally:
        await pair.stop_all()
