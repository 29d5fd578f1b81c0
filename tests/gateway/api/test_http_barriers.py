"""Barriers and audits over HTTP and by the clients: what is answered, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.audits.notes import AUDITS, AuditNotes, AuditRun
from storage.clock import Clock
from storage.engines.memory.engine import MemoryEngine
from tests.gateway.door_client import DoorClient
from tests.gateway.two_sites import TwoSites
from twinlog import AsyncClient, Client
from twinlog.errors import InvalidInput, NotFound
from twinlog.flow import Patience

AUDIT: dict[str, Any] = {
    "id": "1", "job": "compare", "barrier": "one", "started_at": "2026-11-21T10:00:00Z", "finished_at": "2026-11-21T10:01:00Z",
    "outcome": "good", "differences": 0, "tables": ["flights"], "by": "ann",
}


class At(Clock):
    def wall_ms(self) -> int:
        return 1_795_255_320_000  # 2026-11-21T10:02:00Z


async def test_a_barrier_is_taken_shown_and_released(door: DoorClient) -> None:
    taken = await door.http.post("/v1/barriers", json={"name": "one"})
    assert taken.status_code == 201
    assert taken.headers["location"] == "/v1/barriers/one"
    assert (await door.http.post("/v1/barriers", json={"name": "one"})).status_code == 200
    shown = (await door.http.get("/v1/barriers/one")).json()
    assert shown == taken.json()
    assert set(shown) == {"name", "epoch", "seq", "taken_at", "expires_at", "engine", "place"}
    assert (await door.http.get("/v1/barriers")).json() == {"site": "a", "barriers": [shown]}
    assert (await door.http.delete("/v1/barriers/one")).status_code == 204
    for method in ("GET", "DELETE"):
        answer = await door.http.request(method, "/v1/barriers/one")
        assert answer.status_code == 404
        assert "holds no barrier 'one'" in answer.json()["detail"]
    assert (await door.http.post("/v1/barriers", json={})).json()["name"]


@pytest.mark.parametrize("name", ["", ".hidden", "../up", "a/b", "a b", "ä", "-x", "x" * 64, "x\n", 7])
async def test_a_name_must_be_one(plain: DoorClient, name: object) -> None:
    """It becomes a folder."""
    answer = await plain.http.post("/v1/barriers", json={"name": name})
    assert answer.status_code == 422
    assert (await plain.http.get("/v1/barriers")).json()["barriers"] == []


async def test_a_standby_takes_none(plain: DoorClient) -> None:
    plain.service.role_now = "STANDBY"
    assert (await plain.http.post("/v1/barriers", json={"name": "one"})).status_code == 421
    assert (await plain.http.get("/v1/barriers")).status_code == 200


async def test_an_audit_is_noted(plain: DoorClient) -> None:
    assert (await plain.http.get("/v1/audits/last")).json() == {"last": {}, "last_good_compare": None}
    assert (await plain.http.post("/v1/audits", json=AUDIT)).status_code == 201
    assert (await plain.http.get("/v1/audits/last")).json() == {"last": {"compare": AUDIT}, "last_good_compare": AUDIT}


@pytest.mark.parametrize("wrong", [
    {"job": "guess"}, {"outcome": "fine"}, {"differences": -1}, {"finished_at": "2026-11-21T10:01:00"}, {"extra": 1},
    {"id": ""},
])
async def test_an_audit_that_is_none_is_refused(plain: DoorClient, wrong: dict[str, Any]) -> None:
    assert (await plain.http.post("/v1/audits", json={**AUDIT, **wrong})).status_code == 422
    assert plain.service.engine.meta(AUDITS) is None


def noted(**given: Any) -> AuditRun:


    return msgspec.convert({**AUDIT, **given}, AuditRun)


async def test_the_last_of_each_job_and_the_last_good_one_are_kept() -> None:
    engine = MemoryEngine()
    notes = AuditNotes(engine, At())
    assert notes.figures() == {}
    for given in (
        {"id": "log", "job": "log-audit"}, {"id": "good"},
        {"id": "bad", "outcome": "bad", "finished_at": "2026-11-21T10:01:30Z"},
        {"id": "late", "finished_at": "2026-11-21T09:00:00Z"},
        {"id": "dry", "job": "repair", "finished_at": "2026-11-21T10:01:59Z"},
    ):
        await notes.note(noted(**given))
    engine.crash()
    kept = AuditNotes(engine, At())
    assert {job: audit.id for job, audit in kept.all().last.items()} == {"log-audit": "log", "compare": "bad", "repair": "dry"}
    assert kept.all().last_good_compare == noted(id="good")
    figures = kept.figures()
    assert figures["last_good_audit_timestamp_seconds"] == 1_795_255_260.0
    assert figures["last_good_audit_age_seconds"] == 60.0
    assert figures["audit_good"] == {("log-audit",): 1.0, ("compare",): 0.0, ("repair",): 1.0}
    assert figures["audit_differences"] == {("log-audit",): 0.0, ("compare",): 0.0, ("repair",): 0.0}


def test_the_client_asks_either_site() -> None:
    with TwoSites() as sites, Client(sites.address, Patience(deadline_s=5)) as client:
        taken = client.take_barrier("one")
        assert taken["name"] == "one"
        assert client.take_barrier()["name"].startswith("barrier-")
        assert client.barrier("one") == client.barriers()[0] == taken
        assert client.barriers("b") == msgspec.to_builtins(sites.doors["b"].ports.barriers.all().barriers)
        client.release_barrier("one", "a")
        with pytest.raises(NotFound):
            client.barrier("one", "a")
        with pytest.raises(InvalidInput, match="no site 'c'"):
            client.barriers("c")
        assert client.note_audit(AUDIT, "b") == AUDIT
        assert client.last_audits("b")["last_good_compare"] == AUDIT
        assert [one["run"] for one in client.audits("b")["past"]] == [AUDIT]
        assert client.audit("1", "b")["run"] == AUDIT
        with pytest.raises(NotFound):
            client.audit("2", "b")


async def test_the_asynchronous_client_does_too() -> None:
    with TwoSites() as sites:
        async with AsyncClient(sites.address, Patience(deadline_s=5)) as client:
            assert (await client.take_barrier("one"))["name"] == "one"
            assert (await client.barrier("one"))["name"] == "one"
            assert [held["name"] for held in await client.barriers("a")] == ["one"]
            await client.release_barrier("one")
            assert await client.barriers() == []
            await client.note_audit(AUDIT)
            assert (await client.last_audits())["last"]["compare"] == AUDIT
            assert (await client.audit("1"))["run"] == (await client.audits())["past"][0]["run"] == AUDIT
