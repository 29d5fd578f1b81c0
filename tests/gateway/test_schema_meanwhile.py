"""A table that changes while a row of it is read: the row is shown with all that its own write put there."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pyarrow as pa  # type: ignore[import-untyped]
import pytest

from tests.gateway.door_client import ROWS, DoorClient, problem

LATE = {"note": "of the later schema", "gate": "C7"}
ARROW = "application/vnd.apache.arrow.stream"


def before_the_read(door: DoorClient, monkeypatch: pytest.MonkeyPatch, change: Callable[[], Awaitable[None]]) -> None:
    """Does `change` once, when the next read has begun and the storage has not been asked yet."""
    left = [change]

    def behind(ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*arguments: Any, **named: Any) -> Any:
            if left:
                await left.pop()()
            return await ask(*arguments, **named)

        return asked

    for name in ("get", "get_as_of", "scan"):
        monkeypatch.setattr(door.service.engine, name, behind(getattr(door.service.engine, name)))


def altered_and_written(door: DoorClient) -> Callable[[], Awaitable[None]]:
    async def change() -> None:
        added = await door.http.patch("/v1/tables/flights", json={"add": [{"name": "gate", "type": "string"}]})
        assert added.status_code == 200, added.text
        await door.put("UA,1", LATE)

    return change


async def test_a_row_that_is_read(door: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await door.put("UA,1", {"note": "before"})
    before_the_read(door, monkeypatch, altered_and_written(door))
    answer = await door.http.get(f"{ROWS}/UA,1")
    assert {name: answer.json()["row"].get(name) for name in LATE} == LATE
    again = await door.http.get(f"{ROWS}/UA,1")
    assert answer.headers["twinlog-schema"] == again.headers["twinlog-schema"]
    assert answer.headers["etag"] == again.headers["etag"]


async def test_the_rows_of_a_page(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    await plain.put("UA,1", {"note": "before"})
    before_the_read(plain, monkeypatch, altered_and_written(plain))
    answer = await plain.http.get(ROWS)
    assert [{name: row.get(name) for name in LATE} for row in answer.json()["rows"]] == [LATE]
    assert answer.headers["twinlog-schema"] == (await plain.http.get(ROWS)).headers["twinlog-schema"]


@pytest.mark.parametrize("kind", ["application/x-ndjson", ARROW])
async def test_the_first_rows_of_a_stream(plain: DoorClient, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    await plain.put("UA,1", {"note": "before"})
    before_the_read(plain, monkeypatch, altered_and_written(plain))
    answer = await plain.http.get(ROWS, headers={"accept": kind})
    assert [{name: row.get(name) for name in LATE} for row in _rows(answer, kind)] == [LATE]


def _rows(answer: httpx.Response, kind: str) -> list[dict[str, Any]]:
    if kind == ARROW:
        return pa.ipc.open_stream(answer.content).read_all().to_pylist()  # type: ignore[no-any-return]
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_a_table_that_is_gone_by_then_is_not_there(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drop() -> None:
        dropped = await plain.http.delete("/v1/tables/flights", params={"confirm": "flights"})
        assert dropped.status_code == 204, dropped.text

    await plain.put("UA,1", {"note": "before"})
    before_the_read(plain, monkeypatch, drop)
    problem(await plain.http.get(f"{ROWS}/UA,1"), 404, "not-found", table="flights")
