"""Scans with snapshot=true: every page, and a whole stream, is of the moment at which the scan began."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from gateway.service import as_of
from storage.log.record import Record, RecordKind
from tests.gateway.door_client import ROWS, DoorClient, problem

ARROW, NDJSON = "application/vnd.apache.arrow.stream", "application/x-ndjson"
FLIGHTS_MAX = 40


async def _write(door: DoorClient, op: str, flights: range, **columns: Any) -> None:
    member = "key" if op == "delete" else "row"
    mutations = [{"op": op, member: {"carrier": "UA", "flight": flight, **columns}} for flight in flights]
    answer = await door.http.post(f"{ROWS}:mutate", json={"mutations": mutations})
    assert answer.status_code == 200, answer.text


async def _page(door: DoorClient, **query: Any) -> dict[str, Any]:
    answer = await door.http.get(ROWS, params={"snapshot": "true", **query})
    assert answer.status_code == 200, answer.text
    return answer.json()  # type: ignore[no-any-return]


def _held(door: DoorClient) -> int:
    return len(door.service.snapshots._held)


@pytest.mark.parametrize("reverse", ["false", "true"])
async def test_all_pages_are_of_one_moment(door: DoorClient, reverse: str) -> None:
    await _write(door, "upsert", range(FLIGHTS_MAX), note="before")
    before = (await door.http.get(ROWS, params={"reverse": reverse})).json()
    page = await _page(door, limit=7, reverse=reverse)
    found = page
    while page["next_page_token"] is not None:
        flight = page["rows"][-1]["flight"]
        await _write(door, "upsert", range(FLIGHTS_MAX + 5), note=f"after {flight}")
        await _write(door, "delete", range(0, FLIGHTS_MAX, 2))
        page = await _page(door, limit=7, reverse=reverse, page_token=page["next_page_token"])
        found = {name: found[name] + page[name] for name in ("rows", "versions")}
    assert found["rows"] == before["rows"]
    assert found["versions"] == before["versions"]
    assert _held(door) == 0, "the last page lets the snapshot go"
    assert (await _page(door, limit=1))["rows"][0]["note"] != "before"


async def test_no_page_shows_a_column_that_was_not_there_when_the_scan_began(door: DoorClient) -> None:
    await _write(door, "upsert", range(FLIGHTS_MAX), note="before")
    page = await _page(door, limit=7)
    plain = (await door.http.get(ROWS, params={"limit": 7})).json()
    changed = await door.http.patch("/v1/tables/flights", json={"add": [{"name": "later", "type": "int64", "default": 5}]})
    assert changed.status_code == 200, changed.text
    answer = await door.http.get(ROWS, params={"snapshot": "true", "limit": 7, "page_token": page["next_page_token"]})
    assert "have changed since this scan" in problem(answer, 410, "history-not-held")["detail"]
    more = await door.http.get(ROWS, params={"limit": 7, "page_token": plain["next_page_token"]})
    assert more.json()["rows"][0]["later"] == 5, "a scan without a snapshot shows what is there now"


@pytest.mark.parametrize("kind", [ARROW, NDJSON])
async def test_a_stream_is_of_one_moment(door: DoorClient, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row is written between any two chunks of the stream."""
    await _write(door, "upsert", range(FLIGHTS_MAX), note="before")
    monkeypatch.setattr("gateway.api.scans.FIRST_CHUNK_ROWS", 3)
    monkeypatch.setattr("gateway.api.scans.CHUNK_ROWS_MAX", 3)
    scan, service = door.service.snapshots.scan, door.service
    table = service.tables.get("flights")

    async def scan_and_write(*arguments: Any, **more: Any) -> Any:
        rows = await scan(*arguments, **more)
        for row in await service.engine.scan(table.id, None, None, reverse=False, limit=100):
            await service.apply([_deletion(table.id, row.key)])
        return rows

    monkeypatch.setattr(service.snapshots, "scan", scan_and_write)
    answer = await door.http.get(ROWS, params={"snapshot": "true", "columns": "flight"}, headers={"accept": kind})
    if kind == ARROW:
        rows = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    else:
        rows = [json.loads(line) for line in answer.text.splitlines()]
    assert [row["flight"] for row in rows] == list(range(FLIGHTS_MAX))
    assert _held(door) == 0
    assert (await door.http.get(ROWS)).json()["rows"] == []


def _deletion(table: int, key: bytes) -> Any:


    return Record(RecordKind.DELETE, table, key)


async def test_a_snapshot_is_let_go(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_of, "SNAPSHOT_IDLE_S", 0.0)
    await _write(plain, "upsert", range(3))
    page = await _page(plain, limit=1)
    while _held(plain):
        await _turn()
    answer = await plain.http.get(ROWS, params={"snapshot": "true", "limit": 1, "page_token": page["next_page_token"]})
    assert "anew" in problem(answer, 410, "history-not-held")["detail"]


