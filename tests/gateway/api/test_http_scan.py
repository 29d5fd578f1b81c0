"""Scans over HTTP: pages, tokens, filters, streams."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import httpx
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.api import scans
from gateway.service.http_settings import HttpSettings
from tests.gateway.door_client import ROWS, DoorClient, plain_door, problem, served_door

ARROW = "application/vnd.apache.arrow.stream"
KEYS = [(carrier, flight) for carrier in ("AA", "B6", "UA") for flight in range(10)]


async def _filled(door: DoorClient) -> None:
    mutations = [
        {"op": "upsert", "row": {"carrier": carrier, "flight": flight, "delay": flight * 1.5}} for carrier, flight in KEYS
    ]
    assert (await door.http.post(f"{ROWS}:mutate", json={"mutations": mutations})).status_code == 200


async def _scan(door: DoorClient, **query: Any) -> httpx.Response:
    return await door.http.get(f"{ROWS}?{urlencode(query, doseq=True)}")


def _keys(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(row["carrier"], row["flight"]) for row in rows]


async def _all_pages(door: DoorClient, **query: Any) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    token: dict[str, str] = {}
    while True:
        page = (await _scan(door, **query, **token)).json()
        assert len(page["rows"]) == len(page["versions"]) <= query.get("limit", 1000)
        found += _keys(page["rows"])
        if page["next_page_token"] is None:
            return found
        token = {"page_token": page["next_page_token"]}


async def test_a_whole_table_in_order_with_versions(plain: DoorClient) -> None:
    await _filled(plain)
    page = (await _scan(plain)).json()
    assert _keys(page["rows"]) == KEYS
    assert page["next_page_token"] is None
    assert page["versions"][0] == (await plain.get("AA,0"))["version"]


@pytest.mark.parametrize("limit", [1, 7, 10, 29, 30, 31])
@pytest.mark.parametrize("reverse", [False, True])
async def test_pages_are_the_whole(plain: DoorClient, limit: int, reverse: bool) -> None:
    await _filled(plain)
    expected = KEYS[::-1] if reverse else KEYS
    assert await _all_pages(plain, limit=limit, reverse=str(reverse).lower()) == expected


async def test_the_last_full_page_has_no_token(plain: DoorClient) -> None:
    await _filled(plain)
    assert (await _scan(plain, limit=30)).json()["next_page_token"] is None


@given(
    start=st.sampled_from([None, "AA", "AA,3", "B6,9", "C", "UA,4", "zz"]),
    end=st.sampled_from([None, "A", "AA,5", "B6", "UA,0", "V"]),
    reverse=st.booleans(), limit=st.integers(1, 40), below=st.one_of(st.none(), st.floats(0, 20)), chunk=st.integers(1, 8),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_range_page_and_filter_against_a_list(
    plain: DoorClient, start: str | None, end: str | None, reverse: bool, limit: int, below: float | None, chunk: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scans, "FIRST_CHUNK_ROWS", chunk)
    if not (await _scan(plain, limit=1)).json()["rows"]:
        await _filled(plain)

    def bound(text: str) -> tuple[Any, ...]:
        parts = text.split(",")
        return (parts[0], *map(int, parts[1:]))

    expected = [
        key for key in KEYS
        if (start is None or key >= bound(start)) and (end is None or key < bound(end))
        and (below is None or key[1] * 1.5 < below)
    ]
    query: dict[str, Any] = {"limit": limit, "reverse": str(reverse).lower()}
    query |= {name: value for name, value in (("start", start), ("end", end)) if value is not None}
    if below is not None:
        query["where"] = json.dumps({"column": "delay", "op": "<", "value": below})
    assert await _all_pages(plain, **query) == (expected[::-1] if reverse else expected)


async def test_several_where_must_all_hold(plain: DoorClient) -> None:
    await _filled(plain)
    where = ['[{"column": "carrier", "op": "in", "value": ["AA", "UA"]}]', '{"column": "flight", "op": ">=", "value": 9}']
    assert _keys((await _scan(plain, where=where)).json()["rows"]) == [("AA", 9), ("UA", 9)]


async def test_a_filter_that_matches_little_ends_its_page_in_time(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await _filled(plain)
    monkeypatch.setattr(scans, "FIRST_CHUNK_ROWS", 4)
    monkeypatch.setattr(scans, "CHUNK_ROWS_MAX", 4)
    monkeypatch.setattr(scans, "EXAMINED_ROWS_MAX", 8)
    where = '{"column": "carrier", "op": "=", "value": "UA"}'
    first = (await _scan(plain, where=where)).json()
    assert (first["rows"], plain.service.scanned_rows) == ([], 8)
    assert first["next_page_token"] is not None
    assert await _all_pages(plain, where=where) == KEYS[20:]


async def test_a_page_ends_early_when_its_rows_are_large(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await _filled(plain)
    monkeypatch.setattr(scans, "PAGE_BYTES", 100)
    assert 0 < len((await _scan(plain)).json()["rows"]) < 10
    assert await _all_pages(plain) == KEYS


async def test_columns_and_as_of(plain: DoorClient) -> None:
    await _filled(plain)
    version = (await plain.get("UA,9"))["version"]
    await plain.put("ZZ,1", {})
    page = (await _scan(plain, columns="delay", as_of=version, start="UA,8")).json()
    assert page["rows"] == [{"delay": 12.0}, {"delay": 13.5}]


async def test_a_bound_with_odd_letters(plain: DoorClient) -> None:
    await plain.put("a%2Cb,1", {})
    await plain.put("a,1", {})
    assert _keys((await _scan(plain, start="a%2Cb")).json()["rows"]) == [("a,b", 1)]


async def test_lines_for_those_who_ask(door: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "FIRST_CHUNK_ROWS", 4)
    await _filled(door)
    answer = await door.http.get(ROWS, headers={"accept": "application/x-ndjson"})
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    assert _keys([json.loads(line) for line in answer.text.splitlines()]) == KEYS
    limited = await door.http.get(f"{ROWS}?limit=6&reverse=true", headers={"accept": "application/x-ndjson"})
    assert _keys([json.loads(line) for line in limited.text.splitlines()]) == KEYS[:-7:-1]
    nothing = await door.http.get(f"{ROWS}?start=zz", headers={"accept": "application/x-ndjson"})
    assert (nothing.status_code, nothing.text) == (200, "")


async def test_a_stream_that_fails_begins_with_a_problem_or_breaks(served: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scans, "FIRST_CHUNK_ROWS", 4)
    await _filled(served)
    lines = {"accept": "application/x-ndjson"}
    ends = served.service.scan

    async def scan(*args: Any, **kwargs: Any) -> Any:
        rows = await ends(*args, **kwargs)
        served.service.role_now = "FENCED"
        return rows

    monkeypatch.setattr(served.service, "scan", scan)
    with pytest.raises(httpx.RemoteProtocolError):
        await served.http.get(ROWS, headers=lines)
    problem(await served.http.get(ROWS, headers=lines), 503, "unavailable")


async def test_a_page_in_msgpack(plain: DoorClient) -> None:
    await plain.put("UA,1", {"raw": "AP8="})
    answer = await plain.http.get(ROWS, headers={"accept": "application/x-msgpack"})
    assert msgspec.msgpack.decode(answer.content)["rows"][0]["raw"] == b"\0\xff"


async def test_a_token_is_bound_to_its_query(plain: DoorClient) -> None:
    await _filled(plain)
    token = (await _scan(plain, limit=3, start="AA")).json()["next_page_token"]
    assert _keys((await _scan(plain, limit=5, start="AA", page_token=token)).json()["rows"]) == KEYS[3:8]
    other = {"name": "other", "columns": [{"name": "k", "type": "string"}], "primary_key": ["k"]}
    await plain.http.post("/v1/tables", json=other)
    for query in ({"start": "B6"}, {}, {"start": "AA", "reverse": "true"}, {"start": "AA", "columns": "delay"}):
        problem(await _scan(plain, limit=3, page_token=token, **query), 422, "invalid-input", parameter="page_token")
    elsewhere = await plain.http.get(f"/v1/tables/other/rows?start=AA&page_token={token}")
    problem(elsewhere, 422, "invalid-input", parameter="page_token")


@pytest.mark.parametrize("token", ["", "x", "%00", "AAAA", "kwHECO-9v18", "ü" * 30, "A" * 5000])
async def test_a_bad_token_is_refused(plain: DoorClient, token: str) -> None:
    problem(await _scan(plain, page_token=token), 422, "invalid-input", parameter="page_token")


@pytest.mark.parametrize(("query", "members"), [
    ({"where": "delay>3"}, {"parameter": "where"}), ({"where": '{"column": "x", "op": "=", "value": 1}'}, {"column": "x"}),
    ({"where": "3"}, {}), ({"where": '[{"column": "delay"}]'}, {}), ({"start": "AA,x"}, {"column": "flight"}),
    ({"end": "AA,1,2"}, {}), ({"columns": "x"}, {"column": "x"}), ({"limit": "10001"}, {"parameter": "limit"}),
])
async def test_a_bad_parameter_is_named(plain: DoorClient, query: dict[str, str], members: dict[str, Any]) -> None:
    problem(await _scan(plain, **query), 422, "invalid-input", **members)


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=", "reverse=perhaps", "stale=2"])
async def test_a_parameter_of_the_wrong_form_is_named(plain: DoorClient, query: str) -> None:
    document = problem(await plain.http.get(f"{ROWS}?{query}"), 422, "invalid-input")
    assert document["faults"][0]["name"] == query.partition("=")[0]


async def test_a_standby_scans_on_request() -> None:
    async with plain_door(HttpSettings()) as door:
        await _filled(door)
        door.service.role_now = "STANDBY"
        problem(await _scan(door), 421, "not-active")
        answer = await _scan(door, stale="true", limit=1)
        assert 0 <= float(answer.headers["twinlog-stale"]) < 5
        lines = await door.http.get(f"{ROWS}?stale=true&limit=1", headers={"accept": "application/x-ndjson"})
        assert 0 <= float(lines.headers["twinlog-stale"]) < 5


@pytest.mark.parametrize("as_of", ["9999-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", str(2**63), str(2**64 - 1), "9" * 20])
async def test_a_time_that_no_row_has_is_refused(plain: DoorClient, as_of: str) -> None:
    """Later than a database's bigint: SQL answered 500."""
    await _filled(plain)
    problem(await _scan(plain, as_of=as_of), 422, "invalid-input")
    problem(await plain.http.get(f"{ROWS}/UA,1?as_of={as_of}"), 422, "invalid-input")
    assert (await _scan(plain, as_of=2**63 - 1)).status_code == 200


