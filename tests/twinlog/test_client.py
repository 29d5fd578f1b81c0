"""The clients over real HTTP, against the real routes: values, conditions, batches, pages, redirects, lost replies."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import aclosing, closing
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tests.gateway.two_sites import TwoSites
from twinlog import AsyncClient, Client
from twinlog.calls import key_path
from twinlog.errors import Conflict, InvalidInput, NotFound, OutcomeUnknown, PreconditionFailed, Unavailable
from twinlog.flow import Patience

QUICK = Patience(deadline_s=120, attempt_timeout_s=2, probe_timeout_s=2)
TABLE = {
    "name": "things",
    "columns": [
        {"name": "id", "type": "int64"}, {"name": "at", "type": "timestamp"}, {"name": "name", "type": "string"},
        {"name": "price", "type": "decimal"}, {"name": "weight", "type": "float64"}, {"name": "raw", "type": "bytes"},
        {"name": "more", "type": "json"},
    ],
    "primary_key": ["id", "at"],
}
MOMENT = datetime(2013, 1, 1, 5, 0, 0, 250, UTC)
ROW: dict[str, Any] = {
    "name": "ä,/%", "price": Decimal("12.50"), "weight": math.inf, "raw": b"\x00\xff", "more": {"deep": [1, None]},
}
KINDS = {name: type(value) for name, value in ROW.items()}


@pytest.fixture
def sites() -> Iterator[TwoSites]:
    with TwoSites() as pair:
        yield pair


@pytest.fixture
def client(sites: TwoSites) -> Iterator[Client]:
    with Client(sites.address, QUICK) as made:
        made.create_table(TABLE)
        yield made


def test_a_row_of_every_type_goes_in_and_comes_out(client: Client) -> None:
    ack = client.put("things", (1, MOMENT), ROW)
    found = client.get("things", (1, MOMENT))
    assert found.version == ack.version
    assert found.row == {"id": 1, "at": MOMENT, **ROW}
    assert {name: type(value) for name, value in found.row.items()} == {"id": int, "at": datetime, **KINDS}
    assert client.get("things", (1, MOMENT), columns=["name"]).row == {"name": "ä,/%"}
    assert client.receipt(ack.receipt).outcome == "survived"
    assert ack.mode == "sync"


def test_conditions_and_definite_errors(client: Client) -> None:
    first = client.put("things", (1, MOMENT), {"name": "x"}, if_absent=True)
    with pytest.raises(PreconditionFailed):
        client.put("things", (1, MOMENT), {"name": "y"}, if_absent=True)
    second = client.update("things", (1, MOMENT), {"name": "z"}, if_version=first.version)
    with pytest.raises(PreconditionFailed):
        client.delete("things", (1, MOMENT), if_version=first.version)
    client.delete("things", (1, MOMENT), if_version=second.version)
    with pytest.raises(NotFound):
        client.get("things", (1, MOMENT))
    with pytest.raises(InvalidInput, match="nmae"):
        client.put("things", (1, MOMENT), {"nmae": "x"})
    with pytest.raises(Conflict):
        client.create_table({**TABLE, "primary_key": ["id"]})
    client.create_table(TABLE)


def test_tables_are_listed_changed_and_dropped(client: Client) -> None:
    client.alter_table("things", {"add": [{"name": "note", "type": "string"}]})
    assert client.table("things")["columns"][-1]["name"] == "note"
    assert [table["name"] for table in client.tables()] == ["things"]
    assert client.table_figures("things")["size"]["rows"] == 0
    client.drop_table("things")
    assert client.tables() == []


def test_a_batch_is_all_or_nothing(client: Client) -> None:
    rows = [{"op": "upsert", "row": {"id": number, "at": MOMENT, **ROW}} for number in range(25)]
    ack = client.mutate("things", rows)
    assert ack.count == 25
    with pytest.raises(Conflict):
        client.mutate("things", [*rows[:1], {"op": "insert", "row": rows[3]["row"]}])
    found = list(client.scan("things", page_rows=10))
    assert [row["id"] for row in found] == list(range(25))
    assert found[7] == {"id": 7, "at": MOMENT, **ROW}


def test_arrow_batches_and_scans_with_conditions(client: Client) -> None:
    batch = pa.table({"id": list(range(2500)), "at": [MOMENT] * 2500, "name": [f"n{n % 5}" for n in range(2500)]})
    assert client.upsert_arrow("things", batch).count == 2500
    assert len(list(client.scan("things"))) == 2500
    assert len(list(client.scan("things", snapshot=True, page_rows=600))) == 2500
    where = [("name", "=", "n3"), ("id", ">=", 2000), ("price", "is_null", None)]
    found = list(client.scan("things", where=where, columns=["id"]))
    assert found == [{"id": number} for number in range(2003, 2500, 5)]
    assert [row["id"] for row in client.scan("things", start=(10,), end=(13,), reverse=True)] == [12, 11, 10]


def test_who_stops_early_holds_no_snapshot(client: Client, sites: TwoSites) -> None:
    """A site has eight for all."""
    client.mutate("things", [{"op": "upsert", "row": {"id": number, "at": MOMENT}} for number in range(9)])
    held = sites.doors["a"].snapshots._held
    for stop in (1, 3, 4):
        with closing(client.scan("things", page_rows=3, snapshot=True)) as found:
            assert len([*islice(found, stop)]) == stop
            assert len(held) == 1
        assert not held
    for row in client.scan("things", page_rows=3, snapshot=True):
        assert row["id"] == 0
        break
    assert not held
    found = client.scan("things", page_rows=3, snapshot=True)
    next(found)
    sites.active = client.view.active = None
    found.close()
    assert len(held) == 1, "it goes by itself: there is nobody to ask"


async def test_who_stops_early_asynchronously_holds_no_snapshot(client: Client, sites: TwoSites) -> None:
    client.mutate("things", [{"op": "upsert", "row": {"id": number, "at": MOMENT}} for number in range(9)])
    held = sites.doors["a"].snapshots._held
    async with AsyncClient(sites.address, QUICK) as asking:
        async with aclosing(asking.scan("things", page_rows=3, snapshot=True)) as found:
            assert (await anext(found))["id"] == 0
            assert len(held) == 1
        assert not held


def test_the_new_active_is_followed(client: Client, sites: TwoSites) -> None:
    client.put("things", (1, MOMENT), {"name": "x"})
    sites.switch()
    client.put("things", (1, MOMENT), {"name": "y"})
    assert client.view.active == "b"
    sites.stop("a")
    sites.doors["b"].faults = ["draining"]
    assert client.get("things", (1, MOMENT)).row["name"] == "y"
    client.put("things", (1, MOMENT), {"name": "z"})


@pytest.mark.parametrize("fault", ["silent", "refused-unknown", "switch"])
def test_a_write_whose_reply_is_lost_is_done_once_and_answered(client: Client, sites: TwoSites, fault: str) -> None:
    client.put("things", (1, MOMENT), {"name": "x"})
    before = sites.doors["a"].engine.applied.seq
    sites.doors["a"].faults = [fault]
    client.put("things", (1, MOMENT), {"name": "y"}, if_version=None)
    keys = [key for door in sites.doors.values() for key in door.seen_keys][1:]
    assert len(keys) >= 2, "asked again"
    assert len(set(keys)) == 1, "with the same key"
    assert None not in keys
    assert sites.doors["a"].engine.applied.seq == before + 1, "applied once"


def test_an_unknown_outcome_is_settled_later_with_the_same_key(client: Client, sites: TwoSites) -> None:
    sites.doors["a"].faults = ["refused-unknown"] * 1000
    with pytest.raises(OutcomeUnknown) as caught:
        client.put("things", (1, MOMENT), {"name": "x"}, if_absent=True, deadline_s=0.5)
    sites.doors["a"].faults = []
    key = caught.value.fields["idempotency_key"]
    assert isinstance(key, str)
    ack = client.put("things", (1, MOMENT), {"name": "x"}, if_absent=True, request_key=key)
    again = client.put("things", (1, MOMENT), {"name": "x"}, if_absent=True, request_key=key)
    assert ack == again


def test_when_both_sites_are_gone_the_error_says_so_in_time(client: Client, sites: TwoSites) -> None:
    sites.stop("a")
    sites.stop("b")
    with pytest.raises(Unavailable, match="nothing was applied"):
        client.put("things", (1, MOMENT), {"name": "x"}, deadline_s=1)


def test_the_cluster_is_shown_while_nobody_is_active_and_its_events_are_followed(
    client: Client, sites: TwoSites
) -> None:
    events = client.cluster_events()
    assert next(events)["active"]["site"] == "a"
    sites.switch()
    sites.stop("a")
    assert next(events)["active"]["site"] == "b"
    assert client.view.active == "b"
    sites.active = None
    assert client.cluster()["site"] == "b"
    events.close()  # type: ignore[attr-defined]


async def test_the_asynchronous_client_does_the_same_with_many_requests_at_once(sites: TwoSites) -> None:
    async with AsyncClient(sites.address, QUICK) as client:
        await client.create_table(TABLE)
        await asyncio.gather(*(client.put("things", (number, MOMENT), {"name": "x"}) for number in range(50)))
        sites.doors["a"].faults = ["silent", "switch"]
        await asyncio.gather(*(client.update("things", (number, MOMENT), {"name": "y"}) for number in range(50)))
        assert {row["name"] async for row in client.scan("things", page_rows=7)} == {"y"}
        assert {row["name"] async for row in client.scan("things", page_rows=7, snapshot=True)} == {"y"}
        assert (await client.get("things", (0, MOMENT))).row["id"] == 0
        await client.delete("things", (0, MOMENT))
        batch = pa.table({"id": [0], "at": [MOMENT], "name": ["z"]})
        ack = await client.upsert_arrow("things", batch)
        assert (await client.receipt(ack.receipt)).outcome == "survived"
        assert (await client.cluster())["epoch"] == 2
        async for document in client.cluster_events():
            assert document["active"]["site"] == "b"
            break


def test_a_key_is_one_path_segment_whatever_is_in_it() -> None:
    path = key_path(("a,b/c", 1, True, MOMENT, b"\xff", -0.5))
    assert path == "a%2Cb%2Fc,1,true,2013-01-01T05:00:00.000250Z,=L3c9PQ,-0.5"
    with pytest.raises(InvalidInput, match="time zone"):
        key_path(datetime(2013, 1, 1))
    with pytest.raises(InvalidInput, match="part of a key"):
        key_path(None)
