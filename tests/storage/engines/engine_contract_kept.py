"""The contract of storage engines for kept snapshots, as tests over a `Rig`. Source: storage/engine.py (`keep_snapshot`)."""

from __future__ import annotations

import asyncio

import pytest

from storage.engine import StorageEngine
from tests.storage.engines.engine_rig import (
    Log,
    Rig,
    T,
    delete,
    drop_table,
    noop,
    put_table,
    start_epoch,
    update,
    upsert,
    value,
)
from tests.storage.engines.kept_reading import content_of, read_kept
from twinlog.errors import EngineFailed


def held(engine: StorageEngine) -> list[tuple[str, int, int, int]]:
    return [(kept.name, kept.seq, kept.epoch, kept.taken_ms) for kept in engine.kept_snapshots()]


class EngineKeptContract:
    async def test_nothing_is_kept_at_first(self, rig: Rig) -> None:
        assert rig.engine.kept_snapshots() == []
        await rig.engine.release_snapshot("none")

    async def test_an_empty_engine_can_be_kept(self, rig: Rig) -> None:
        await rig.engine.keep_snapshot("empty", 5)
        before = await content_of(rig.engine)
        assert held(rig.engine) == [("empty", 0, 0, 5)]
        assert await read_kept(rig.engine, "empty") == before
        await rig.engine.apply([Log().frame(upsert(b"k", value(c1=1)))])
        assert held(rig.engine) == [("empty", 0, 0, 5)]
        assert await read_kept(rig.engine, "empty") == before

    async def test_it_holds_exactly_what_was_applied_then(self, rig: Rig) -> None:
        """It holds what is in memory only, too; and nothing of what came later, be it of the same rows."""
        log, engine = Log(), rig.engine
        rows = [upsert(b"%d" % n, value(c1=n)) for n in range(9)]
        await engine.apply([log.frame(start_epoch(1), put_table(history_s=60), *rows)])
        await engine.flush()
        await engine.apply([log.frame(upsert(b"late", value(c1=0)), update(b"3", value(c1=33)), delete(b"5"))])
        before = await content_of(engine)
        await engine.keep_snapshot("one", 10)
        assert engine.durable_seq == engine.applied.seq
        await engine.apply([log.frame(upsert(b"3", value(c1=4)), delete(b"late"), upsert(b"new", value(c1=1)))])
        assert await read_kept(engine, "one") == before
        after = await content_of(engine)
        await engine.keep_snapshot("two", 20)
        await engine.apply([log.frame(*(delete(b"%d" % n) for n in range(9)))])
        await engine.flush()
        assert await read_kept(engine, "one") == before != after
        assert await read_kept(engine, "two") == after
        assert held(engine) == [("one", before.seq, 1, 10), ("two", after.seq, 1, 20)]

    async def test_a_name_stands_for_one_point(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
        await engine.keep_snapshot("name", 10)
        await engine.keep_snapshot("name", 99)
        assert held(engine) == [("name", 2, 1, 10)]
        await engine.apply([log.frame(upsert(b"k", value(c1=2)))])
        now = await content_of(engine)
        await engine.keep_snapshot("name", 30)
        assert held(engine) == [("name", 3, 1, 30)]
        assert await read_kept(engine, "name") == now

    async def test_what_is_released_is_gone(self, rig: Rig) -> None:
        await rig.engine.apply([Log().frame(put_table(), upsert(b"k", value(c1=1)))])
        for number, name in enumerate(["a", "b", "c"]):
            await rig.engine.keep_snapshot(name, number)
        await rig.engine.release_snapshot("b")
        await rig.engine.release_snapshot("b")
        assert [name for name, *_ in held(rig.engine)] == ["a", "c"]
        await rig.restart()
        assert set(held(rig.engine)) <= {("a", 2, 1, 0), ("c", 2, 1, 2)}
        await rig.engine.keep_snapshot("b", 7)
        assert ("b", 2, 1, 7) in held(rig.engine)

    @pytest.mark.parametrize("how", ["restart", "crash"])
    async def test_after_a_restart_it_is_exact_or_not_held(self, rig: Rig, how: str) -> None:
        log = Log()
        await rig.engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
        before = await content_of(rig.engine)
        await rig.engine.keep_snapshot("kept", 1)
        await rig.engine.apply([log.frame(upsert(b"k", value(c1=2)))])
        await (rig.restart() if how == "restart" else rig.crash())
        for name, *_ in held(rig.engine):
            assert await read_kept(rig.engine, name) == before
        await rig.engine.release_snapshot("kept")
        assert held(rig.engine) == []

    async def test_a_changed_schema_leaves_it_exact_or_not_held(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)), put_table(9, name="other"))])
        before = await content_of(engine)
        await engine.keep_snapshot("kept", 1)
        await engine.apply([log.frame(put_table(T, 60, "renamed"), drop_table(9), upsert(b"k", value(c1=2)))])
        for name, *_ in held(engine):
            assert await read_kept(engine, name) == before

    async def test_what_comes_between_makes_it_fail_and_not_wrong(self, rig: Rig) -> None:
        log, engine = Log(), rig.engine
        await engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
        before = await content_of(engine)
        results = await asyncio.gather(
            engine.keep_snapshot("kept", 1), engine.apply([log.frame(upsert(b"k", value(c1=2)))]), return_exceptions=True
        )
        assert results[1] is None
        if results[0] is None:
            assert await read_kept(engine, "kept") == before
        else:
            assert isinstance(results[0], EngineFailed)
            assert held(engine) == []
        assert engine.failure is None
        await engine.apply([log.frame(noop())])

    async def test_an_engine_that_failed_keeps_nothing(self, rig: Rig) -> None:
        log = Log()
        await rig.engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
        rig.break_down()
        try:
            with pytest.raises(EngineFailed):
                await rig.engine.keep_snapshot("kept", 1)
            assert held(rig.engine) == []
        finally:
            rig.repair()
        await rig.engine.reopen()
        assert held(rig.engine) == []
