"""Requests in awkward moments: refused half-way, waiting for a key while the site drains, schema changes with an open fate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gateway.service.port import Condition, Mutation, WriteRequest
from storage.engine import RequestOutcome
from storage.rows.codec import RowCodec
from tests.gateway.data_over_bytes import with_data_over_bytes
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, epoch, key_of, open_pair, put, rows, site, turns
from twinlog.errors import (
    Conflict,
    HistoryNotHeld,
    InvalidInput,
    NotActive,
    NotFound,
    OutcomeUnknown,
    PreconditionFailed,
    TooLarge,
    TwinlogError,
    Unavailable,
)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(tmp_path, deadline_s=0.5, resync_after_s=None) as made:
        yield made


async def test_a_batch_that_contradicts_itself_leaves_nothing_admitted_and_its_key_free(pair: Pair) -> None:
    service = pair.running["a"].service
    table = service.tables.get("t")
    codec = RowCodec(table)
    key, _ = codec.encode_json_row({"k": 1, "v": ""})
    key, changes = codec.encode_update({"k": 1, "v": "x"})
    request = WriteRequest(table, [Mutation("delete", key), Mutation("update", key, changes)], (), "request 1", b"digest")
    for _ in range(2):
        with pytest.raises(NotFound):
            await service.rows.write(request)
        assert site(pair, "a").admission.requests == 0
        assert site(pair, "a").admission.queued_bytes == 0


async def test_a_refused_key_is_refused_again_and_another_request_under_it_too(pair: Pair) -> None:
    """Once the condition holds, the same request under its key still gets its first answer; a new key is judged anew."""
    service = pair.running["a"].service
    table = service.tables.get("t")
    key, value = RowCodec(table).encode_json_row({"k": 1, "v": "x"})
    refused: list[tuple[WriteRequest, type[TwinlogError]]] = [
        (WriteRequest(table, [Mutation("upsert", key, value)], [Condition(key, exists=True)], "one", b"1"), PreconditionFailed),
        (WriteRequest(table, [Mutation("update", key, value)], (), "two", b"2"), NotFound),
    ]
    for request, error in refused:
        with pytest.raises(error):
            await service.rows.write(request)
    await put(pair, "a", 1, "y")
    for request, error in refused:
        before = await rows(pair, "a")
        for _ in range(2):
            with pytest.raises(error):
                await service.rows.write(request)
        assert request.idempotency_key is not None
        with pytest.raises(error):
            await service.rows.recorded(request.idempotency_key, request.digest)
        with pytest.raises(InvalidInput, match="different request"):
            await service.rows.write(replace(request, digest=b"other"))
        assert await rows(pair, "a") == before
        await service.rows.write(replace(request, idempotency_key=f"{request.idempotency_key} anew"))
    assert site(pair, "a").admission.requests == 0


async def test_a_snapshot_of_scans_is_of_one_moment_and_ends_with_its_epoch(pair: Pair) -> None:
    rows_of = pair.running["a"].service.rows
    table = pair.running["a"].service.tables.get("t")
    await put(pair, "a", 1, "before")
    ids = [await rows_of.open_snapshot(), await rows_of.open_snapshot()]
    await put(pair, "a", 1, "after")
    await put(pair, "a", 2, "after")
    before = await rows_of.scan(table, None, None, reverse=False, limit=9, snapshot=ids[0])
    assert [RowCodec(table).decode_row(row.key, row.value) for row in before] == [{"k": 1, "v": "before"}]
    assert len(await rows_of.scan(table, None, None, reverse=False, limit=9)) == 2
    rows_of.release_snapshot(ids[0])
    await pair.until(lambda: caught_up(pair, "a", "b"))
    assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
    await pair.until(lambda: caught_up(pair, "b", "a") and pair.running["a"].operations.running_id is None)
    assert (await pair.operate("a", "switchover", "a")).state == "succeeded"
    for gone in ids:
        with pytest.raises(HistoryNotHeld, match="anew"):
            await rows_of.scan(table, None, None, reverse=False, limit=9, snapshot=gone)


async def test_a_site_serves_data_that_crosses_its_ports_as_bytes(pair: Pair) -> None:
    """The schema that comes back is an equal one and not the site's own object; one that has changed is refused."""
    service = with_data_over_bytes(pair.running["a"].service)
    table = service.tables.get("t")
    key, value = RowCodec(table).encode_json_row({"k": 1, "v": "x"})
    written = await service.rows.write(WriteRequest(table, [Mutation("insert", key, value)]))
    row = await service.rows.read(table, key)
    assert row is not None
    assert (row.value, row.version) == (value, written.version)
    assert await service.rows.scan(table, None, None, reverse=False, limit=9) == [row]
    holds = Condition(key, versions=(1, row.version), columns=({"column": "v", "op": "=", "value": "x"},))
    fails = Condition(key, other_versions=(row.version,))
    await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value)], [holds]))
    await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value)], [fails]))
    with pytest.raises(PreconditionFailed):
        await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value)], [holds]))
    await service.tables.alter("t", {"add": [{"name": "more", "type": "string"}]})
    with pytest.raises(Conflict, match="changed"):
        await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value)]))