@pytest.mark.parametrize("where", ["[" * 5000, '{"a":' * 5000, "[" * 5000 + "]" * 5000])
async def test_a_where_that_is_nested_too_deep_is_refused(plain: DoorClient, where: str) -> None:
    problem(await _scan(plain, where=where), 422, "invalid-input", parameter="where")


@pytest.mark.parametrize("rows", [0, 3, 1500])
async def test_an_arrow_stream_has_every_row_and_goes_in_again(rows: int) -> None:
    accepted = {"accept": ARROW}
    async with served_door() as door:
        sent = [{"carrier": "UA", "flight": number, "delay": number / 4, "more": {"n": number}} for number in range(rows)]
        if sent:
            body = {"mutations": [{"op": "upsert", "row": row} for row in sent]}
            assert (await door.http.post(f"{ROWS}:mutate", json=body)).status_code == 200
        answer = await door.http.get(ROWS, headers=accepted)
        assert answer.headers["content-type"] == ARROW
        assert answer.headers["twinlog-schema"]
        table = pa.ipc.open_stream(answer.content).read_all()
        assert table.column_names == ["carrier", "flight", "at", "delay", "raw", "note", "more"]
        assert table.column("flight").to_pylist() == list(range(rows))
        before = (await door.http.get(ROWS, params={"limit": 1500})).json()["rows"]
        if rows:
            again = await door.http.post(f"{ROWS}:mutate", content=answer.content, headers={"content-type": ARROW})
            assert again.json()["count"] == rows
        assert (await door.http.get(ROWS, params={"limit": 1500})).json()["rows"] == before
        where = json.dumps([{"column": "flight", "op": "<", "value": 2}])
        some = await door.http.get(ROWS, params={"columns": "flight", "where": where, "limit": 1}, headers=accepted)
        assert pa.ipc.open_stream(some.content).read_all().to_pylist() == [{"flight": 0}][:rows]
        refused = await door.http.get(ROWS, params={"columns": "nope"}, headers=accepted)
        problem(refused, 422, "invalid-input", column="nope")
