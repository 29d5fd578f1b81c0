"""Tables over HTTP."""

from __future__ import annotations

from tests.gateway.dict_service import ACTIVE
from tests.gateway.door_client import FLIGHTS, DoorClient, problem
from tests.gateway.ui.ui_rig import look

NEW = {"name": "t2", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}


async def test_create_show_list_drop(plain: DoorClient) -> None:
    created = await plain.http.post("/v1/tables", json=NEW)
    assert created.status_code == 201
    shown = await plain.http.get("/v1/tables/t2")
    assert shown.json() == created.json()
    assert shown.json()["columns"][1] == {"name": "v", "type": "string", "nullable": True, "default": None}
    listed = await plain.http.get("/v1/tables")
    assert [table["name"] for table in listed.json()["tables"]] == ["flights", "t2"]
    dropped = await plain.http.delete("/v1/tables/t2")
    assert (dropped.status_code, dropped.content) == (204, b"")
    problem(await plain.http.get("/v1/tables/t2"), 404, "not-found", table="t2")


async def test_an_equal_table_is_found_and_a_different_one_conflicts(plain: DoorClient) -> None:
    assert (await plain.http.post("/v1/tables", json=FLIGHTS)).status_code == 200
    problem(await plain.http.post("/v1/tables", json={**FLIGHTS, "history_s": 1}), 409, "conflict", outcome="not_applied")


async def test_columns_change_under_rows(door: DoorClient) -> None:
    await door.put("UA,1", {"delay": 3.0})
    patch = {"add": [{"name": "tail", "type": "string", "default": "?"}], "rename": {"delay": "late"}, "drop": ["raw"]}
    changed = await door.http.patch("/v1/tables/flights", json=patch)
    assert changed.status_code == 200
    row = (await door.get("UA,1"))["row"]
    assert row["tail"] == "?"
    assert row["late"] == 3.0
    assert "raw" not in row
    problem(await door.http.put("/v1/tables/flights/rows/UA,1", json={"delay": 1.0}), 422, "invalid-input", column="delay")


async def test_a_table_that_came_back_does_not_read_old_rows_or_codecs(door: DoorClient) -> None:
    await door.put("UA,1", {"delay": 3.0})
    await door.http.delete("/v1/tables/flights?confirm=flights")
    problem(await door.http.get("/v1/tables/flights/rows/UA,1"), 404, "not-found", table="flights")
    await door.http.post("/v1/tables", json={**NEW, "name": "flights"})
    answer = await door.http.put("/v1/tables/flights/rows/5", json={"v": "x"})
    assert answer.status_code == 200
    assert (await door.get("5"))["row"] == {"k": 5, "v": "x"}


async def test_every_fault_of_a_table_is_named(plain: DoorClient) -> None:
    body = {"name": "1x", "columns": [{"name": "k", "type": "varchar"}], "primary_key": ["z"], "colour": "red"}
    document = problem(await plain.http.post("/v1/tables", json=body), 422, "invalid-input", outcome="not_applied")
    assert {fault["where"] for fault in document["faults"]} >= {"name", "table.colour", "columns[0].type"}


async def test_the_standby_names_the_active(plain: DoorClient) -> None:
    plain.service.role_now = "STANDBY"
    problem(await plain.http.post("/v1/tables", json=NEW), 421, "not-active", active=ACTIVE, outcome="not_applied")


async def test_a_table_name_may_be_percent_encoded(door: DoorClient) -> None:
    await door.put("UA,1", {})
    assert (await door.http.get("/v1/tables/%66lights")).json()["name"] == "flights"
    assert (await door.http.get("/v1/tables/%66lights/rows/UA,1")).status_code == 200


async def test_a_table_with_rows_is_dropped_only_by_its_name_said_twice(door: DoorClient) -> None:
    await door.put("UA,1", {"delay": 3.0})
    problem(
        await door.http.delete("/v1/tables/flights"), 409, "conflict", table="flights", confirm="flights",
        outcome="not_applied",
    )
    problem(await door.http.delete("/v1/tables/flights?confirm=flight"), 422, "invalid-input", table="flights")
    assert (await door.get("UA,1"))["row"]["delay"] == 3.0
    assert (await door.http.delete("/v1/tables/flights?confirm=flights")).status_code == 204
    problem(await door.http.get("/v1/tables/flights"), 404, "not-found", table="flights")
    problem(await door.http.get("/v1/tables/flights~1/rows/UA,1"), 404, "not-found", table="flights~1")
    assert "flights" not in str((await door.http.get("/v1/tables")).json())
    (kept,) = (await door.http.get("/v1/tables?dropped=true")).json()["dropped"]
    assert (kept["name"], kept["kept_as"], kept["primary_key"]) == ("flights", "flights~1", ["carrier", "flight"])
    assert kept["dropped_at"] < kept["kept_until"]
    assert (await door.http.post("/v1/tables", json={**NEW, "name": "flights"})).status_code == 201
    problem(await door.http.post("/v1/tables/flights:restore"), 409, "conflict", table="flights")
    assert (await door.http.delete("/v1/tables/flights")).status_code == 204
    problem(await door.http.post("/v1/tables/other:restore"), 404, "not-found", table="other")
    restored = await door.http.post("/v1/tables/flights~1:restore")
    assert restored.status_code == 200
    assert restored.json()["columns"][0]["name"] == "carrier"
    assert (await door.get("UA,1"))["row"]["delay"] == 3.0


async def test_figures_of_a_table_name_what_is_known_at_both_sites(plain: DoorClient) -> None:
    await plain.put("UA,1", {"note": "x"})
    alone = (await plain.http.get("/v1/tables/flights/figures")).json()
    size = alone["size"]
    assert (alone["name"], alone["site"], alone["revision"]) == ("flights", "a", 1)
    assert (size["rows"], size["rows_are"], size["bytes"] > 0, size["disk_bytes"]) == (1, "counted", True, None)
    assert alone["other"]["schema"] == "unknown"
    assert alone["other"]["error"] == "site b does not answer"
    assert alone["other"]["size"] == {"rows": None, "rows_are": "unknown", "bytes": None, "disk_bytes": None, "age_s": None}
    plain.service.looks.other = look("b", "STANDBY")
    both = (await plain.http.get("/v1/tables/flights/figures")).json()
    assert (both["other"]["schema"], both["other"]["revision"], both["other"]["size"]["rows"]) == ("same", 1, 1)
    problem(await plain.http.get("/v1/tables/none/figures"), 404, "not-found", table="none")
