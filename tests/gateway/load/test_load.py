"""Loading: the right rows exactly once, resumed after a stop, through lost replies and a switch; wrong input refused early."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]
import pytest

from gateway.load.loading import LoadHead, LoadPlan, LoadState, run_load
from gateway.load.sources import FLIGHTS_KEY, open_source
from tests.gateway.cli.cli_rig import invoke
from tests.gateway.two_sites import TwoSites
from twinlog import Client
from twinlog.errors import Conflict, InvalidInput, NotFound, TwinlogError

ROWS = 950


@pytest.fixture
def sites() -> Iterator[TwoSites]:
    with TwoSites() as pair:
        yield pair


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "things.csv"
    lines = [f"{n},name {n},{n / 4},2013-01-01T00:00:00Z,{'true' if n % 2 else ''}" for n in range(ROWS)]
    path.write_text("\n".join(["id,name,weight,at,flag", *lines]) + "\n", encoding="utf-8")
    return path


def plan(sites: TwoSites, csv: Path, **options: Any) -> LoadPlan:
    standard = LoadPlan(source=str(csv), address=sites.address, table="things", key=("id",), batch_rows=100)
    return replace(standard, **options)


def stored(sites: TwoSites) -> list[dict[str, Any]]:
    with Client(sites.address) as client:
        return list(client.scan("things"))


def test_the_command_says_what_it_loaded(sites: TwoSites, csv: Path, tmp_path: Path) -> None:
    """A load whose output goes into a file has no bar, and is not silent."""
    words = ("load", str(csv), "--config", sites.address, "--table", "things", "--key", "id", "--batch-rows", "100")
    done = invoke(*words, "--state", str(tmp_path / "state"))
    assert f"Loaded {ROWS} rows into things in " in done.output
    assert "10 requests acknowledged (sync 10)." in done.output
    again = " ".join(invoke(*words, "--state", str(tmp_path / "state")).output.split())
    assert "Loaded 0 rows into things" in again
    assert "10 requests had been acknowledged before" in again


def test_a_file_becomes_a_table(sites: TwoSites, csv: Path, tmp_path: Path) -> None:
    summary = run_load(plan(sites, csv, acks=tmp_path / "acks"))
    assert (summary["rows"], summary["batches"], summary["acknowledged"], summary["modes"]) == (ROWS, 10, 10, {"sync": 10})
    rows = stored(sites)
    assert rows[5] == {"id": 5, "name": "name 5", "weight": 1.25, "at": datetime(2013, 1, 1, tzinfo=UTC), "flag": True}
    assert len(rows) == ROWS
    assert rows[4]["flag"] is None
    acks = [json.loads(line) for line in (tmp_path / "acks").read_text().splitlines()]
    assert sorted(ack["first_row"] for ack in acks) == list(range(0, ROWS, 100))
    assert sum(ack["rows"] for ack in acks) == ROWS
    with Client(sites.address) as client:
        assert all(client.receipt(ack["receipt"]).outcome == "survived" for ack in acks)


def test_an_empty_field_is_null_where_its_column_takes_null(sites: TwoSites, tmp_path: Path) -> None:
    file = tmp_path / "texts.csv"
    file.write_text('id,part,a,b,n\n1,x,,"",\n2,,NA,null,3\n3,y,"a ""b""",,NA\n', encoding="utf-8")
    assert run_load(plan(sites, file, key=("id", "part")))["rows"] == 3
    assert stored(sites) == [
        {"id": 1, "part": "x", "a": None, "b": "", "n": None}, {"id": 2, "part": "", "a": "NA", "b": "null", "n": 3},
        {"id": 3, "part": "y", "a": 'a "b"', "b": None, "n": None},
    ]
    with Client(sites.address) as client:
        columns = [{"name": "id", "type": "int64"}, {"name": "a", "type": "string", "nullable": False}]
        client.create_table({"name": "strict", "columns": columns, "primary_key": ["id"]})
        other = tmp_path / "strict.csv"
        other.write_text("id,a\n1,\n2,x\n", encoding="utf-8")
        run_load(plan(sites, other, table="strict", key=()))
        assert [row["a"] for row in client.scan("strict")] == ["", "x"]


def test_lost_replies_and_a_switch_repeat_nothing(sites: TwoSites, csv: Path) -> None:
    sites.doors["a"].faults = ["", "refused-unknown", "switch"]
    sites.doors["b"].faults = ["draining", "refused-unknown"]
    summary = run_load(plan(sites, csv, deadline_s=20.0))
    assert summary["rows"] == len(stored(sites)) == ROWS
    keys = sites.doors["a"].seen_keys + sites.doors["b"].seen_keys
    assert len(set(keys) - {None}) == 10
    assert len(keys) > 10
    assert sites.doors["a"].engine.applied.seq == ROWS + 1, "each row once, and the table"


