"""A dropped table is kept for a while, at both sites alike: it can be restored, also by the next active, until it is purged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from gateway.service.tables import TableSettings
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, open_pair, put, rows, site
from twinlog.errors import Conflict, InvalidInput, NotFound


def stored_tables(pair: Pair, name: str) -> set[int]:
    return set(site(pair, name).parts.engine.applied.schemas())


async def test_it_comes_back_at_the_other_site_though_its_name_was_given_again(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "kept")
        tables = pair.running["a"].service.tables
        old = tables.get("t")
        await tables.drop("t", confirm="t")
        with pytest.raises(NotFound):
            tables.get("t")
        with pytest.raises(Conflict):
            await put_with(pair, old)
        new, created = await tables.create({**TABLE, "primary_key": ["k"]})
        assert created
        assert new.id != old.id
        await put(pair, "a", 2, "new")
        assert await rows(pair, "a") == {2: "new"}
        with pytest.raises(Conflict, match="again"):
            await tables.restore("t")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        there = pair.running["b"].service.tables
        await there.drop("t", confirm="t")
        assert (await there.restore(f"t~{old.id}")).id == old.id, "of two with one name, the one that is named exactly"
        assert await rows(pair, "b") == {1: "kept"}
        await put(pair, "b", 3, "on it goes")
        await pair.until(lambda: caught_up(pair, "b", "a"))
        assert await rows(pair, "a") == {1: "kept", 3: "on it goes"}


async def put_with(pair: Pair, old: object) -> None:
    """A row that was encoded before the drop."""
    from gateway.service.port import Mutation, WriteRequest

    row = RowCodec(old).encode_json_row({"k": 9, "v": "x"})  # type: ignore[arg-type]
    await pair.running["a"].service.rows.write(WriteRequest(old, [Mutation("upsert", *row)]))  # type: ignore[arg-type]


async def test_a_table_with_rows_is_dropped_only_by_its_name_said_twice(tmp_path: Path) -> None:
    """A key that a client folds away on its way, as `..`, leaves a drop of the table behind."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        tables = pair.running["a"].service.tables
        with pytest.raises(Conflict, match="confirm=t"):
            await tables.drop("t")
        with pytest.raises(InvalidInput):
            await tables.drop("t", confirm="u")
        assert await rows(pair, "a") == {1: "x"}
        await put(pair, "a", 1, "", op="delete")
        await tables.drop("t")
        with pytest.raises(NotFound):
            tables.get("t")


async def test_it_is_purged_at_both_sites_once_its_time_is_over(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        service = site(pair, "a").tables
        number = service.get("t").id
        await service.drop("t", confirm="t")
        await service.purge_dropped()
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert [(kept.schema.id, kept.until_ms - (kept.schema.dropped_ms or 0)) for kept in service.dropped()] == [
            (number, 86_400_000)
        ]
        for name in "ab":
            assert stored_tables(pair, name) == {number}, "kept for a day"
        service._settings = dataclasses.replace(service._settings, drop_kept_s=0.001)
        await site(pair, "b").tables.purge_dropped()
        assert stored_tables(pair, "b") == {number}, "only the active says that it goes"
        await service.purge_dropped()
        await pair.until(lambda: caught_up(pair, "a", "b"))
        for name in "ab":
            assert stored_tables(pair, name) == set()
            engine = site(pair, name).parts.engine
            assert not await engine.scan(number, None, None, reverse=False, limit=10)
        with pytest.raises(NotFound, match="none"):
            await service.restore("t")


async def test_a_site_that_keeps_none_drops_at_once(tmp_path: Path) -> None:
    async with open_pair(tmp_path, tables=TableSettings(drop_kept_s=0.0)) as pair:
        await put(pair, "a", 1, "x")
        await site(pair, "a").tables.drop("t", confirm="t")
        assert stored_tables(pair, "a") == set()
