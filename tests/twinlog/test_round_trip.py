"""Whatever Python value goes into a column comes out of it again: by put, batch and update, by get and scan, as a key too."""

from __future__ import annotations

import asyncio
import itertools
import math
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from storage.rows.types import TYPES
from tests.gateway.two_sites import TwoSites
from tests.needs import need_program
from tests.storage.rows.strategies import KEY_TYPES, STORED, same, stored_in_key
from tests.twinlog.test_key_text import TEXTS, TRICKY
from twinlog import AsyncClient, Client
from twinlog.calls import key_path
from twinlog.errors import InvalidInput, PeerError
from twinlog.flow import Call
from twinlog.rows import to_python

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.one_of(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES),
    st.sampled_from([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)]),
)
DECIMALS = st.one_of(STORED["decimal"].map(Decimal), st.sampled_from([Decimal("12.50"), Decimal("-0"), Decimal("1E+9")]))
OF_TYPE = {name: {"timestamp": MOMENTS, "decimal": DECIMALS}.get(name, STORED[name]) for name in TYPES}
ROWS = st.fixed_dictionaries({f"a_{name}": st.one_of(st.none(), values) for name, values in OF_TYPE.items()})
TABLE = {
    "name": "all", "primary_key": ["id"],
    "columns": [{"name": "id", "type": "int64"}, *({"name": f"a_{name}", "type": name} for name in TYPES)],
}
NUMBERS = itertools.count()
PUT_JAVA = """
import java.net.URI;
import java.net.http.*;
class Put {
    public static void main(String[] urls) throws Exception {
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (String url : urls) {
            HttpRequest put = HttpRequest.newBuilder(URI.create(url).normalize()).header("content-type", "application/json")
                .PUT(HttpRequest.BodyPublishers.ofString("{}")).build();
            System.out.println(client.send(put, HttpResponse.BodyHandlers.ofString()).statusCode());
        }
    }
}
"""


@pytest.fixture(scope="module")
def sites() -> Iterator[TwoSites]:
    with TwoSites() as pair:
        yield pair


@pytest.fixture(scope="module")
def client(sites: TwoSites) -> Iterator[Client]:
    with Client(sites.urls) as made:
        made.create_table(TABLE)
        for name in KEY_TYPES:
            columns = [{"name": "k", "type": name}, {"name": "v", "type": "int64"}]
            made.create_table({"name": f"by_{name}", "columns": columns, "primary_key": ["k"]})
        columns = [{"name": "k", "type": "string"}, {"name": "l", "type": "string"}, {"name": "v", "type": "int64"}]
        made.create_table({"name": "by_two", "columns": columns, "primary_key": ["k", "l"]})
        yield made