def test_a_load_that_was_stopped_goes_on_where_it_was(sites: TwoSites, csv: Path, tmp_path: Path) -> None:
    state = tmp_path / "load.state"
    sites.doors["a"].faults = ["", "", "", "refused"]
    with pytest.raises(TwinlogError):
        run_load(plan(sites, csv, state=state, in_flight=1))
    assert len(state.read_text().splitlines()) == 4
    with state.open("ab") as file:
        file.write(b"99")  # a crash in the middle of a line
    sites.doors["a"].faults = []
    sites.doors["a"].seen_keys.clear()
    summary = run_load(plan(sites, csv, state=state))
    assert (summary["acknowledged_before"], summary["acknowledged"], summary["rows"]) == (3, 7, ROWS - 300)
    assert len(stored(sites)) == ROWS
    load = json.loads(state.read_text().splitlines()[0])["load"]
    assert set(sites.doors["a"].seen_keys) == {f"{load}-{number}" for number in range(3, 10)}
    assert run_load(plan(sites, csv, state=state))["acknowledged"] == 0


def test_another_load_does_not_go_on_from_this_state(sites: TwoSites, csv: Path, tmp_path: Path) -> None:
    state = tmp_path / "load.state"
    run_load(plan(sites, csv, state=state))
    with pytest.raises(Conflict, match="100 rows a batch"):
        run_load(plan(sites, csv, state=state, batch_rows=50))
    state.write_text("nonsense\n")
    with pytest.raises(InvalidInput, match="no state file"):
        run_load(plan(sites, csv, state=state))


def test_the_state_is_on_the_disk_when_a_batch_is_noted(tmp_path: Path) -> None:
    head = LoadHead("l", "s", "t", 1, 0)
    with LoadState(tmp_path / "s", head) as state:
        state.note(3)
        with LoadState(tmp_path / "s", LoadHead("other", "s", "t", 1, 0)) as again:
            assert again.acknowledged == {3}
            assert again.head.load == "l"


def test_rows_max_cuts_the_load(sites: TwoSites, csv: Path) -> None:
    assert run_load(plan(sites, csv, rows_max=130))["rows"] == 130
    assert len(stored(sites)) == 130


@pytest.mark.parametrize("suffix", ["parquet", "ndjson"])
def test_other_formats(sites: TwoSites, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"things.{suffix}"
    if suffix == "parquet":
        when = pa.array([datetime(2013, 1, 1, tzinfo=UTC)] * 3, pa.timestamp("ns", "UTC"))
        kind = pa.array(["x", "y", "x"]).dictionary_encode()
        pa.parquet.write_table(pa.table({"id": [1, 2, 3], "at": when, "kind": kind}), path)
    else:
        path.write_text("".join(f'{{"id": {n}, "at": "2013-01-01T00:00:00", "kind": "x"}}\n' for n in (1, 2, 3)))
    assert run_load(plan(sites, path))["rows"] == 3
    assert stored(sites)[0] == {"id": 1, "at": datetime(2013, 1, 1, tzinfo=UTC), "kind": "x"}


@pytest.mark.parametrize(("content", "key", "problem"), [
    ("id,v\n1,a\n1,b\n", ("id",), "is not unique: 2 rows have 1 different keys"),
    ("id,v\n1,a\n,b\n", ("id",), "has nulls"),
    ("id,v\n1,a\n", ("nope",), "--key names nope"),
    ("id,v\n1,a\n", (), "give --key"),
    ("id,v\n1\n", ("id",), "cannot be read as csv"),
])
def test_wrong_input_is_refused_before_a_row_is_sent(
    sites: TwoSites, tmp_path: Path, content: str, key: tuple[str, ...], problem: str
) -> None:
    path = tmp_path / "x.csv"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=problem):
        run_load(plan(sites, path, key=key))
    assert sites.doors["a"].engine.applied.seq == 0


def test_sources_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"\.parquet"):
        open_source("x.xls", "t", ())
    with pytest.raises(NotFound):
        open_source(str(tmp_path / "x.csv"), "t", ())


def test_the_flights_have_a_unique_key_and_fitting_types() -> None:
    source = open_source("flights", "", ())
    assert source.rows.num_rows == 336_776
    body = source.table_body()
    types = {column["name"]: column["type"] for column in body["columns"]}
    assert (body["name"], tuple(body["primary_key"])) == ("flights", FLIGHTS_KEY)
    assert (types["time_hour"], types["flight"], types["dep_delay"]) == ("timestamp", "int32", "int32")
    number, first, batch = list(source.batches(1000, 0))[-1]
    assert (number, first, batch.num_rows) == (336, 336_000, 776)