async def test_a_snapshot_of_another_process_or_storage_is_gone(plain: DoorClient) -> None:
    await _write(plain, "upsert", range(3))
    for end in (lambda: plain.service.snapshots.release("snapshot-0"), plain.service.engine.reopen):
        page = await _page(plain, limit=1)
        ended = end()
        if ended is not None:
            await ended
        answer = await plain.http.get(ROWS, params={"snapshot": "true", "limit": 1, "page_token": page["next_page_token"]})
        problem(answer, 410, "history-not-held")
        assert _held(plain) == 0


async def test_snapshots_are_few(plain: DoorClient) -> None:
    await _write(plain, "upsert", range(3))
    pages = [await _page(plain, limit=1) for _ in range(as_of.SNAPSHOTS_MAX)]
    answer = await plain.http.get(ROWS, params={"snapshot": "true", "limit": 1})
    problem(answer, 429, "overloaded")
    assert (await plain.http.get(ROWS)).status_code == 200
    last = await _page(plain, limit=5, page_token=pages[0]["next_page_token"])
    assert last["next_page_token"] is None
    await _page(plain, limit=1)


async def test_scans_that_nobody_ends_bar_no_other_for_long(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await _write(plain, "upsert", range(3))
    pages = [await _page(plain, limit=1) for _ in range(as_of.SNAPSHOTS_MAX)]
    await _page(plain, limit=1, page_token=pages[0]["next_page_token"])
    monkeypatch.setattr(as_of, "SNAPSHOT_KEPT_S", 0.0)
    await _page(plain, limit=1)
    assert _held(plain) == as_of.SNAPSHOTS_MAX
    answer = await plain.http.get(ROWS, params={"snapshot": "true", "limit": 1, "page_token": pages[1]["next_page_token"]})
    assert "anew" in problem(answer, 410, "history-not-held")["detail"], "this one was idle for longest"
    await _page(plain, limit=5, page_token=pages[0]["next_page_token"])


async def test_a_scan_that_is_ended_before_its_last_page_holds_nothing(door: DoorClient) -> None:
    await _write(door, "upsert", range(3))
    token = (await _page(door, limit=1))["next_page_token"]
    plain = (await door.http.get(ROWS, params={"limit": 1})).json()["next_page_token"]
    for one in (token, token, plain):
        answer = await door.http.delete(f"/v1/tables/flights/scans/{one}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert _held(door) == 0
    answer = await door.http.get(ROWS, params={"snapshot": "true", "limit": 1, "page_token": token})
    problem(answer, 410, "history-not-held")
    for wrong in ("nonsense", "%2e%2e", token[:-2]):
        answer = await door.http.delete(f"/v1/tables/flights/scans/{wrong}")
        problem(answer, 422, "invalid-input", parameter="page_token")


async def test_a_snapshot_in_use_gives_way_to_nobody(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await _write(plain, "upsert", range(3))
    for _ in range(as_of.SNAPSHOTS_MAX):
        await _page(plain, limit=1)
    monkeypatch.setattr(as_of, "SNAPSHOT_KEPT_S", 0.0)
    for held in plain.service.snapshots._held.values():
        held.uses += 1
    problem(await plain.http.get(ROWS, params={"snapshot": "true", "limit": 1}), 429, "overloaded")
    for held in plain.service.snapshots._held.values():
        held.uses -= 1


async def test_what_names_two_moments_is_refused(plain: DoorClient) -> None:
    version = (await plain.put("UA,1", {}))["version"]
    answer = await plain.http.get(ROWS, params={"snapshot": "true", "as_of": version})
    problem(answer, 422, "invalid-input", parameter="snapshot")
    await _write(plain, "upsert", range(3))
    page = await _page(plain, limit=1)
    answer = await plain.http.get(ROWS, params={"limit": 1, "page_token": page["next_page_token"]})
    problem(answer, 422, "invalid-input", parameter="page_token")


async def _turn() -> None:
    await asyncio.sleep(0)


async def test_a_stream_whose_client_goes_away_lets_the_snapshot_go_without_the_collector(served: DoorClient) -> None:
    """A site collects seldom."""
    for begin in range(0, 6000, 1000):
        await _write(served, "upsert", range(begin, begin + 1000), note="n" * 2000)
    gc.disable()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"GET {ROWS}?snapshot=true HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: {NDJSON}\r\n\r\n".encode())
        assert (await reader.read(100)).startswith(b"HTTP/1.1 200")
        assert _held(served) == 1, "the stream must be under way"
        writer.transport.abort()
        async with asyncio.timeout(20):
            while _held(served):  # noqa: ASYNC110 - nothing else says so
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
