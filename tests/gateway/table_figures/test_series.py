"""Sizes of tables as metrics: no scrape waits, a few tables are asked for at a time, and the number of series has a bound."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.table_figures.series import AGAIN_S, ASKED_MAX, OLD_S, TABLES_MAX, TableSeries
from gateway.table_figures.sizes import TableSizes
from storage.engine import TableSize
from tests.gateway.table_figures.test_sizes import Asked, At


class Rig:
    def __init__(self, *tables: int) -> None:
        self.engine, self.clock = Asked(), At()
        self.tables = [SimpleNamespace(id=table, name=f"t{table}") for table in tables]
        engine: Any = self.engine
        clock: Any = self.clock
        found: Any = self.tables
        self.series = TableSeries(TableSizes(engine, clock), lambda: found, clock)

    def rows(self) -> Any:
        return self.series.figures()["table_rows"]

    async def settle(self) -> None:
        assert self.series._asking is not None
        await self.series._asking


async def test_a_scrape_shows_what_is_known_and_has_the_rest_measured() -> None:
    rig = Rig(1, 2)
    assert rig.rows() == {}
    await rig.settle()
    found = rig.series.figures()
    assert found == {"table_rows": {("t1",): 1.0, ("t2",): 2.0}, "table_bytes": {("t1",): 10.0, ("t2",): 20.0},
                     "table_disk_bytes": {}}
    assert rig.engine.asked == [1, 2]


async def test_what_the_storage_does_not_know_has_no_series(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig(1)

    async def unknown(table: int) -> TableSize | None:
        return TableSize(None, False, None, 7)

    monkeypatch.setattr(rig.engine, "table_size", unknown)
    rig.rows()
    await rig.settle()
    assert rig.series.figures() == {"table_rows": {}, "table_bytes": {}, "table_disk_bytes": {("t1",): 7.0}}


async def test_a_scrape_asks_for_a_few_tables_and_each_has_its_turn() -> None:
    rig = Rig(*range(20, 20 + 2 * ASKED_MAX))
    rig.rows()
    rig.rows()  # the first question is under way
    await rig.settle()
    assert len(rig.engine.asked) == ASKED_MAX
    rig.rows()
    await rig.settle()
    assert sorted(rig.engine.asked) == [table.id for table in rig.tables]
    rig.rows()
    assert len(rig.engine.asked) == 2 * ASKED_MAX
    rig.clock.now_s += AGAIN_S
    rig.rows()
    await rig.settle()
    assert len(rig.engine.asked) == 3 * ASKED_MAX


async def test_the_oldest_tables_have_series_and_those_that_are_gone_have_none() -> None:
    rig = Rig(*range(10, 10 + TABLES_MAX + 3))
    for _ in range(TABLES_MAX // ASKED_MAX + 3):
        rig.rows()
        await rig.settle()
    assert set(rig.rows()) == {(f"t{table}",) for table in range(10, 10 + TABLES_MAX)}
    del rig.tables[0]
    assert ("t10",) not in rig.rows()


async def test_a_table_without_an_answer_does_not_keep_the_others_from_their_turn() -> None:
    rig = Rig(*range(20, 21 + ASKED_MAX))
    rig.engine.fails = True
    rig.rows()
    await rig.settle()
    rig.engine.fails = False
    rig.rows()
    await rig.settle()
    assert set(rig.rows()) == {(f"t{20 + ASKED_MAX}",)}


async def test_an_old_size_is_left_out() -> None:
    rig = Rig(1)
    rig.rows()
    await rig.settle()
    rig.engine.hangs = 1
    rig.clock.now_s += OLD_S - 1
    assert set(rig.rows()) == {("t1",)}
    rig.clock.now_s += 1
    assert rig.rows() == {}
    assert rig.series._asking is not None
    rig.series._asking.cancel()
    await asyncio.gather(rig.series._asking, return_exceptions=True)
