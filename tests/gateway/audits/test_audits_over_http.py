"""Reports and progress of audits over HTTP: what is kept, who sees the keys in it, and what is refused with which words."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.access.caller import Caller
from gateway.access.grants import parse_grants
from gateway.ui import live as live_room
from gateway.ui.live import Live
from gateway.ui.watch import PairSeen
from tests.gateway.access.rig import GuardedDoor, guarded_door, token_file
from tests.gateway.door_client import DoorClient, problem
from tests.gateway.ui.ui_rig import pair_seen
from twinlog.errors import NotFound

AT = datetime.now(UTC).isoformat()
AUDIT = {"id": "1-compare", "job": "compare", "started_at": AT, "finished_at": AT, "outcome": "bad", "differences": 2}
REPORT: dict[str, Any] = {
    "version": 1, "tables_count": 2, "differences_count": 2, "kinds": {"stale": 1, "missing": 1},
    "differences": [
        {"kind": "stale", "table": "flights", "key": "UA,1", "place": "", "source_version": "7", "peer_version": "6"},
        {"kind": "missing", "table": "orders", "key": "secret", "place": "", "source_version": "9", "peer_version": None},
    ],
}
PROGRESS: dict[str, Any] = {"job": "compare", "phase": "digests of a", "elapsed_s": 3.5, "done": 10, "total": 40}


async def test_an_audit_is_followed_noted_and_shown(plain: DoorClient) -> None:
    assert (await plain.http.put("/v1/audits/1-compare/progress", json=PROGRESS)).status_code == 204
    running = (await plain.http.get("/v1/audits/1-compare")).json()
    assert (running["run"], running["progress"]["state"], running["progress"]["progress"]["done"]) == (None, "running", 10)
    early = await plain.http.put("/v1/audits/1-compare/report", json=REPORT)
    problem(early, 404, "not-found")
    assert (await plain.http.post("/v1/audits", json=AUDIT)).status_code == 201
    assert (await plain.http.put("/v1/audits/1-compare/report", json={**REPORT, "of_a_newer_release": [1]})).status_code == 204
    shown = (await plain.http.get("/v1/audits/1-compare")).json()
    assert (shown["run"]["differences"], shown["progress"], shown["hidden_keys"]) == (2, None, 0)
    assert shown["report"]["differences"] == REPORT["differences"]
    listed = (await plain.http.get("/v1/audits")).json()
    assert (listed["running"], [one["run"]["id"] for one in listed["past"]]) == ([], ["1-compare"])


@pytest.mark.parametrize(("path", "body", "said"), [
    ("report", {**REPORT, "differences": REPORT["differences"] * 51}, "length <= 100 - at `$.differences`"),
    ("report", {**REPORT, "remarks": ["x" * 301]}, "length <= 300 - at `$.remarks[0]`"),
    ("report", {"differences": []}, "missing required field `version`"),
    ("report", {**REPORT, "differences": [{**REPORT["differences"][0], "key": "\u1234" * 299}] * 100}, "keeps 32,768 of one"),
    ("progress", {**PROGRESS, "phase": "x" * 101}, "length <= 100 - at `$.phase`"),
    ("progress", {**PROGRESS, "total": -1}, ">= 0 - at `$.total`"),
])
async def test_what_is_past_a_bound_is_refused_with_its_name(
    plain: DoorClient, path: str, body: dict[str, Any], said: str
) -> None:
    assert (await plain.http.post("/v1/audits", json=AUDIT)).status_code == 201
    answer = await plain.http.put(f"/v1/audits/1-compare/{path}", json=body)
    assert said in problem(answer, 422, "invalid-input")["detail"]
    shown = (await plain.http.get("/v1/audits/1-compare")).json()
    assert (shown["report"], shown["progress"]) == (None, None)


@pytest.mark.parametrize("name", [".hidden", "a b", "x" * 129, "%0a", "a%0a", "%C3%A4"])
async def test_an_id_that_could_stand_in_no_path_has_no_report(plain: DoorClient, name: str) -> None:
    for path in ("report", "progress"):
        answer = await plain.http.put(f"/v1/audits/{name}/{path}", json={**REPORT, **PROGRESS})
        assert "is no id of an audit" in problem(answer, 422, "invalid-input")["detail"]
    assert (await plain.http.get("/v1/audits")).json()["running"] == []


async def test_keys_are_shown_to_those_who_may_read_the_table_and_to_no_other_auditor() -> None:
    grants = {"own": ["auditor", "reader:flights"], "none": ["auditor"], "all": ["operator", "reader:*"]}
    async with guarded_door() as door:
        door.tokens |= token_file(door.file, grants)
        assert door.gate is not None
        await door.gate.refresh()
        for method, path, body in (
            ("POST", "/v1/audits", AUDIT), ("PUT", "/v1/audits/1-compare/report", REPORT),
        ):
            assert (await door.http.request(method, path, json=body, headers=door.as_("none"))).status_code in (201, 204)
        for name, keys in (("none", [None, None]), ("own", ["UA,1", None]), ("all", ["UA,1", "secret"])):
            assert await _keys(door, name) == keys, name


async def _keys(door: GuardedDoor, name: str) -> list[str | None]:
    """Returns the keys in the report as this identity gets it; the page must show no other."""
    answer = await door.http.get("/v1/audits/1-compare", headers=door.as_(name))
    shown = answer.json()
    keys = [one["key"] for one in shown["report"]["differences"]]
    page = (await door.http.get("/ui/audits/1-compare", headers={**door.as_(name), "accept": "text/html"})).text
    for key in ("UA,1", "secret"):
        assert (key in answer.text) == (key in page) == (key in keys), key
    assert shown["hidden_keys"] == keys.count(None)
    return keys


async def test_a_stream_that_is_drawn_once_for_many_shows_each_what_it_may_see(
    plain: DoorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = plain.app.context.pages
    assert pages is not None

    drawn: list[str] = []
    numbers = [1]  # of the looks
    draw = live_room.regions

    def counted(name: str, values: Mapping[str, Any]) -> dict[str, str]:
        drawn.append(name)
        return draw(name, values)

    async def looks() -> AsyncIterator[PairSeen]:
        for number in numbers:
            yield pair_seen(number=number)

    monkeypatch.setattr(live_room, "regions", counted)

    monkeypatch.setattr(pages.watch, "follow", looks)
    for method, path, body in (("POST", "/v1/audits", AUDIT), ("PUT", "/v1/audits/1-compare/report", REPORT)):
        assert (await plain.http.request(method, path, json=body)).is_success
    seen: list[tuple[list[str], set[str]]] = [
        (["auditor", "reader:*"], {"UA,1", "secret"}), (["auditor"], set()), (["auditor", "reader:orders"], {"secret"}),
    ]
    for grants, keys in seen:
        live = Live(pages, Caller("one", "token", parse_grants(grants)), "", "audit", "", "1-compare")
        (event,) = [event async for event in live.follow()]
        assert {key for key in ("UA,1", "secret") if key.encode() in event} == keys, grants
    drawn.clear()
    numbers[:] = [2, 3, 4]
    live = Live(pages, Caller("one", "token", parse_grants(["auditor"])), "", "audit", "", "1-compare")
    assert len([event async for event in live.follow()]) == 1
    assert drawn == ["audit.html"], "a result does not change"
    for view in ("audit", "audits"):
        with pytest.raises(NotFound):
            Live(pages, Caller("one", "token", parse_grants(["reader:*"])), "", view, "", "1-compare")
