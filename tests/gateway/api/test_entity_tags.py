"""Entity tags as HTTP has them: one for each representation, and conditions on any tag that a client may hold."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api.entity_tags import etag, opaque_tags, versions_of
from tests.gateway.door_client import ROWS, DoorClient, problem

ROW = f"{ROWS}/UA,1"
MSGPACK = {"accept": "application/x-msgpack"}
FOREIGN = [
    '"x"', 'W/"x"', '""', '"a,b"', '"123456789012345678901"', '"18446744073709551616"', '"01"', '"é"', '"1.0"', '"x", W/"y"',
]


async def _read(door: DoorClient, query: str = "", **headers: str) -> httpx.Response:
    answer = await door.http.get(ROW + query, headers={name.replace("_", "-"): value for name, value in headers.items()})
    assert answer.status_code in (200, 304), answer.text
    return answer


@pytest.mark.parametrize("tag", [*FOREIGN, 'W/"VERSION"', 'W/"VERSION", "x"'])
async def test_a_weak_or_foreign_tag_matches_nothing(door: DoorClient, tag: str) -> None:
    written = await door.put("UA,1", {"note": "1"})
    sent = tag.replace("VERSION", str(written["version"])).encode("latin-1")
    assert (await door.http.get(ROW, headers=[(b"if-none-match", sent)])).status_code == 200
    problem(await door.http.get(ROW, headers=[(b"if-match", sent)]), 412, "precondition-failed")
    refused = await door.http.put(ROW, json={"note": "2"}, headers=[(b"if-match", sent)])
    problem(refused, 412, "precondition-failed", outcome="not_applied")
    problem(await door.http.put(f"{ROWS}/UA,2", json={}, headers=[(b"if-match", sent)]), 412, "precondition-failed")
    taken = await door.http.put(ROW, json={"note": "3"}, headers=[(b"if-none-match", sent)])
    assert taken.status_code == 200, taken.text


async def test_a_read_with_if_match(door: DoorClient) -> None:
    old = await door.put("UA,1", {"note": "1"})
    new = await door.put("UA,1", {"note": "2"})
    late = await door.http.get(ROW, headers={"if-match": f'"{old["version"]}"'})
    problem(late, 412, "precondition-failed", version=new["version"])
    for tag in (f'"{new["version"]}"', f'"{old["version"]}", "{new["version"]}"', "*"):
        assert (await _read(door, if_match=tag)).json()["row"]["note"] == "2"
    problem(await door.http.get(f"{ROWS}/UA,9", headers={"if-match": "*"}), 404, "not-found")
    both = {"if-match": f'"{old["version"]}"', "if-none-match": f'"{new["version"]}"'}
    problem(await door.http.get(ROW, headers=both), 412, "precondition-failed")


async def test_each_representation_has_a_tag_of_its_own(door: DoorClient) -> None:
    await door.put("UA,1", {"note": "1"})
    forms: list[tuple[str, dict[str, str]]] = [
        (query, headers) for query in ("", "?columns=note", "?columns=delay,note") for headers in ({}, MSGPACK)
    ]
    forms += [("?versions=number", {}), ("?versions=number&columns=note", {})]
    read = [await _read(door, query, **headers) for query, headers in forms]
    tags = [answer.headers["etag"] for answer in read]
    assert len({answer.content for answer in read}) == len(set(tags)) == len(forms)
    for place, (query, headers) in enumerate(forms):
        for other, tag in enumerate(tags):
            answer = await _read(door, query, **headers, if_none_match=tag)
            assert answer.status_code == (304 if other == place else 200)
            assert "Accept" in answer.headers["vary"]
            assert other != place or "Accept-Encoding" in answer.headers["vary"], "a 304 says what the 200 would"
    assert (await _read(door, if_none_match=", ".join(tags))).status_code == 304
    problem(await door.http.put(ROW, json={}, headers={"if-none-match": tags[3]}), 412, "precondition-failed")
    assert (await door.http.put(ROW, json={}, headers={"if-match": tags[3]})).status_code == 200


async def test_a_change_of_the_table_is_a_change_of_what_is_read(door: DoorClient) -> None:
    """The row is at the same version, and has another column."""
    await door.put("UA,1", {"note": "1"})
    before = await _read(door)
    await door.service.tables.alter("flights", {"add": [{"name": "gate", "type": "string"}]})
    after = await _read(door, if_none_match=before.headers["etag"])
    assert after.status_code == 200
    assert after.json()["row"].keys() - before.json()["row"].keys() == {"gate"}
    assert after.headers["etag"] != before.headers["etag"]
    assert (await _read(door, if_none_match=after.headers["etag"])).status_code == 304
    assert (await door.http.put(ROW, json={}, headers={"if-match": before.headers["etag"]})).status_code == 200


async def test_pages_and_lines_say_that_they_depend_on_accept(plain: DoorClient) -> None:
    await plain.put("UA,1", {})
    for accept in ("application/json", "application/x-msgpack", "application/x-ndjson"):
        assert "Accept" in (await plain.http.get(ROWS, headers={"accept": accept})).headers["vary"]


@pytest.mark.parametrize(("accept", "sent"), [
    ("application/json;q=0, application/x-msgpack", "application/x-msgpack"),
    ("application/x-msgpack;q=0.1, application/json", "application/json"),
    ("application/x-msgpack, application/json", "application/x-msgpack"),
    ("application/*;q=0.5, application/x-msgpack", "application/x-msgpack"),
    ("application/json;q=0, */*", "application/x-msgpack"),
    ("text/html, APPLICATION/JSON; q=0.3", "application/json"),
    ("*/*;q=0", None), ("application/json;q=0", None), ("text/html, application/x-msgpack;q=none", None),
])
async def test_the_weights_of_accept_count(plain: DoorClient, accept: str, sent: str | None) -> None:
    await plain.put("UA,1", {})
    answer = await plain.http.get(ROW, headers={"accept": accept})
    if sent is None:
        problem(answer, 406, "not-acceptable")
    else:
        assert (answer.status_code, answer.headers["content-type"]) == (200, sent)


CONDITIONS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", f"{ROWS}:mutate", {"json": {"mutations": [{"op": "delete", "key": {"carrier": "UA", "flight": 1}}]}}),
    ("POST", f"{ROW}:check", {"json": {"conditions": [], "mutations": []}}),
    ("DELETE", "/v1/tables/flights", {"params": {"confirm": "flights"}}),
    ("PATCH", "/v1/tables/flights", {"json": {"history_s": 5}}),
    ("POST", "/v1/operations", {"json": {"kind": "failover"}}),
]


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match"])
@pytest.mark.parametrize(("method", "path", "more"), CONDITIONS, ids=[f"{one[0]} {one[1]}" for one in CONDITIONS])
async def test_a_write_never_ignores_a_condition(plain: DoorClient, header: str, method: str, path: str, more: Any) -> None:
    """Its sender relies on it: a path that takes none refuses it."""
    await plain.put("UA,1", {})
    refused = await plain.http.request(method, path, headers={header: '"1"'}, **more)
    assert header in problem(refused, 422, "invalid-input", outcome="not_applied")["detail"]
    await plain.get("UA,1")


@given(st.lists(st.tuples(st.booleans(), st.text(st.characters(codec="latin-1", exclude_characters='"', min_codepoint=33)))
                .filter(lambda tag: "\x7f" not in tag[1] and not any("\x80" > letter > "~" for letter in tag[1])), min_size=1),
       st.sampled_from([",", ", ", " ,\t", ",,"]))
def test_tags_are_read_as_they_were_written(tags: list[tuple[bool, str]], comma: str) -> None:
    text = comma.join(f'{"W/" * is_weak}"{inner}"' for is_weak, inner in tags)
    assert opaque_tags(text, "If-Match") == [inner for is_weak, inner in tags if not is_weak]


@given(st.integers(0, (1 << 64) - 1), st.sampled_from([b"", b".0123456789ab"]))
def test_a_tag_names_its_version(version: int, mark: bytes) -> None:
    tags = opaque_tags(etag(version, mark).decode(), "If-Match")
    assert tags is not None
    assert versions_of(tags) == (version,)
