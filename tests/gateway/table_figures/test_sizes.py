"""Sizes of tables are asked for once in a while, and nobody waits long for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.table_figures import sizes as room
from gateway.table_figures.documents import TableSizeDocument
from gateway.table_figures.sizes import FRESH_S, TableSizes
from storage.engine import TableSize
from twinlog.errors import EngineFailed


class At:
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


class Asked:
    """An engine that notes which table it was asked for. Table 9 is dropped; `hangs`: it does not answer for this one."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.hangs: int | None = None
        self.fails = False

    async def table_size(self, table: int) -> TableSize | None:
        self.asked.append(table)
        if self.fails:
            raise EngineFailed("the storage cannot read")
        if table == self.hangs:
            await asyncio.Event().wait()
        return None if table == 9 else TableSize(table, True, 10 * table)


class Rig:
    def __init__(self) -> None:
        self.engine, self.clock = Asked(), At()
        engine: Any = self.engine
        clock: Any = self.clock
        self.sizes = TableSizes(engine, clock)


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_a_page_does_not_ask_again_what_is_fresh(rig: Rig) -> None:
    first = await rig.sizes.of([1, 2])
    assert first == {1: TableSizeDocument(1, "counted", 10, None, 0.0), 2: TableSizeDocument(2, "counted", 20, None, 0.0)}
    rig.clock.now_s += FRESH_S - 1
    again = await rig.sizes.of([2, 3])
    assert rig.engine.asked == [1, 2, 3]
    assert {table: size.age_s for table, size in again.items()} == {2: FRESH_S - 1, 3: 0.0}
    rig.clock.now_s += 2
    assert (await rig.sizes.of([2]))[2].age_s == 0.0
    assert rig.engine.asked == [1, 2, 3, 2]


async def test_two_pages_at_once_ask_once(rig: Rig) -> None:
    await asyncio.gather(rig.sizes.of([1, 2]), rig.sizes.of([1, 2]))
    assert rig.engine.asked == [1, 2]


async def test_an_engine_that_does_not_answer_keeps_back_only_what_is_not_known(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "ASK_S", 0.05)
    await rig.sizes.of([2])
    rig.clock.now_s += FRESH_S
    rig.engine.hangs = 3
    found = await rig.sizes.of([1, 2, 3])  # 2 is known, so it comes last
    assert {table: size.age_s for table, size in found.items()} == {1: 0.0, 2: FRESH_S}
    rig.engine.hangs = None
    assert set(await rig.sizes.of([1, 2, 3])) == {1, 2, 3}


async def test_an_engine_that_fails_and_a_dropped_table_are_not_known(rig: Rig) -> None:
    assert set(await rig.sizes.of([1, 9])) == {1}
    rig.engine.fails = True
    assert set(await rig.sizes.of([1, 4])) == {1}


async def test_sizes_are_kept_up_to_a_bound(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "KEPT_MAX", 3)
    assert set(await rig.sizes.of([1, 2, 3, 4, 5])) == {3, 4, 5}