async def test_a_row_is_refused_while_its_table_is_being_dropped(pair: Pair) -> None:
    """Behind the drop in the log, the row would outlive its table."""
    service = pair.running["a"].service
    table = service.tables.get("t")
    pair.faults["a"].hold_remote.clear()
    dropping = asyncio.ensure_future(service.tables.drop("t", confirm="t"))
    await turns()
    row = RowCodec(table).encode_json_row({"k": 1, "v": "x"})
    with pytest.raises(Conflict, match="being dropped"):
        await service.rows.write(WriteRequest(table, [Mutation("upsert", *row)]))
    pair.faults["a"].hold_remote.set()
    await dropping
    with pytest.raises(NotFound):
        service.tables.get("t")


async def test_a_key_sent_twice_is_logged_once_though_the_storage_answers_late(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A storage behind a network: between the question about the key and its answer others have their turns."""
    service, engine = pair.running["a"].service, site(pair, "a").parts.engine
    table = service.tables.get("t")
    ask = engine.request_outcome

    async def late(key: str) -> RequestOutcome | None:
        found = await ask(key)
        await turns(5)
        return found

    monkeypatch.setattr(engine, "request_outcome", late)
    request = WriteRequest(
        table, [Mutation("upsert", *RowCodec(table).encode_json_row({"k": 1, "v": "x"}))], (), "request 1", b"digest"
    )
    before = engine.applied.seq
    first, *others = await asyncio.gather(*(service.rows.write(request) for _ in range(4)))
    assert [other.version for other in others] == [first.version] * 3
    frames = await site(pair, "a").parts.wal.read(before, engine.applied.seq, 1 << 20)
    assert sum(bool(record.request) for frame in frames for record in frame.records) == 1


async def test_a_table_made_while_the_fate_of_another_is_open_gets_an_id_of_its_own(pair: Pair) -> None:
    service = pair.running["a"].service
    pair.faults["a"].hold_remote.clear()
    with pytest.raises(OutcomeUnknown):
        await service.tables.create({**TABLE, "name": "first"})
    second = asyncio.ensure_future(service.tables.create({**TABLE, "name": "second"}))
    await turns()
    pair.faults["a"].hold_remote.set()
    await second
    ids = {table.name: table.id for table in service.tables.all()}
    assert sorted(ids) == ["first", "second", "t"]
    assert len(set(ids.values())) == 3


async def test_a_schema_change_whose_predecessor_stays_open_ends_by_its_deadline(pair: Pair) -> None:
    service = pair.running["a"].service
    pair.faults["a"].hold_remote.clear()
    with pytest.raises(OutcomeUnknown):
        await service.tables.create({**TABLE, "name": "first"})
    async with asyncio.timeout(120):
        with pytest.raises(Unavailable):
            await service.tables.create({**TABLE, "name": "second"})


async def test_a_write_that_waited_for_its_key_is_refused_once_the_site_has_drained(pair: Pair) -> None:
    """Otherwise an asynchronous active acknowledges it after the last sequence that the other site waits for."""
    await pair.operate("a", "degrade")
    active = site(pair, "a")
    held = (active.catalog.get("t").id, key_of(pair, "a", 1))
    await active.rows._gate.hold([held])
    writing = asyncio.ensure_future(put(pair, "a", 1, "late", deadline_s=5))
    await turns()
    drained_seq = await active.drain()
    active.rows._gate.release([held])
    with pytest.raises(TwinlogError) as refused:
        await writing
    assert isinstance(refused.value, Unavailable | NotActive)
    assert active.parts.engine.applied.seq == drained_seq
    assert await rows(pair, "a") == {}


async def test_a_drain_ends_when_its_epoch_does(pair: Pair) -> None:
    pair.faults["a"].hold_remote.clear()
    writing = asyncio.ensure_future(put(pair, "a", 1, "held", deadline_s=60))
    await pair.until(lambda: epoch(pair, "a").core.frames_in_flight > 0)
    draining = asyncio.ensure_future(site(pair, "a").drain())
    await turns()
    await epoch(pair, "a").commit.stop(Unavailable("fenced", retry_after_s=0))
    async with asyncio.timeout(120):
        with pytest.raises(TwinlogError):
            await draining
    with pytest.raises(OutcomeUnknown):
        await writing


async def test_a_request_too_large_for_a_frame_is_answered_and_the_next_one_goes_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("storage.log.frame.PAYLOAD_BYTES_MAX", 1000)
    async with asyncio.timeout(120):
        with pytest.raises(TooLarge):
            await put(pair, "a", 1, "x" * 2000)
    assert site(pair, "a").admission.requests == 0
    assert (await put(pair, "a", 2, "small")).mode == "sync"


async def test_requests_that_left_are_forgotten_while_no_lease_can_be_proved(pair: Pair) -> None:
    """Their rows are applied, nobody waits any more: while the coordinator is away they must not pile up."""
    await pair.operate("a", "degrade")
    pair.faults["a"].coordinator_down = True
    clock = site(pair, "a").parts.clock
    await pair.until(lambda: not epoch(pair, "a").lease.valid_at(clock.monotonic_s()))
    for number in range(5):
        with pytest.raises(OutcomeUnknown):
            await put(pair, "a", number, "x", deadline_s=0.05)
    await pair.until(lambda: len(epoch(pair, "a").commit._unproved) == 0)
    pair.faults["a"].coordinator_down = False
    assert (await put(pair, "a", 9, "y", deadline_s=5)).mode == "async"
    await pair.until(lambda: caught_up(pair, "a", "b"))
