"""Versions and int64 values in JSON: what a double does not hold is text, or can be.

tests/gateway/documented.py looks at every answer of every other test for an integer that JavaScript would change.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tests.gateway.door_client import ROWS, DoorClient, problem
from twinlog import errors
from twinlog.problem_documents import error_from_problem

COUNTS: dict[str, Any] = {
    "name": "counts",
    "columns": [{"name": "k", "type": "int64"}, {"name": "n", "type": "int64"}, {"name": "small", "type": "int32"}],
    "primary_key": ["k"],
}
COUNT_ROWS = "/v1/tables/counts/rows"
INEXACT = 2**53 + 1
FIRST, LAST = -(2**63), 2**63 - 1


async def test_versions_are_decimal_text(door: DoorClient) -> None:
    written = await door.put("UA,1", {})
    assert written["version"].isdigit()
    assert int(written["version"]) > 2**53
    read = await door.http.get(f"{ROWS}/UA,1")
    assert read.json()["version"] == written["version"]
    assert read.headers["etag"] == f'"{written["version"]}"'
    other = {"mutations": [{"op": "upsert", "row": {"carrier": "UA", "flight": 2}}]}
    batch = await door.http.post(f"{ROWS}:mutate", json=other)
    page = (await door.http.get(ROWS)).json()
    assert page["versions"] == [written["version"], batch.json()["version"]]
    assert (await door.get("UA,1", f"?as_of={written['version']}"))["version"] == written["version"]


async def test_versions_are_numbers_where_they_are_asked_for(door: DoorClient) -> None:
    text = (await door.put("UA,1", {}))["version"]
    sent: list[tuple[str, str, Any]] = [
        ("PUT", f"{ROWS}/UA,2", {}), ("PATCH", f"{ROWS}/UA,2", {"note": "x"}), ("DELETE", f"{ROWS}/UA,2", None),
        ("POST", f"{ROWS}:mutate", {"mutations": [{"op": "upsert", "row": {"carrier": "UA", "flight": 3}}]}),
        ("POST", f"{ROWS}/UA,1:check", {
            "conditions": [{"exists": True}], "mutations": [{"op": "upsert", "row": {"carrier": "UA", "flight": 4}}],
        }),
    ]
    for method, path, body in sent:
        answer = await door.http.request(method, path, params={"versions": "number"}, json=body)
        assert type(answer.json()["version"]) is int, answer.text
    assert (await door.get("UA,1", "?versions=number"))["version"] == int(text)
    page = (await door.http.get(ROWS, params={"versions": "number"})).json()
    assert page["versions"][0] == int(text)
    packed = await door.http.get(f"{ROWS}/UA,1", headers={"accept": "application/x-msgpack"})
    assert msgspec.msgpack.decode(packed.content)["version"] == int(text)
    refused = await door.http.get(f"{ROWS}/UA,1", params={"versions": "float"})
    problem(refused, 422, "invalid-input")


@pytest.mark.parametrize("form", [str, int])
async def test_a_condition_names_a_version_in_either_form(door: DoorClient, form: type) -> None:
    version = (await door.put("UA,1", {}))["version"]
    body = {"mutations": [{"op": "upsert", "row": {"carrier": "UA", "flight": 1, "note": "x"}}]}
    url = f"{ROWS}/UA,1:check"
    right = await door.http.post(url, json={**body, "conditions": [{"version": form(version)}]})
    assert right.status_code == 200, right.text
    stale = await door.http.post(url, json={**body, "conditions": [{"version": form(version)}]})
    document = problem(stale, 412, "precondition-failed", version=right.json()["version"])
    error = error_from_problem(412, json.dumps(document).encode())
    assert isinstance(error, errors.PreconditionFailed)
    assert error.fields["version"] == int(right.json()["version"]), "the client's errors have numbers"


@pytest.mark.parametrize("named", ["", "-1", "1e3", "0x1", " 1", "\u0663", "1" * 21, True, 1.0, None])
async def test_a_condition_with_a_wrong_version_is_refused(plain: DoorClient, named: Any) -> None:
    body = {"conditions": [{"version": named}], "mutations": [{"op": "delete", "key": {"carrier": "UA", "flight": 1}}]}
    problem(await plain.http.post(f"{ROWS}/UA,1:check", json=body), 422, "invalid-input")


@pytest.mark.parametrize("number", [INEXACT, FIRST, LAST, 0, -1])
async def test_int64_is_taken_and_answered_as_text(door: DoorClient, number: int) -> None:
    assert (await door.http.post("/v1/tables", json=COUNTS)).status_code == 201
    path, row = f"{COUNT_ROWS}/{number}", {"n": str(number), "small": 7}
    assert (await door.http.put(path, json=row)).status_code == 200
    assert (await door.http.get(path)).json()["row"] == {"k": number, "n": number, "small": 7}
    text = {"k": str(number), "n": str(number), "small": 7}
    assert (await door.http.get(path, params={"int64": "string"})).json()["row"] == text
    where = json.dumps([{"column": "n", "op": "=", "value": str(number)}])
    assert (await door.http.get(COUNT_ROWS, params={"int64": "string", "where": where})).json()["rows"] == [text]
    lines = await door.http.get(COUNT_ROWS, params={"int64": "string"}, headers={"accept": "application/x-ndjson"})
    assert [json.loads(line) for line in lines.text.splitlines()] == [text]
    packed = await door.http.get(path, params={"int64": "string"}, headers={"accept": "application/x-msgpack"})
    assert msgspec.msgpack.decode(packed.content)["row"] == text
    sent_back = await door.http.post(f"{COUNT_ROWS}:mutate", json={"mutations": [{"op": "upsert", "row": text}]})
    assert sent_back.status_code == 200, sent_back.text
    problem(await door.http.put(path, json={"n": "1.0"}), 422, "invalid-input", column="n")
    problem(await door.http.put(path, json={"small": "7"}), 422, "invalid-input", column="small")
    problem(await door.http.get(path, params={"int64": "text"}), 422, "invalid-input")


async def test_defaults_of_int64_columns_follow_the_rule_of_rows(door: DoorClient) -> None:
    asked, path = {"int64": "string"}, "/v1/tables/counts"
    columns = [
        *COUNTS["columns"], {"name": "since", "type": "int64", "default": str(INEXACT)},
        {"name": "few", "type": "int32", "default": 7},
    ]
    number, text = [None, None, None, INEXACT, 7], [None, None, None, str(INEXACT), 7]

    def defaults(document: dict[str, Any]) -> list[Any]:
        return [column["default"] for column in document["columns"]]

    made = await door.http.post("/v1/tables", json={**COUNTS, "columns": columns}, params=asked)
    assert (made.status_code, defaults(made.json())) == (201, text)
    again = await door.http.post("/v1/tables", json=made.json())
    assert (again.status_code, defaults(again.json())) == (200, number), "what was answered as text is the same table"
    assert defaults((await door.http.get(path, params=asked)).json()) == text
    listed = (await door.http.get("/v1/tables", params=asked)).json()["tables"]
    assert text in [defaults(document) for document in listed]
    added = {"add": [{"name": "last", "type": "int64", "default": str(LAST)}]}
    altered = await door.http.patch(path, json=added, params=asked)
    assert (altered.status_code, defaults(altered.json())) == (200, [*text, str(LAST)])
    assert defaults((await door.http.get(path)).json()) == [*number, LAST]
    assert (await door.http.delete(path, params={"confirm": "counts"})).status_code == 204
    kept = (await door.http.get("/v1/tables", params={"dropped": "true", **asked})).json()["dropped"]
    assert [defaults(document) for document in kept] == [[*text, str(LAST)]]
    restored = await door.http.post(f"{path}:restore", params=asked)
    assert defaults(restored.json()) == [*text, str(LAST)]
    wrong = {"add": [{"name": "more", "type": "int64", "default": "1.0"}]}
    problem(await door.http.patch(path, json=wrong), 422, "invalid-input")
    problem(await door.http.get(path, params={"int64": "text"}), 422, "invalid-input")
