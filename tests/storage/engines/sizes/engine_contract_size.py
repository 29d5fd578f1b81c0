"""The contract of storage engines for sizes of tables: small ones are counted, larger ones estimated, within a factor.

Source: storage/engine.py.
"""

from __future__ import annotations

import asyncio

import pytest

from storage.engine import TableSize
from storage.engines.sizes import sampling
from storage.engines.sql import sizes as sql_sizes
from tests.storage.engines.engine_rig import Log, Rig, T, delete, drop_table, put_table, upsert, value

COUNTED = 200  # here
ROWS = 3000
CONTENT = value(c1="x" * 40)


async def fill(rig: Rig, log: Log, keys: list[bytes], table: int = T) -> None:
    for begin in range(0, len(keys), 500):
        await rig.engine.apply([log.frame(*(upsert(key, CONTENT, table) for key in keys[begin : begin + 500]))])


class EngineSizeContract:
    """Collected through a subclass that provides the fixture `rig`."""

    @pytest.fixture
    def small_bounds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """So that a few thousand rows are many."""
        monkeypatch.setattr(sampling, "COUNTED_ROWS", COUNTED)
        monkeypatch.setattr(sql_sizes, "COUNTED_PAGES", 4)
        monkeypatch.setattr(sql_sizes, "PAGES_READ", 16)

    async def test_a_table_that_is_not_there_has_no_size(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        assert await engine.table_size(T) is None
        await engine.apply([log.frame(put_table()), log.frame(upsert(b"k", CONTENT))])
        assert await engine.table_size(T + 1) is None
        await engine.apply([log.frame(drop_table())])
        assert await engine.table_size(T) is None

    async def test_an_empty_table_has_no_row_and_a_small_one_is_counted(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(), put_table(T + 1, name="u"))])
        empty = await engine.table_size(T)
        assert empty is not None
        assert empty[:3] == (0, True, 0)
        await fill(rig, log, [b"%03d" % number for number in range(100)])
        await fill(rig, log, [b"other"], T + 1)
        await engine.apply([log.frame(delete(b"007"), upsert(b"008", CONTENT))])
        for _ in range(2):  # from memory, and from files
            found = await engine.table_size(T)
            assert found is not None
            assert found[:3] == (99, True, 99 * (3 + len(CONTENT)))
            await engine.flush()

    @pytest.mark.usefixtures("small_bounds")
    @pytest.mark.parametrize("kind", ["numbers", "text", "tenants"])
    async def test_a_large_table_is_estimated_within_a_factor(self, rig: Rig, kind: str) -> None:
        """Between two other tables, a larger one among them; flushed in parts."""
        keys = [key_of(kind, number) for number in range(ROWS)]
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(*(put_table(number, name=f"t{number}") for number in (T - 1, T, T + 1)))])
        await fill(rig, log, [b"before-%d" % number for number in range(300)], T - 1)
        await fill(rig, log, keys[: ROWS // 2])
        await engine.flush()
        await fill(rig, log, keys[ROWS // 2 :])
        await fill(rig, log, [b"behind-%06d" % number for number in range(2 * ROWS)], T + 1)
        await engine.flush()
        found = await engine.table_size(T)
        assert found is not None
        assert found == await engine.table_size(T)
        assert_within(found, ROWS, sum(len(key) + len(CONTENT) for key in keys))
        said = ROWS if found.is_counted else sampling.about(found.rows or 0)
        assert found.rows == said, "only a count may look like one"

    @pytest.mark.usefixtures("small_bounds")
    async def test_rows_that_are_deleted_are_not_counted(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table())])
        keys = [key_of("numbers", number) for number in range(ROWS)]
        await fill(rig, log, keys)
        await engine.flush()
        await engine.apply([log.frame(*map(delete, keys[COUNTED // 2 :]))])
        found = await engine.table_size(T)
        assert found is not None
        assert found.rows in (None, COUNTED // 2) if found.is_counted else (found.rows or 0) <= COUNTED

    async def test_a_table_that_is_dropped_meanwhile_raises_nothing(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        for _ in range(5):
            await engine.apply([log.frame(put_table())])
            await fill(rig, log, [b"%03d" % number for number in range(50)])
            found, _ = await asyncio.gather(engine.table_size(T), engine.apply([log.frame(drop_table())]))
            assert found is None or found[:2] in ((50, True), (0, True))


def key_of(kind: str, number: int) -> bytes:
    if kind == "numbers":
        return number.to_bytes(8, "big")
    if kind == "text":
        return b"%x/%d" % (number * 2654435761 % (1 << 32), number)
    return b"tenant-%02d/%d" % (number % 40, number)


def assert_within(found: TableSize, rows: int, size: int, factor: float = 2.5) -> None:
    assert found.rows is not None
    assert found.bytes is not None
    assert rows / factor <= found.rows <= rows * factor, found
    assert size / factor <= found.bytes <= size * factor, found