def same_row(found: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Equal value by value, with types, NaN and -0.0."""
    return found.keys() == sent.keys() and all(same(found[name], value) for name, value in sent.items())


@given(row=ROWS)
@example(row={f"a_{name}": None for name in TYPES} | {"a_float64": math.nan, "a_float32": -0.0})
@settings(max_examples=60, deadline=None)
def test_a_row_comes_back_as_it_went_in(client: Client, sites: TwoSites, row: dict[str, Any]) -> None:
    first, second, third = (next(NUMBERS) for _ in range(3))
    client.put("all", first, row)
    client.mutate("all", [{"op": "upsert", "row": {"id": second, **row}}, {"op": "insert", "row": {"id": third}}])
    client.update("all", third, row)
    read = [client.get("all", number).row for number in (first, second, third)]
    scanned = list(client.scan("all", start=first, page_rows=2))
    for number, found in zip((first, second, third) * 2, [*read, *scanned], strict=True):
        assert same_row(found, {"id": number, **row})
    moment = row["a_timestamp"]
    assert moment is None or read[0]["a_timestamp"].tzinfo is UTC

    async def asynchronously() -> list[dict[str, Any]]:
        async with AsyncClient(sites.urls) as other:
            await other.put("all", first, row)
            return [(await other.get("all", first)).row, *[found async for found in other.scan("all", start=third)]]

    once, last = asyncio.run(asynchronously())
    assert same_row(once, {"id": first, **row})
    assert same_row(last, {"id": third, **row})


@pytest.mark.parametrize("kind", KEY_TYPES)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_key_comes_back_as_it_went_in(client: Client, kind: str, data: st.DataObject) -> None:
    values = OF_TYPE[kind] if kind in ("timestamp", "decimal") else stored_in_key(kind)
    key = data.draw(values)
    number = next(NUMBERS)
    client.put(f"by_{kind}", key, {"v": number})
    assert same_row(client.get(f"by_{kind}", key).row, {"k": key, "v": number})
    assert {"k": key, "v": number} in list(client.scan(f"by_{kind}", start=key))
    assert list(client.scan(f"by_{kind}", where=[("v", "=", number)])) == [{"k": key, "v": number}]
    client.delete(f"by_{kind}", key)


@given(keys=st.lists(TEXTS, min_size=3, max_size=3, unique=True))
@example(keys=["..", ".", ""])
@example(keys=["a/../..", "%2e%2e", "=Li4"])
@settings(max_examples=60, deadline=None)
def test_a_text_key_names_its_own_row_only(client: Client, keys: list[str]) -> None:
    """Whatever a key holds: a put, a get, an update, a check and a delete are of that row, and the table stays."""
    for number, key in enumerate(keys):
        client.put("by_string", key, {"v": number})
    assert [client.get("by_string", key).row for key in keys] == [{"k": key, "v": v} for v, key in enumerate(keys)]
    client.update("by_string", keys[0], {"v": 7})
    client.check("by_string", keys[1], {
        "conditions": [{"column": "v", "op": "=", "value": 1}], "mutations": [{"op": "delete", "key": {"k": keys[1]}}],
    })
    assert client.get("by_string", keys[0]).row["v"] == 7
    client.delete("by_string", keys[0])
    assert list(client.scan("by_string")) == [{"k": keys[2], "v": 2}]
    client.delete("by_string", keys[2])
    assert list(client.scan("by_string")) == []


@given(keys=st.tuples(TEXTS, TEXTS))
@example(keys=("..", ".."))
@settings(max_examples=40, deadline=None)
def test_a_composite_key_names_its_own_row_only(client: Client, keys: tuple[str, str]) -> None:
    client.put("by_two", keys, {"v": 1})
    assert client.get("by_two", keys).row == {"k": keys[0], "l": keys[1], "v": 1}
    client.delete("by_two", keys)
    assert list(client.scan("by_two")) == []


@pytest.mark.parametrize("key", [key for key in TRICKY if "\0" not in key])
def test_curl_sends_a_key_as_the_client_writes_it(client: Client, sites: TwoSites, key: str) -> None:
    """It folds paths in another way than httpx."""
    url = f"{sites.urls['a']}/v1/tables/by_string/rows/{key_path(key)}"
    curl = ["curl", "-fsS", "-X", "PUT", url, "-H", "content-type: application/json", "-d", '{"v": 5}']
    done = subprocess.run(curl, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert client.get("by_string", key).row == {"k": key, "v": 5}
    client.delete("by_string", key)


def test_java_sends_a_key_as_the_client_writes_it(client: Client, sites: TwoSites, tmp_path: Path) -> None:
    """Java's own client, and URI with its `normalize`."""
    java = need_program("java", "openjdk-17-jre-headless")
    (tmp_path / "Put.java").write_text(PUT_JAVA)
    urls = [f"{sites.urls['a']}/v1/tables/by_string/rows/{key_path(key)}" for key in TRICKY]
    done = subprocess.run(
        [java, str(tmp_path / "Put.java"), *urls], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["200"] * len(urls), done.stderr
    assert {row["k"] for row in client.scan("by_string")} == set(TRICKY)
    for key in TRICKY:
        client.delete("by_string", key)


@pytest.mark.parametrize("path", ["..", ".", "%2e%2e", ".%2E"])
def test_a_bare_dot_segment_is_refused_by_the_site(client: Client, sites: TwoSites, path: str) -> None:
    url = f"{sites.urls['a']}/v1/tables/by_string/rows/{path}"
    curl = ["curl", "-sS", "--path-as-is", "-X", "DELETE", url]
    answer = subprocess.run(curl, capture_output=True, text=True, timeout=300, check=True).stdout
    assert "write it as =L" in answer, answer


def test_a_name_that_would_be_folded_is_refused_before_anything_is_sent(client: Client) -> None:
    client.put("by_string", "kept", {"v": 1})
    for ask in (
        lambda: client.drop_table("..", confirm=".."), lambda: client.release_barrier("..", site="a"),
        lambda: client.delete("..", "by_string"), lambda: client.receipt("."),
        lambda: client.send(Call("DELETE", "/v1/barriers/../tables/by_string?confirm=by_string")),
        lambda: client.send(Call("DELETE", "/v1/barriers/%2e%2E/tables/by_string?confirm=by_string")),
    ):
        with pytest.raises(InvalidInput, match="nothing was sent"):
            ask()
    assert client.get("by_string", "kept").row["v"] == 1
    client.delete("by_string", "kept")


def test_a_condition_takes_python_s_types_too(client: Client) -> None:
    row = {"a_timestamp": datetime(2013, 1, 1, tzinfo=UTC), "a_decimal": Decimal("12.50"), "a_bytes": b"\xff\x00"}
    number = next(NUMBERS)
    client.put("all", number, row)
    for name, value in row.items():
        found = list(client.scan("all", start=number, where=[(name, "=", value)], columns=["id"]))
        assert found == [{"id": number}]
        body = {"conditions": [{"column": name, "op": "=", "value": value}], "mutations": [
            {"op": "update", "row": {"id": number, "a_string": name}}
        ]}
        client.check("all", number, body)
        assert client.get("all", number, columns=["a_string"]).row == {"a_string": name}


def test_columns_that_changed_meanwhile_are_read_again(client: Client, sites: TwoSites) -> None:
    table = {"name": "t", "primary_key": ["id"], "columns": [{"name": "id", "type": "int64"}, {"name": "v", "type": "decimal"}]}
    client.create_table(table)
    client.put("t", 1, {"v": Decimal("1.5")})
    assert client.get("t", 1).row == {"id": 1, "v": Decimal("1.5")}
    with Client(sites.urls) as other:
        other.alter_table("t", {"drop": ["v"]})
        other.alter_table("t", {"add": [{"name": "v", "type": "timestamp"}, {"name": "w", "type": "bytes"}]})
        other.put("t", 1, {"v": datetime(2013, 1, 1, tzinfo=UTC), "w": b"x"})
    assert client.get("t", 1).row == {"id": 1, "v": datetime(2013, 1, 1, tzinfo=UTC), "w": b"x"}
    assert list(client.scan("t", columns=["v"])) == [{"v": datetime(2013, 1, 1, tzinfo=UTC)}]


@pytest.mark.parametrize(("before", "after", "old", "new"), [
    ("string", "decimal", "1.50", Decimal("1.5")), ("decimal", "string", Decimal("1.5"), "1.50"),
    ("int64", "timestamp", 7, datetime(2013, 1, 1, tzinfo=UTC)), ("timestamp", "int64", datetime(2013, 1, 1, tzinfo=UTC), 7),
    ("json", "decimal", {"a": 1}, Decimal("1.5")),
])
def test_a_column_that_came_back_with_another_type_is_read_by_that_one(
    client: Client, sites: TwoSites, before: str, after: str, old: Any, new: Any
) -> None:
    """Both types are answered with the same msgpack, so a value does not show which of them its column has."""
    name = f"again_{next(NUMBERS)}"
    columns = [{"name": "id", "type": "int64"}, {"name": "v", "type": before}]
    client.create_table({"name": name, "primary_key": ["id"], "columns": columns})
    client.put(name, 1, {"v": old})

    async def asynchronously() -> None:
        async with AsyncClient(sites.urls) as reader:
            assert same((await reader.get(name, 1)).row["v"], old)
            change()
            assert same((await reader.get(name, 1)).row["v"], new)

    def change() -> None:
        with Client(sites.urls) as other:
            other.alter_table(name, {"drop": ["v"]})
            other.alter_table(name, {"add": [{"name": "v", "type": after}]})
            other.put(name, 1, {"v": new})

    assert same(client.get(name, 1).row["v"], old)
    asyncio.run(asynchronously())
    assert same(client.get(name, 1).row["v"], new)
    assert [same(row["v"], new) for row in client.scan(name)] == [True]


def test_a_row_of_other_columns_is_noticed() -> None:
    for wrong in ({"n": "text"}, {"n": 1.0}, {"n": True}, {"other": 1}):
        with pytest.raises(PeerError):
            to_python([wrong], {"n": "int64"})
    assert to_python([], {"n": "int64"}) == []
    assert to_python([{"n": None}], {"n": "timestamp"}) == [{"n": None}]
