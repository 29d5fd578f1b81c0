"""Tables from the command line: created, changed, dropped; and what is wrong with a command is said before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.gateway.cli.cli_rig import invoke
from tests.gateway.two_sites import TwoSites


@pytest.fixture(autouse=True)
def sites(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoSites]:
    with TwoSites() as pair:
        monkeypatch.setenv("TWINLOG_CONFIG", pair.address)
        monkeypatch.setenv("COLUMNS", "100")
        yield pair


def columns_of(table: str) -> dict[str, tuple[str, bool]]:
    found = json.loads(invoke("tables", table, "--json").stdout)
    return {column["name"]: (column["type"], column["nullable"]) for column in found["columns"]}


def test_a_table_from_its_creation_to_its_drop() -> None:
    words = ["create-table", "planes", "tail:string", "seats:int32", "note:string", "--key", "tail", "--not-null", "seats"]
    made = invoke(*words)
    assert made.exit_code == 0, made.output
    assert [line.split()[:3] for line in made.stdout.splitlines()[1:]] == [
        ["tail", "string", "key"], ["seats", "int32", "not"], ["note", "string"]
    ]
    assert columns_of("planes") == {"tail": ("string", False), "seats": ("int32", False), "note": ("string", True)}
    assert invoke(*words).exit_code == 0, "the same once more is fine"
    assert invoke("put", "planes", "N1", "seats=149").exit_code == 0

    change = ["--add", "built:int64", "--drop", "note", "--rename", "seats=places", "--history", "60"]
    changed = invoke("alter-table", "planes", *change, "--json")
    assert changed.exit_code == 0, changed.output
    assert json.loads(changed.stdout)["history_s"] == 60
    assert columns_of("planes") == {"tail": ("string", False), "places": ("int32", False), "built": ("int64", True)}
    assert json.loads(invoke("get", "planes", "N1", "--json").stdout)["row"]["places"] == 149
    assert invoke("drop-table", "planes", "--confirm", "planes").exit_code == 0
    assert json.loads(invoke("tables", "--json").stdout)["tables"] == []


def test_figures_of_a_table_say_what_both_sites_have() -> None:
    assert invoke("create-table", "planes", "tail:string", "--key", "tail").exit_code == 0
    assert invoke("put", "planes", "N1").exit_code == 0
    found = json.loads(invoke("tables", "planes", "--figures", "--json").stdout)
    assert (found["size"]["rows"], found["size"]["rows_are"]) == (1, "counted")
    shown = " ".join(invoke("tables", "planes", "--figures").stdout.split())
    assert "at site a 1 row, " in shown
    assert "at site b unknown schema revision 1 here; unknown (site b does not answer)" in shown


@pytest.mark.parametrize(("words", "said"), [
    (["tables", "--figures"], "--figures are of one table: name it"),
    (["create-table", "t", "id", "--key", "id"], "'id' is not of the form COLUMN:TYPE"),
    (["create-table", "t", "id:int64", "--key", "other"], "other is none of this table"),
    (["alter-table", "t"], "what is to change in t? give --add"),
    (["alter-table", "t", "--rename", "a"], "'a' is not of the form OLD=NEW"),
])
def test_what_is_wrong_is_said_before_anything_is_sent(words: list[str], said: str) -> None:
    result = invoke(*words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())


def test_what_the_site_finds_wrong_is_an_error_of_its_own() -> None:
    result = invoke("create-table", "t", "id:integer", "--key", "id")
    assert result.exit_code == 1
    assert "int64" in result.stderr, "the types that there are"
