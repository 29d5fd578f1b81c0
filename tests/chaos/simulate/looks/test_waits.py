"""Requests that wait for each other's keys are seen while they wait."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulate.looks.waits import circles
from gateway.service.key_gate import KeyGate, RowKey

ONE, TWO, THREE = (1, b"one"), (1, b"two"), (1, b"three")


async def said(gate: Any, *requests: list[RowKey]) -> list[str]:
    """Returns what is said once each of the `requests` has its first key, and asks for the next one."""
    async def hold(keys: list[RowKey]) -> None:
        await gate.hold(keys)

    gate._blind = {key[0]: 1 for key in requests}  # so that each waits with its first key, until all have theirs
    tasks = [asyncio.ensure_future(hold(keys)) for keys in requests]
    await asyncio.sleep(0)
    gate.leave([keys[0] for keys in requests])
    for _ in range(5):
        await asyncio.sleep(0)
    process: Any = SimpleNamespace(name="a.1", tasks=tasks)
    found = circles(process)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    return found


def take_as_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are taken in the order in which each request names them."""
    monkeypatch.setitem(KeyGate.hold.__globals__, "sorted", list)
    monkeypatch.setitem(KeyGate.hold.__globals__, "set", list)


async def test_who_waits_for_the_same_keys_in_one_order_gets_them() -> None:
    assert await said(KeyGate(), [ONE, TWO], [TWO, THREE]) == []


async def test_two_that_wait_for_each_other_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    take_as_named(monkeypatch)
    assert await said(KeyGate(), [ONE, TWO], [TWO, ONE]) == ["Requests in a.1 wait for each other's keys."]


async def test_a_circle_of_three_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    take_as_named(monkeypatch)
    assert len(await said(KeyGate(), [ONE, TWO], [TWO, THREE], [THREE, ONE])) == 1
