"""Batches and check-and-mutate over HTTP, in every content type."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from gateway.service.http_settings import HttpSettings
from tests.gateway.door_client import EMPTY, ROWS, DoorClient, plain_door, problem

MUTATE = f"{ROWS}:mutate"
UA1, UA2 = {"carrier": "UA", "flight": 1}, {"carrier": "UA", "flight": 2}


def _mutations() -> list[dict[str, Any]]:
    return [
        {"op": "upsert", "row": {**UA1, "note": "one"}}, {"op": "insert", "row": {**UA2, "delay": 2.0}},
        {"op": "update", "row": {**UA1, "delay": 1.0}}, {"op": "delete", "key": {"carrier": "AA", "flight": 9}},
    ]


async def _send(door: DoorClient, content: bytes, kind: str, **headers: str) -> httpx.Response:
    return await door.http.post(MUTATE, content=content, headers={"content-type": kind, **headers})


@pytest.mark.parametrize(("kind", "encode"), [
    ("application/json", lambda m: msgspec.json.encode({"mutations": m})),
    ("application/x-msgpack", lambda m: msgspec.msgpack.encode({"mutations": m})),
    ("application/x-ndjson", msgspec.json.Encoder().encode_lines),
])
async def test_a_batch_in_every_form(door: DoorClient, kind: str, encode: Any) -> None:
    await door.put("AA,9", {})
    answer = await _send(door, encode(_mutations()), kind)
    assert answer.status_code == 200, answer.text
    assert answer.json()["count"] == 4
    assert answer.headers["etag"] == f'"{answer.json()["version"]}"'
    assert (await door.get("UA,1"))["row"] == {**UA1, **EMPTY, "note": "one", "delay": 1.0}
    assert (await door.get("UA,2"))["row"] == {**UA2, **EMPTY, "delay": 2.0}
    problem(await door.http.get(f"{ROWS}/AA,9"), 404, "not-found")


def _arrow(rows: int = 3, **columns: Any) -> bytes:
    table = pa.table({
        "carrier": pa.array(["UA"] * rows), "flight": pa.array(range(rows), pa.int32()),
        "delay": pa.array([0.5] * rows), **columns,
    })
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


ARROW = "application/vnd.apache.arrow.stream"


async def test_an_arrow_stream_of_upserts(door: DoorClient) -> None:
    answer = await _send(door, _arrow(), ARROW)
    assert answer.json()["count"] == 3
    assert (await door.get("UA,2"))["row"] == {**UA2, **EMPTY, "delay": 0.5}


async def test_a_truncated_arrow_stream_writes_nothing(plain: DoorClient) -> None:
    whole = _arrow()
    for cut in range(0, len(whole), 37):
        problem(await _send(plain, whole[:cut], ARROW), 400, "malformed-body", outcome="not_applied")
    assert (await plain.http.get(ROWS)).json()["rows"] == []


async def test_an_arrow_stream_with_wrong_columns(plain: DoorClient) -> None:
    problem(await _send(plain, _arrow(colour=pa.array(["red"] * 3)), ARROW), 422, "invalid-input", column="colour")
    problem(await _send(plain, _arrow(note=pa.array([1, 2, 3])), ARROW), 422, "invalid-input", column="note")
    assert "no row" in problem(await _send(plain, _arrow(0), ARROW), 422, "invalid-input")["detail"]


async def test_an_idempotent_batch_is_done_once(door: DoorClient) -> None:
    body = msgspec.json.encode({"mutations": _mutations()})
    first = await _send(door, body, "application/json", **{"idempotency-key": "b1"})
    again = await _send(door, body, "application/json", **{"idempotency-key": "b1"})
    assert again.json() == first.json()  # the insert would conflict, were it done again


@pytest.mark.parametrize(("kind", "encode"), [
    ("application/json", lambda m: msgspec.json.encode({"mutations": m})),
    ("application/json", lambda m: msgspec.json.format(msgspec.json.encode({"mutations": m}), indent=3)),
    ("application/x-msgpack", lambda m: msgspec.msgpack.encode({"mutations": m})),
    ("application/x-ndjson", lambda m: b"\n\n".join(map(msgspec.json.encode, m))),
])
async def test_a_batch_in_another_order_of_members_is_the_same_request(door: DoorClient, kind: str, encode: Any) -> None:
    sent, keyed = _mutations(), {"idempotency-key": "b1"}
    first = await _send(door, encode(sent), kind, **keyed)
    again = await _send(door, encode(_turned(sent)), kind, **keyed)
    assert again.json() == first.json()
    with_nulls = [{"key": None, "row": None, **mutation} for mutation in sent]
    assert (await _send(door, encode(with_nulls), kind, **keyed)).json() == first.json()
    changed = [*sent[:-1], {"op": "delete", "key": {"carrier": "AA", "flight": 8}}]
    for different in (sent[::-1], sent[:-1], changed):
        problem(await _send(door, encode(different), kind, **keyed), 422, "invalid-input")


async def test_a_check_in_another_order_of_members_is_the_same_request(door: DoorClient) -> None:
    body = {"conditions": [{"exists": False}], "mutations": [{"op": "insert", "row": {**UA1, "note": "one"}}]}
    keyed, url = {"idempotency-key": "c1", "content-type": "application/json"}, f"{ROWS}/UA,1:check"
    first = await door.http.post(url, content=msgspec.json.encode(body), headers=keyed)
    again = await door.http.post(url, content=msgspec.json.encode(_turned(body)), headers=keyed)
    assert again.json() == first.json()
    other = {**body, "conditions": [{"exists": True}]}
    problem(await door.http.post(url, json=other, headers=keyed), 422, "invalid-input")


def _turned(value: Any) -> Any:
    """The same JSON with the members of every object from the last to the first."""
    if isinstance(value, list):
        return [_turned(item) for item in value]
    if isinstance(value, dict):
        return {name: _turned(item) for name, item in reversed(value.items())}
    return value


async def test_all_or_nothing(door: DoorClient) -> None:
    await door.put("UA,2", {"note": "there"})
    taken = await door.http.post(MUTATE, json={"mutations": _mutations()})
    problem(taken, 409, "conflict", outcome="not_applied")
    problem(await door.http.get(f"{ROWS}/UA,1"), 404, "not-found")


async def test_a_fault_names_its_mutation(plain: DoorClient) -> None:
    for broken, members in (
        ({"op": "upsert", "row": {"carrier": "UA"}}, {"column": "flight"}),
        ({"op": "upsert", "row": {**UA1, "delay": "x"}}, {"column": "delay"}),
        ({"op": "update", "row": {"carrier": "UA", "note": "x"}}, {"column": "flight"}),
        ({"op": "update", "row": UA1}, {}),
        ({"op": "delete", "key": {**UA1, "note": "x"}}, {"column": "note"}),
        ({"op": "delete", "row": UA1}, {}),
        ({"op": "upsert", "row": UA1, "key": UA1}, {}),
        ({"op": "upsert"}, {}),
        ({"op": "upsert", "row": None}, {}),
    ):
        answer = await plain.http.post(MUTATE, json={"mutations": [_mutations()[0], broken]})
        problem(answer, 422, "invalid-input", mutation=1, outcome="not_applied", **members)
    assert plain.service.deadlines_s == []


@pytest.mark.parametrize("mutation", [{"op": "upsert", "row": None}, {"op": "insert"}, {"op": "delete", "key": None}])
async def test_a_member_that_is_null_is_one_that_is_left_out(plain: DoorClient, mutation: dict[str, Any]) -> None:
    for encode, kind in ((msgspec.json.encode, "application/json"), (msgspec.msgpack.encode, "application/x-msgpack")):
        answer = await _send(plain, encode({"mutations": [mutation]}), kind)
        assert f'{mutation["op"]} takes "' in problem(answer, 422, "invalid-input", mutation=0)["detail"]


async def test_a_row_of_a_batch_is_no_longer_than_a_row_alone(plain: DoorClient) -> None:
    longest = plain.app.context.http.row_body_bytes_max
    for spaces, status in ((longest - 100, 200), (longest, 413)):
        row = b'{"carrier":"UA","flight":1' + b" " * spaces + b"}"
        answer = await _send(plain, b'{"mutations":[{"op":"upsert","row":' + row + b"}]}", "application/json")
        assert answer.status_code == status, answer.text
    problem(answer, 413, "too-large", mutation=0, body_bytes_max=longest)


async def test_a_key_that_is_inserted_twice_is_named(plain: DoorClient) -> None:
    insert = {"op": "insert", "row": {"carrier": "a,b", "flight": 1}}
    answer = await plain.http.post(MUTATE, json={"mutations": [insert, {"op": "upsert", "row": UA1}, insert]})
    document = problem(answer, 422, "invalid-input", key="a%2Cb,1", mutation=2)
    assert "0 and 2" in document["detail"]
    upserts = [{"op": "upsert", "row": UA1}] * 2
    assert (await plain.http.post(MUTATE, json={"mutations": upserts})).status_code == 200


async def test_a_batch_of_a_hundred_thousand_rows_is_too_large(plain: DoorClient) -> None:
    rows = [{"op": "upsert", "row": {"carrier": "UA", "flight": n}} for n in range(100_000)]
    lines = msgspec.json.Encoder().encode_lines(rows)
    problem(await _send(plain, lines, "application/x-ndjson"), 413, "too-large", rows=100_000, batch_rows_max=10_000)
    problem(await _send(plain, _arrow(100_000), ARROW), 413, "too-large")
    assert (await plain.http.get(ROWS)).json()["rows"] == []


async def test_the_largest_batch_is_written_while_others_are_served(served: DoorClient) -> None:
    batch = [{"op": "upsert", "row": {"carrier": "UA", "flight": n}} for n in range(10_000)]
    answer = await served.http.post(MUTATE, json={"mutations": batch})
    assert answer.json()["count"] == 10_000


async def test_the_limit_of_the_body() -> None:
    async with plain_door(HttpSettings(body_bytes_max=1024)) as door:
        problem(await door.http.post(MUTATE, content=b" " * 1025), 413, "too-large", body_bytes_max=1024)

        async def in_parts() -> Any:
            for _ in range(5):
                yield b" " * 300

        problem(await door.http.post(MUTATE, content=in_parts()), 413, "too-large", body_bytes_max=1024)


# ---- check-and-mutate
CHECK = f"{ROWS}/UA,1:check"


async def _check(door: DoorClient, *conditions: dict[str, Any]) -> httpx.Response:
    body = {"conditions": conditions, "mutations": [{"op": "upsert", "row": {**UA2, "note": "done"}}]}
    return await door.http.post(CHECK, json=body)


async def test_mutations_follow_a_check_that_holds(door: DoorClient) -> None:
    version = (await door.put("UA,1", {"delay": 5.0}))["version"]
    answer = await _check(
        door, {"version": version}, {"exists": True}, {"column": "delay", "op": "<", "value": 6},
        {"column": "raw", "op": "is_null"},
    )
    assert answer.status_code == 200, answer.text
    assert (await door.get("UA,2"))["row"]["note"] == "done"


@pytest.mark.parametrize("condition", [
    {"version": 1}, {"version": "1"}, {"exists": False}, {"column": "delay", "op": ">", "value": 5},
    {"column": "carrier", "op": "!=", "value": "UA"},
])
async def test_a_check_that_does_not_hold_writes_nothing(door: DoorClient, condition: dict[str, Any]) -> None:
    await door.put("UA,1", {"delay": 5.0})
    document = problem(await _check(door, {"exists": True}, condition), 412, "precondition-failed", outcome="not_applied")
    assert "UA,1" in document["detail"]
    problem(await door.http.get(f"{ROWS}/UA,2"), 404, "not-found")


async def test_a_row_that_is_absent_satisfies_only_its_absence(door: DoorClient) -> None:
    problem(await _check(door, {"column": "raw", "op": "is_null"}), 412, "precondition-failed")
    assert (await _check(door, {"exists": False})).status_code == 200


@pytest.mark.parametrize(("condition", "members"), [
    ({"column": "colour", "op": "=", "value": 1}, {"column": "colour"}),
    ({"column": "delay", "op": "~", "value": 1}, {"op": "~"}),
    ({"column": "delay", "op": "=", "value": "x"}, {"column": "delay"}), ({"version": "1x"}, {"condition": 0}),
    ({"version": True}, {"condition": 0}), ({"exists": True, "version": 1}, {"condition": 0}), ({}, {"condition": 0}),
])
async def test_a_condition_has_a_form(plain: DoorClient, condition: dict[str, Any], members: dict[str, Any]) -> None:
    problem(await _check(plain, condition), 422, "invalid-input", **members)


async def test_a_check_needs_conditions_and_mutations(plain: DoorClient) -> None:
    problem(await _check(plain), 422, "invalid-input", member="conditions")
    problem(await plain.http.post(CHECK, json={"conditions": [{"exists": False}], "mutations": []}), 422, "invalid-input")


@pytest.mark.parametrize(("lines", "line", "words"), [
    (b'{"op":"delete","key":{"carrier":"UA","flight":1}}\n\n{"op":"delete","key":{"carrier":"UA","flight":"x"}}', 3, "flight"),
    (b'{"op":"delete","key":{"carrier":"UA","flight":1}}\n{"op":"guess"}\n', 2, "op"),
    (b'{"op":"delete","key":{"carrier":"UA","flight":1}}\n\n{"op":\n', 3, "truncated"),
])
async def test_a_fault_in_lines_names_the_line(plain: DoorClient, lines: bytes, line: int, words: str) -> None:
    answer = await _send(plain, lines, "application/x-ndjson")
    assert answer.status_code in (400, 422)
    assert answer.json()["line"] == line
    assert answer.json()["detail"].startswith(f"line {line}: ")
    assert words in answer.json()["detail"]


async def test_a_condition_that_does_not_hold_names_the_key_as_the_path_has_it(plain: DoorClient) -> None:
    await plain.put("UA,1", {})
    insert = {"mutations": [{"op": "insert", "row": UA1}]}
    problem(await plain.http.post(MUTATE, json=insert), 409, "conflict", key="UA,1")
