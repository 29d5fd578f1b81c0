"""One row over HTTP. Most tests run over the plain routes and over the hot path, and expect the same of both."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from gateway.service.http_settings import HttpSettings
from tests.gateway.dict_service import base64_of
from tests.gateway.door_client import EMPTY, ROWS, DoorClient, plain_door, problem, served_door
from twinlog.errors import OutcomeUnknown, Overloaded

MSGPACK = {"content-type": "application/x-msgpack", "accept": "application/x-msgpack"}
FULL = {"at": "2013-01-01T05:17:00Z", "delay": -2.5, "raw": base64_of(b"\0\xff"), "note": "ü", "more": {"a": [1, None]}}


async def test_put_get_over_and_delete(door: DoorClient) -> None:
    first = await door.put("UA,1545", FULL)
    assert first["mode"] == "sync"
    assert await door.get("UA,1545") == {"row": {"carrier": "UA", "flight": 1545, **FULL}, "version": first["version"]}
    second = await door.put("UA,1545", {"delay": 1})
    assert second["version"] > first["version"]
    assert (await door.get("UA,1545"))["row"] == {"carrier": "UA", "flight": 1545, **EMPTY, "delay": 1.0}
    gone = await door.http.delete(f"{ROWS}/UA,1545")
    assert gone.json()["version"] > second["version"]
    problem(await door.http.get(f"{ROWS}/UA,1545"), 404, "not-found", table="flights", key="UA,1545")
    assert (await door.http.delete(f"{ROWS}/UA,1545")).status_code == 200


@pytest.mark.parametrize("carrier", ["a,b", "a/b", "a%b", "a:check", "?", "ü 漢", ".", "..", "", "a\0b", "#x&y=z"])
async def test_any_text_is_a_key(door: DoorClient, carrier: str) -> None:
    path = f"{_quoted(carrier)},-7"
    await door.put(path, {"note": "it"})
    assert (await door.get(path))["row"]["carrier"] == carrier
    listed = await door.http.get(ROWS)
    assert [(row["carrier"], row["flight"]) for row in listed.json()["rows"]] == [(carrier, -7)]


def _quoted(text: str) -> str:
    """Every byte percent-encoded, as no client would dare to normalise."""
    return "".join(f"%{byte:02X}" for byte in text.encode())


async def test_the_answer_carries_the_version_as_etag(door: DoorClient) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", json={})
    assert answer.headers["etag"] == f'"{answer.json()["version"]}"'
    read = await door.http.get(f"{ROWS}/UA,1")
    assert read.headers["etag"] == answer.headers["etag"]
    assert (await door.http.get(f"{ROWS}/UA,1", headers={"if-none-match": read.headers["etag"]})).status_code == 304
    assert (await door.http.get(f"{ROWS}/UA,1", headers={"if-none-match": '"1", "2"'})).status_code == 200


async def test_patch_changes_only_what_it_names(door: DoorClient) -> None:
    await door.put("UA,1", FULL)
    answer = await door.http.patch(f"{ROWS}/UA,1", json={"delay": None, "note": "late"})
    assert answer.status_code == 200, answer.text
    assert (await door.get("UA,1"))["row"] == {"carrier": "UA", "flight": 1, **FULL, "delay": None, "note": "late"}
    problem(await door.http.patch(f"{ROWS}/UA,2", json={"note": "x"}), 404, "not-found", outcome="not_applied")


async def test_conditions_on_the_version(door: DoorClient) -> None:
    first = await door.put("UA,1", {}, **{"if-none-match": "*"})
    old = f'"{first["version"]}"'
    taken = await door.http.put(f"{ROWS}/UA,1", json={}, headers={"if-none-match": "*"})
    problem(taken, 412, "precondition-failed", outcome="not_applied")
    second = await door.put("UA,1", {"note": "2"}, **{"if-match": old})
    stale = await door.http.put(f"{ROWS}/UA,1", json={"note": "3"}, headers={"if-match": old})
    problem(stale, 412, "precondition-failed", outcome="not_applied", version=second["version"])
    assert (await door.get("UA,1"))["row"]["note"] == "2"
    await door.put("UA,1", {"note": "4"}, **{"if-match": f'{old}, "{second["version"]}"'})
    excluded = await door.http.delete(f"{ROWS}/UA,9", headers={"if-match": "*"})
    problem(excluded, 412, "precondition-failed")
    version = (await door.get("UA,1"))["version"]
    problem(await door.http.put(f"{ROWS}/UA,1", json={}, headers={"if-none-match": f'"{version}"'}), 412, "precondition-failed")


@pytest.mark.parametrize("tag", [
    "1", "x", 'W/1', 'w/"1"', '"1","', '"1" "2"', '"1"2', '"', "", ",", '"a b"', '*, "1"',
])
async def test_a_tag_that_is_none_is_named(door: DoorClient, tag: str) -> None:
    await door.put("UA,1", {})
    for header in ("If-Match", "If-None-Match"):
        for method, row in (("PUT", {}), ("GET", None)):
            answer = await door.http.request(method, f"{ROWS}/UA,1", json=row, headers={header: tag})
            assert header in problem(answer, 422, "invalid-input")["detail"]


async def test_an_idempotency_key_answers_the_first_outcome(door: DoorClient) -> None:
    first = await door.put("UA,1", {"note": "1"}, **{"idempotency-key": "k1"})
    await door.put("UA,1", {"note": "2"})
    assert await door.put("UA,1", {"note": "1"}, **{"idempotency-key": "k1"}) == first
    assert (await door.get("UA,1"))["row"]["note"] == "2"
    other = await door.http.put(f"{ROWS}/UA,1", json={"note": "3"}, headers={"idempotency-key": "k1"})
    problem(other, 422, "invalid-input", outcome="not_applied")
    elsewhere = await door.http.put(f"{ROWS}/UA,2", json={"note": "1"}, headers={"idempotency-key": "k1"})
    problem(elsewhere, 422, "invalid-input")


async def test_a_body_in_another_order_is_the_same_request(door: DoorClient) -> None:
    keyed = {"idempotency-key": "k1", "content-type": "application/json"}
    url = f"{ROWS}/UA,1"
    body = b'{"note": "1", "more": {"a": 1, "b": [{"x": 1, "y": 2}]}, "delay": 2}'
    first = await door.http.put(url, content=body, headers=keyed)
    other = b'{"delay":2,"more":{"b":[{"y":2,"x":1}],"a":1},"note":"\\u0031"}'
    assert (await door.http.put(url, content=other, headers=keyed)).json() == first.json()
    for different in (other.replace(b"2,", b"3,"), other.replace(b"y", b"z"), other.replace(b"u0031", b"u0032")):
        problem(await door.http.put(url, content=different, headers=keyed), 422, "invalid-input")
    conditional = {"idempotency-key": "k2", "if-match": "*"}
    assert (await door.http.put(url, json={}, headers=conditional)).status_code == 200
    problem(await door.http.put(url, json={}, headers=conditional | {"if-match": '"1"'}), 422, "invalid-input")


async def test_a_refused_write_is_refused_again_under_its_key(door: DoorClient) -> None:
    keyed = {"idempotency-key": "k1", "if-none-match": "*"}
    row = await door.put("UA,1", {"note": "1"})
    refused = problem(await door.http.put(f"{ROWS}/UA,1", json={"note": "2"}, headers=keyed), 412, "precondition-failed")
    assert (await door.http.delete(f"{ROWS}/UA,1")).status_code == 200
    again = problem(await door.http.put(f"{ROWS}/UA,1", json={"note": "2"}, headers=keyed), 412, "precondition-failed")
    assert again == refused
    assert again["version"] == row["version"]
    problem(await door.http.get(f"{ROWS}/UA,1"), 404, "not-found")
    problem(await door.http.put(f"{ROWS}/UA,1", json={"note": "3"}, headers=keyed), 422, "invalid-input")
    await door.put("UA,1", {"note": "2"}, **{"idempotency-key": "k2", "if-none-match": "*"})


async def test_a_repeated_write_is_answered_though_its_table_has_changed(door: DoorClient) -> None:
    """Found by the simulator, seed 145: told `not_applied` by a table that no longer takes what it took before."""
    keyed = {"idempotency-key": "k1"}
    first = await door.put("UA,1", {"note": "1"}, **keyed)
    changed = (await door.http.patch(f"{ROWS}/UA,1", json={"note": "2"}, headers={"idempotency-key": "k2"})).json()
    row = {"carrier": "UA", "flight": 1, "note": "3"}
    checked = {"conditions": [{"exists": True}], "mutations": [{"op": "upsert", "row": row}]}
    check = (await door.http.post(f"{ROWS}/UA,1:check", json=checked, headers={"idempotency-key": "k3"})).json()
    batch = {"mutations": [{"op": "upsert", "row": {"carrier": "UA", "flight": 2, "note": "x"}}]}
    batched = (await door.http.post(f"{ROWS}:mutate", json=batch, headers={"idempotency-key": "k4"})).json()
    gone = (await door.http.delete(f"{ROWS}/UA,2", headers={"idempotency-key": "k5"})).json()
    dropped = await door.http.patch(ROWS.removesuffix("/rows"), json={"drop": ["note"]})
    assert dropped.status_code == 200, dropped.text
    assert await door.put("UA,1", {"note": "1"}, **keyed) == first
    assert (await door.http.patch(f"{ROWS}/UA,1", json={"note": "2"}, headers={"idempotency-key": "k2"})).json() == changed
    assert (await door.http.post(f"{ROWS}/UA,1:check", json=checked, headers={"idempotency-key": "k3"})).json() == check
    assert (await door.http.post(f"{ROWS}:mutate", json=batch, headers={"idempotency-key": "k4"})).json() == batched
    new = await door.http.put(f"{ROWS}/UA,3", json={"note": "1"}, headers={"idempotency-key": "k6"})
    problem(new, 422, "invalid-input", outcome="not_applied")
    assert (await door.http.delete(ROWS.removesuffix("/rows") + "?confirm=flights")).status_code == 204
    assert await door.put("UA,1", {"note": "1"}, **keyed) == first
    assert (await door.http.delete(f"{ROWS}/UA,2", headers={"idempotency-key": "k5"})).json() == gone
    problem(await door.http.put(f"{ROWS}/UA,3", json={}, headers={"idempotency-key": "k6"}), 404, "not-found")


@pytest.mark.parametrize("key", ["", "a b", "x" * 129, "a\tb"])
async def test_an_idempotency_key_has_a_form(door: DoorClient, key: str) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", json={}, headers={"idempotency-key": key})
    assert "Idempotency-Key" in problem(answer, 422, "invalid-input")["detail"]


async def test_the_longest_idempotency_key(door: DoorClient) -> None:
    await door.put("UA,1", {}, **{"idempotency-key": "~" * 128})


@pytest.mark.parametrize(("given", "seconds"), [(None, 10.0), ("2.5", 2.5), ("3600", 60.0)])
async def test_the_deadline_is_passed_on(door: DoorClient, given: str | None, seconds: float) -> None:
    await door.put("UA,1", {}, **({} if given is None else {"twinlog-deadline-s": given}))
    assert door.service.deadlines_s == [seconds]


@pytest.mark.parametrize("given", ["0", "-1", "soon", "nan", "inf", ""])
async def test_a_deadline_has_a_form(door: DoorClient, given: str) -> None:
    answer = await door.http.put(f"{ROWS}/UA,1", json={}, headers={"twinlog-deadline-s": given})
    assert "Twinlog-Deadline-S" in problem(answer, 422, "invalid-input")["detail"]
    assert door.service.deadlines_s == []


async def test_msgpack_carries_native_values(door: DoorClient) -> None:
    row = {"raw": b"\0\xff", "at": 1_357_017_420_000_000, "delay": float("inf")}
    answer = await door.http.put(f"{ROWS}/UA,1", content=msgspec.msgpack.encode(row), headers=MSGPACK)
    assert set(msgspec.msgpack.decode(answer.content)) == {"version", "receipt", "mode"}
    read = await door.http.get(f"{ROWS}/UA,1", headers=MSGPACK)
    assert read.headers["content-type"] == "application/x-msgpack"
    assert msgspec.msgpack.decode(read.content)["row"] == {"carrier": "UA", "flight": 1, **EMPTY, **row}
    assert (await door.get("UA,1"))["row"]["at"] == "2013-01-01T05:17:00Z"


async def test_some_columns(door: DoorClient) -> None:
    await door.put("UA,1", FULL)
    assert (await door.get("UA,1", "?columns=note,carrier"))["row"] == {"carrier": "UA", "note": "ü"}
    problem(await door.http.get(f"{ROWS}/UA,1?columns=note,colour"), 422, "invalid-input", column="colour")
    problem(await door.http.get(f"{ROWS}/UA,1?columns=note,"), 422, "invalid-input", parameter="columns")


async def test_as_of_a_version_or_a_time(door: DoorClient) -> None:
    first = await door.put("UA,1", {"note": "1"})
    second = await door.put("UA,1", {"note": "2"})
    assert (await door.get("UA,1", f"?as_of={first['version']}"))["row"]["note"] == "1"
    assert (await door.get("UA,1", f"?as_of={second['version']}"))["row"]["note"] == "2"
    assert (await door.get("UA,1", "?as_of=2023-11-14T22:13:20Z"))["row"]["note"] == "2"  # the millisecond of both
    problem(await door.http.get(f"{ROWS}/UA,1?as_of=2023-11-14T22:13:19.999Z"), 404, "not-found")
    for wrong in ("yesterday", "-1", "1969-12-31T00:00:00Z", "9" * 21):
        document = problem(await door.http.get(f"{ROWS}/UA,1?as_of={wrong}"), 422, "invalid-input")
        assert "as_of" in document["detail"]


async def test_every_read_names_the_schema_of_its_rows(door: DoorClient) -> None:
    await door.put("UA,1", FULL)
    lines = {"accept": "application/x-ndjson"}

    async def named() -> set[str]:
        asked = [(f"{ROWS}/UA,1", {}), (ROWS, {}), (ROWS, lines), ("/v1/tables/flights", {})]
        return {(await door.http.get(path, headers=headers)).headers["twinlog-schema"] for path, headers in asked}

    (before,) = await named()
    for change in ({"drop": ["note"]}, {"add": [{"name": "note", "type": "decimal"}]}):
        assert (await door.http.patch("/v1/tables/flights", json=change)).status_code == 200
    (after,) = await named()
    assert after != before


@pytest.mark.parametrize(("error", "status", "members"), [
    (Overloaded("full: try again", retry_after_s=2), 429, {"outcome": "not_applied", "retry_after_s": 2}),
    (OutcomeUnknown("ask the receipt"), 504, {"outcome": "unknown"}),
    (RuntimeError("boom"), 500, {"outcome": "unknown"}),
])
async def test_a_failed_write_says_what_is_known(
    door: DoorClient, error: Exception, status: int, members: dict[str, Any]
) -> None:
    door.service.failure = error
    answer = await door.http.put(f"{ROWS}/UA,1", json={})
    problem(answer, status, getattr(error, "code", "internal"), **members)
    assert answer.headers.get("retry-after") == ("2" if status == 429 else None)
    assert "boom" not in answer.text


async def test_row_and_key_limits() -> None:
    config = HttpSettings(row_bytes_max=200, key_bytes_max=32)
    async with plain_door(config) as plain, served_door(config) as served:
        for door in (plain, served):
            problem(await door.http.put(f"{ROWS}/UA,1", json={"note": "x" * 200}), 413, "too-large", row_bytes_max=200)
            problem(await door.http.put(f"{ROWS}/{'U' * 40},1", json={}), 413, "too-large", key_bytes_max=32)
            await door.put("UA,1", {"note": "x" * 100})


async def test_many_at_once_on_many_connections(served: DoorClient) -> None:
    keys = [f"UA,{number}" for number in range(200)]
    await asyncio.gather(*(served.put(key, {"note": key}) for key in keys))
    assert [(await served.get(key))["row"]["note"] for key in keys] == keys


async def test_the_plain_and_the_hot_answer_are_the_same_bytes() -> None:
    async with plain_door() as plain, served_door() as served:
        for method, path, headers, content in (
            ("PUT", "UA,1", {}, b'{"note": "x"}'), ("PUT", "UA,1", {"if-none-match": "*"}, b"{}"), ("PUT", "UA", {}, b"{}"),
            ("PUT", "UA,1", {"content-type": "text/csv"}, b"{}"), ("PUT", "UA,1", {"accept": "text/html"}, b"{}"),
            ("GET", "UA,1", {}, b""), ("GET", "UA,2", {}, b""), ("PUT", "UA,1", {}, b"{"), ("PUT", "UA,1", {}, b"[]"),
            ("PUT", "UA,1", {"idempotency-key": ""}, b"{}"), ("GET", "UA,1", {"accept": "application/x-msgpack"}, b""),
        ):
            sent = {"content-type": "application/json", **headers}
            one, two = [
                await door.http.request(method, f"{ROWS}/{path}", headers=sent, content=content) for door in (plain, served)
            ]
            assert (one.status_code, one.content) == (two.status_code, two.content)
            assert _without_date(one) == _without_date(two)


def _without_date(answer: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name != "date"}
