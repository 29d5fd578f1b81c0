"""Requests leave lines in the trail: acts with their beginning and their end, refusals, and changes of the file of tokens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.access.gate import Gate
from gateway.access.settings import LimitSettings
from gateway.access.token_file import TokenFile, changing
from gateway.access.tokens import with_token, without_token
from gateway.api.documents import TrailDocument
from gateway.trail import trail as room
from gateway.trail.entry import TrailEntry, Who
from gateway.trail.events import ACCESS
from gateway.trail.keeping import AccessTrail
from gateway.trail.trail import Trail
from storage.clock import SystemClock
from tests.gateway.access.rig import NOW, Clock, GuardedDoor, token_file
from tests.gateway.door_client import problem, served_door
from tests.gateway.trail.trail_rig import entries, opened, stored, until
from tests.gateway.ui.test_pages_over_http import form_of
from tests.storage.disk.memory_files import MemoryFiles
from twinlog.errors import OutcomeUnknown

HTML = {"accept": "text/html"}
SESSIONS = ("request.refused", "session.login", "session.logout")
TABLE = {"name": "notes", "primary_key": ["id"], "columns": [{"name": "id", "type": "int64"}]}


@dataclass
class KeptDoor:
    door: GuardedDoor
    files: MemoryFiles
    trail: Trail
    access: AccessTrail

    def lines(self, beginning: str) -> list[TrailEntry]:
        return [entry for entry in entries(stored(self.files)) if entry.event.startswith(beginning)]

    async def all_lines(self, beginning: str) -> list[TrailEntry]:
        await until(lambda: not self.trail._queue)
        return self.lines(beginning)

    async def ask(self, method: str, path: str, who: str = "", **more: Any) -> Any:
        headers = {**(self.door.as_(who) if who else {}), **more.pop("headers", {})}
        return await self.door.http.request(method, path, headers=headers, **more)


@contextlib.asynccontextmanager
async def kept_door(folder: Path) -> AsyncIterator[KeptDoor]:
    clock, files, path = Clock(), MemoryFiles(), folder / "tokens.json"
    tokens = token_file(path)
    gate = Gate([TokenFile(path, clock)], LimitSettings(), wall_s=clock, now_s=clock)
    async with opened(files) as trail, served_door(gate=gate, trail=trail) as door:
        guarded = GuardedDoor(door.http, door.service, door.app, door.server, gate, tokens, path, clock)
        yield KeptDoor(guarded, files, trail, AccessTrail(trail, SystemClock(), gate))


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncIterator[KeptDoor]:
    async with kept_door(tmp_path) as door:
        yield door


async def test_a_change_of_a_table_has_its_beginning_and_its_end_by_the_identity(kept: KeptDoor) -> None:
    assert (await kept.ask("POST", "/v1/tables", "admin", json=TABLE)).status_code == 201
    change = {"add": [{"name": "text", "type": "string"}]}
    assert (await kept.ask("PATCH", "/v1/tables/notes", "admin", json=change)).status_code == 200
    assert (await kept.ask("DELETE", "/v1/tables/notes?confirm=notes", "admin")).status_code == 204
    lines = kept.lines("table.")
    assert [(line.event, line.outcome) for line in lines] == [
        (event, outcome) for event in ("table.create", "table.alter", "table.drop") for outcome in ("begun", "done")
    ]
    assert {line.who for line in lines} == {Who("admin", "token", "127.0.0.1")}
    assert [line.of for line in lines[1::2]] == [line.number for line in lines[::2]]
    assert lines[0].what == {"table": "notes", "change": TABLE}
    assert lines[4].what == {"table": "notes", "confirm": "notes"}


async def test_an_act_that_fails_says_why_and_one_that_nobody_knows_is_unknown(
    kept: KeptDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem(await kept.ask("DELETE", "/v1/tables/nope", "admin"), 404, "not-found")

    async def nobody_knows(*_: object) -> None:
        raise OutcomeUnknown("it may have been logged")

    monkeypatch.setattr(kept.door.service.tables, "drop", nobody_knows)
    problem(await kept.ask("DELETE", "/v1/tables/flights", "admin"), 504, "outcome-unknown")

    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(kept.door.service.tables, "drop", broken)
    assert (await kept.ask("DELETE", "/v1/tables/flights", "admin")).status_code == 500
    ends = [line for line in await kept.all_lines("table.drop") if line.outcome != "begun"]
    assert [(line.outcome, line.what["code"]) for line in ends] == [
        ("refused", "not-found"), ("unknown", "outcome-unknown"), ("unknown", "internal"),
    ]


async def test_barriers_and_the_notes_of_audits_and_repairs_are_acts(kept: KeptDoor) -> None:
    assert (await kept.ask("POST", "/v1/barriers", "auditor", json={"name": "b1"})).status_code == 201
    assert (await kept.ask("DELETE", "/v1/barriers/b1", "auditor")).status_code == 204
    note = {"id": "r1", "job": "repair", "started_at": "2013-01-01T05:00:00Z", "finished_at": "2013-01-01T05:01:00Z",
            "outcome": "good", "differences": 4, "by": "ann@host"}
    assert (await kept.ask("POST", "/v1/audits", "auditor", json=note)).status_code == 201
    found = [(line.event, line.outcome) for line in kept.lines("")]
    for event in ("barrier.take", "barrier.release", "audit.note"):
        assert [outcome for name, outcome in found if name == event] == ["begun", "done"]
    assert kept.lines("audit.note")[0].what["job"] == "repair"


async def test_a_role_change_that_is_refused_is_a_line_and_a_dry_run_is_none(kept: KeptDoor) -> None:
    says = {"Twinlog-Actor": "ann@laptop"}
    other = "a" if kept.door.service.site != "a" else "b"
    asked = {"kind": "failover", "to": kept.door.service.site, "options": {"accept_data_loss": 12, "reason": "x\u001b[31m"}}
    problem(await kept.ask("POST", "/v1/operations", "operator", json=asked, headers=says), 409, "refused")
    planned = await kept.ask("POST", "/v1/operations", "operator", json={**asked, "to": other, "dry_run": True})
    assert planned.status_code == 200
    lines = await kept.all_lines("operation.")
    assert [(line.event, line.outcome) for line in lines] == [("operation.asked", "refused")]
    assert lines[0].who == Who("operator", "token", "127.0.0.1", "ann@laptop")
    assert lines[0].what["options"] == asked["options"]


async def test_who_is_refused_is_a_line_and_a_flood_is_a_number(kept: KeptDoor) -> None:
    for _ in range(30):
        problem(await kept.ask("GET", "/v1/tables/flights/rows/UA,1"), 401, "unauthenticated")
        problem(await kept.ask("POST", "/v1/operations", "reader", json={}), 403, "missing-grant")
        wrong = await kept.ask("GET", "/v1/tables", headers={"Authorization": "Bearer twinlog_secret"})
        problem(wrong, 401, "unauthenticated")
    kept.access.summarise(anyhow=True)
    lines = await kept.all_lines("request.refused")
    assert [(line.who.name, line.what["code"], line.what.get("more")) for line in lines] == [
        ("nobody", "unauthenticated", None), ("reader", "missing-grant", None),
        ("nobody", "unauthenticated", 59), ("reader", "missing-grant", 29),
    ]
    assert lines[1].what["grant"] == "operator"
    assert b"twinlog_secret" not in stored(kept.files)[0][1]


async def test_log_ins_log_outs_and_refused_log_ins_of_the_page_are_lines(kept: KeptDoor) -> None:
    async def post(path: str, form_at: str = "/ui/login", **fields: str) -> Any:
        page = await kept.ask("GET", form_at, headers=HTML)
        return await kept.ask("POST", path, data={"form": form_of(page), **fields}, headers=HTML)

    assert (await post("/ui/login", token="twinlog_secret")).status_code == 401
    assert (await post("/ui/login", token=kept.door.tokens["operator"])).status_code == 303
    assert (await post("/ui/logout", form_at="/ui")).status_code == 303
    assert (await post("/ui/logout")).status_code == 303, "of no session: no line"
    lines = await kept.all_lines("")
    told = [(line.event, line.who.name, line.who.kind, line.who.address) for line in lines if line.event in SESSIONS]
    assert told == [
        ("request.refused", "nobody", "anonymous", "127.0.0.1"), ("session.login", "operator", "token", "127.0.0.1"),
        ("session.logout", "operator", "token", "127.0.0.1"),
    ]
    refused = next(line for line in lines if line.event == "request.refused")
    assert refused.what["path"] == "/ui/login"
    assert b"twinlog_" not in stored(kept.files)[0][1]


async def test_a_grant_that_the_handler_finds_missing_is_a_line_too(kept: KeptDoor) -> None:
    """The body says which table it is about."""
    asked = {**TABLE, "name": "flights2"}
    problem(await kept.ask("POST", "/v1/tables", "elsewhere", json=asked), 403, "missing-grant")
    lines = await kept.all_lines("")
    assert [(line.event, line.who.name, line.what["grant"]) for line in lines if line.outcome == "refused"] == [
        ("request.refused", "elsewhere", "admin:flights2")
    ]


async def test_tokens_that_come_go_or_change_are_lines_with_their_names_and_grants(kept: KeptDoor) -> None:
    path, gate = kept.door.file, kept.door.gate
    assert gate is not None
    with changing(path) as (tokens, store):
        changed = without_token(without_token(tokens, "metrics"), "reader")
        changed = with_token(changed, "reader", "twinlog_a", ["reader:orders"], NOW, None)
        store(with_token(changed, "newcomer", "twinlog_b", ["operator"], NOW, None))
    await gate.refresh()
    first, second = await kept.all_lines(ACCESS)
    assert set(kept.door.tokens) == set(first.what["known"])
    assert {name: set(second.what[name]) for name in ("added", "removed", "changed")} == {
        "added": {"newcomer"}, "removed": {"metrics"}, "changed": {"reader"},
    }
    assert second.what["added"]["newcomer"]["grants"] == ["operator"]
    assert second.what["changed"]["reader"]["now"]["grants"] == ["reader:orders"]
    assert b"sha256\":\"" not in b"".join(raw for raw in (str(line.what).encode() for line in (first, second)))


async def test_what_changes_tables_is_not_begun_where_the_trail_cannot_be_written_and_a_role_change_is(
    kept: KeptDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEADLINE_S", "FAULT_WAIT_S", "RETRY_S"):
        monkeypatch.setattr(room, name, 0.05)
    await kept.all_lines("")
    path = next(iter(kept.files.files))
    kept.files.full = True
    kept.files.files[path].failed = True
    refused = await kept.ask("POST", "/v1/tables", "admin", json=TABLE)
    assert "audit trail" in problem(refused, 503, "unavailable", outcome="not_applied")["detail"]
    assert "notes" not in [table.name for table in kept.door.service.tables.all()]
    other = "a" if kept.door.service.site != "a" else "b"
    asked = {"kind": "failover", "to": other}
    assert (await kept.ask("POST", "/v1/operations", "operator", json=asked)).status_code == 202
    shown = (await kept.ask("GET", "/v1/trail", "auditor")).json()
    assert "disk full" in shown["fault"]
    kept.files.full = False
    await until(lambda: kept.lines("table.create"))
    assert [line.outcome for line in await kept.all_lines("table.create")] == ["begun", "refused"]
    assert (await kept.ask("POST", "/v1/tables", "admin", json=TABLE)).status_code == 201


async def test_the_newest_lines_are_shown_to_an_auditor(kept: KeptDoor) -> None:
    for _ in range(8):
        await kept.ask("DELETE", "/v1/tables/nope", "admin")
    await until(lambda: not kept.trail._queue)
    shown = (await kept.ask("GET", "/v1/trail?limit=3", "auditor")).json()
    assert set(shown) == set(TrailDocument.__struct_fields__)
    assert [line["number"] for line in shown["entries"]] == [shown["number"] - 2, shown["number"] - 1, shown["number"]]
    assert (shown["sha256"], shown["fault"]) == (kept.trail.head.sha256, None)
    later = (await kept.ask("GET", f"/v1/trail?since_ms={2**50}", "auditor")).json()
    assert later["entries"] == []
