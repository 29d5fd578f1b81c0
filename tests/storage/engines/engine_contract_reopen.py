"""The contract of storage engines that failed and are opened anew in the same object.

Source: storage/engine.py (`failure`, `reopen`), docs/operations.md (a full disk).
"""

from __future__ import annotations

import asyncio

import pytest

from storage.engine import StorageEngine
from storage.log.frame import Frame
from tests.storage.engines.engine_rig import (
    Log,
    Rig,
    T,
    delete,
    put_table,
    request,
    scan,
    schema_of,
    start_epoch,
    update,
    upsert,
    value,
)
from twinlog.errors import EngineFailed


def written(log: Log) -> list[Frame]:
    """Frames that depend on each other: applied twice, or in part, they would show it."""
    return [
        log.frame(start_epoch(1), put_table(history_s=3600), upsert(b"a", value(c1=1)), upsert(b"b", value(c1=1))),
        log.frame(update(b"a", value(c2=2)), upsert(b"c", value(c1=3), request=request("r"))),
        log.frame(delete(b"b"), put_table(history_s=60), update(b"a", value(c1=5))),
        log.frame(upsert(b"b", value(c1=7)), delete(b"c")),
    ]


CONTENT = [
    {},
    {b"a": value(c1=1), b"b": value(c1=1)},
    {b"a": value(c1=1, c2=2), b"b": value(c1=1), b"c": value(c1=3)},
    {b"a": value(c1=5, c2=2), b"c": value(c1=3)},
    {b"a": value(c1=5, c2=2), b"b": value(c1=7)},
]


async def check_prefix(engine: StorageEngine, frames: list[Frame], durable: int) -> int:
    """The engine holds the first so many frames, whole, and at least `durable` of them."""
    ends = [0, *(frame.last_seq for frame in frames)]
    held = ends.index(engine.applied.seq)
    assert held >= durable
    assert engine.durable_seq == engine.applied.seq
    assert await scan(engine) == CONTENT[held]
    history_s = 3600 if held < 3 else 60
    assert engine.applied.schemas() == ({T: schema_of(T, history_s)} if held else {})
    assert [entry.epoch for entry in engine.applied.epochs] == ([1] if held else [])
    assert (await engine.request_outcome("r") is not None) == (held >= 2)
    return held


async def fail(rig: Rig) -> None:
    """A flush that cannot be done."""
    rig.break_down()
    with pytest.raises(EngineFailed):
        await rig.engine.flush()


class EngineReopenContract:
    """Collected through a subclass that provides the fixture `rig`."""

    @pytest.mark.parametrize("durable", [0, 1, 2, 3])
    async def test_a_prefix_is_kept_and_the_log_goes_on(self, rig: Rig, durable: int) -> None:
        engine, frames = rig.engine, written(Log())
        for at, frame in enumerate(frames):
            if at == durable:
                await engine.flush()
            await engine.apply([frame])
        await fail(rig)
        rig.repair()
        await engine.reopen()
        assert engine.failure is None
        held = await check_prefix(engine, frames, durable)
        await engine.apply(frames[held:])
        assert await engine.flush() == frames[-1].last_seq
        await rig.crash()
        assert await check_prefix(rig.engine, frames, len(frames)) == len(frames)

    async def test_nothing_is_written_before_it_is_opened_anew(self, rig: Rig) -> None:
        engine, frames = rig.engine, written(Log())
        await engine.apply(frames[:1])
        await engine.flush()
        await engine.apply(frames[1:2])
        await fail(rig)
        assert engine.failure
        rig.repair()
        base, cut = engine.load_base([], [], b"", True, {}), engine.replace_rows([], 1, 1, 1)
        for attempt in (engine.apply(frames[2:3]), engine.flush(), base, cut):
            with pytest.raises(EngineFailed, match="opened anew"):
                await attempt
        assert (engine.applied.seq, engine.durable_seq) == (frames[1].last_seq, frames[0].last_seq)
        assert await scan(engine) == CONTENT[2]  # reads go on
        await engine.reopen()
        await check_prefix(engine, frames, 1)

    async def test_it_stays_failed_until_it_can_be_opened(self, rig: Rig) -> None:
        engine, frames = rig.engine, written(Log())
        await engine.apply(frames[:2])
        await engine.flush()
        await engine.apply(frames[2:3])
        await fail(rig)
        for _ in range(2):
            with pytest.raises(EngineFailed) as why:
                await engine.reopen()
            assert engine.failure
            assert engine.failure in why.value.message, "it shows what keeps it closed, and not what failed before"
            with pytest.raises(EngineFailed):
                await engine.apply(frames[3:])
            engine.counters()
        rig.repair()
        await engine.reopen()
        assert await check_prefix(engine, frames, 2) < 4

    async def test_snapshots_end_with_it(self, rig: Rig) -> None:
        engine, frames = rig.engine, written(Log())
        await engine.apply(frames)
        await engine.flush()
        snapshot = await engine.snapshot()
        reading = asyncio.ensure_future(snapshot.scan(T, None, None, reverse=False, limit=10))
        await asyncio.sleep(0)
        await engine.reopen()
        assert len(await reading) == 2  # one that had begun comes to its end
        for read in (snapshot.scan(T, None, None, reverse=False, limit=10), snapshot.request_outcomes(None, limit=10)):
            with pytest.raises(EngineFailed, match="snapshot"):
                await read
        snapshot.close()
        fresh = await engine.snapshot()
        assert (fresh.seq, len(await fresh.scan(T, None, None, reverse=False, limit=10))) == (frames[-1].last_seq, 2)
        fresh.close()

    async def test_notes_are_kept(self, rig: Rig) -> None:
        await rig.engine.set_meta("role", b"active")
        await rig.engine.reopen()
        assert rig.engine.meta("role") == b"active"

    async def test_half_of_a_base_stays_half(self, rig: Rig) -> None:
        engine, frames = rig.engine, written(Log())
        await engine.apply(frames)
        await engine.load_base([], [], b"", True, {})
        await engine.reopen()
        assert engine.applied.loading
        assert engine.applied.seq == 0
        assert await scan(engine) == {}
