"""The simulated engine: what a crash keeps, and where one can fall between; it must stay a prefix in all of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from chaos.simulate.twins.engine import SimEngine
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process
from storage.engine import StoredRow
from storage.engines.memory.engine import MemoryEngine
from storage.log.frame import Frame
from tests.chaos.simulate.on_virtual_loop import run
from tests.storage.engines.engine_contract_reopen import check_prefix, written
from tests.storage.engines.engine_rig import Log, T, scan, schema_of, upsert, value
from twinlog.errors import EngineFailed

THEIRS = StoredRow(b"a", value(c1="theirs"), 1 << 40)


async def apply_each(engine: SimEngine, frames: list[Frame], flush_after: int) -> None:
    for number, frame in enumerate(frames, 1):
        await engine.apply([frame])
        if number == flush_after:
            await engine.flush()


@pytest.mark.parametrize("flush_after", [0, 1, 2, 4])
def test_a_crash_goes_back_to_some_transaction_since_the_flush(flush_after: int) -> None:
    held = []
    for seed in range(60):
        loop, engine, frames = VirtualLoop(), SimEngine(random.Random(seed)), written(Log())

        async def live(engine: SimEngine = engine, frames: list[Frame] = frames) -> None:
            await apply_each(engine, frames, flush_after)
            engine.crash()
            held.append(await check_prefix(engine, frames, flush_after))
            await engine.apply(frames)  # the log goes on from wherever that is
            assert await engine.flush() == frames[-1].last_seq

        run(loop, live())
    assert set(held) == set(range(flush_after, 5))
    assert flush_after == 4 or held.count(flush_after) > 20


def test_a_process_killed_at_any_moment_leaves_a_prefix() -> None:
    held = set()
    for seed in range(150):
        loop, engine, frames = VirtualLoop(), SimEngine(random.Random(seed)), written(Log())
        process, moment = Process("p"), random.Random(seed).random() * 0.02

        async def live(
            loop: VirtualLoop = loop, engine: SimEngine = engine, frames: list[Frame] = frames, process: Process = process,
            moment: float = moment,
        ) -> None:
            process.spawn(apply_each(engine, frames, 2))
            await asyncio.sleep(moment)
            durable = engine.durable_seq
            loop.kill(process)
            engine.crash()
            at = await check_prefix(engine, frames, 0)
            assert engine.applied.seq >= durable
            await engine.apply(frames[at:])
            held.add(at)

        run(loop, live())
    assert held >= {0, 2, 3, 4}


async def rejoin(engine: SimEngine) -> None:
    await engine.replace_rows([(T, b"a", THEIRS)], 4, 1, 1 << 40)


async def fill(engine: SimEngine) -> None:
    await engine.load_base([(T, THEIRS)], [], b"1", True, {T: schema_of(T)})
    await engine.finish_base(100, 4, 1 << 40, [])


def killed_amid(change: Callable[[SimEngine], Coroutine[Any, Any, None]], seed: int) -> tuple[int, bool, bytes]:
    """(applied_seq, loading, value of row a) after a process was killed at some moment of `change`."""
    loop, engine, frames, process = VirtualLoop(), SimEngine(random.Random(seed)), written(Log()), Process("p")

    async def live() -> tuple[int, bool, bytes]:
        await engine.apply(frames[:1])
        await engine.flush()
        await engine.apply(frames[1:])
        process.spawn(change(engine))
        await asyncio.sleep(random.Random(seed).random() * 0.04)
        loop.kill(process)
        engine.crash(0)
        return engine.applied.seq, engine.applied.loading, (await scan(engine))[b"a"]

    return run(loop, live())


def test_a_killed_rejoin_or_base_has_happened_or_not() -> None:
    before, theirs = (4, False, value(c1=1)), THEIRS.value
    assert {killed_amid(rejoin, seed) for seed in range(60)} == {before, (4, False, theirs)}
    assert {killed_amid(fill, seed) for seed in range(60)} == {before, (0, True, theirs), (100, False, theirs)}


def test_it_fails_until_it_is_opened_anew() -> None:
    loop, engine, frames = VirtualLoop(), SimEngine(random.Random(3)), written(Log())

    async def live() -> None:
        await engine.apply(frames[:2])
        await engine.flush()
        engine.break_down("the disk is full")
        for refused in (engine.apply(frames[2:]), engine.flush(), engine.reopen()):
            with pytest.raises(EngineFailed, match="disk is full"):
                await refused
        engine.repair()
        with pytest.raises(EngineFailed):
            await engine.apply(frames[2:])
        await engine.reopen()
        await check_prefix(engine, frames, 2)

    run(loop, live())


def test_one_apply_at_a_time() -> None:
    loop, engine, log = VirtualLoop(), SimEngine(random.Random(1)), Log()

    async def live() -> None:
        frames = [log.frame(upsert(b"k", value(c1=n))) for n in range(100)]
        with pytest.raises(RuntimeError, match="one apply at a time"):
            await asyncio.gather(*[engine.apply([frame]) for frame in frames])

    loop.run(live(), steps_max=10_000)


def test_a_wiped_engine_is_a_new_one() -> None:
    loop, engine = VirtualLoop(), SimEngine(random.Random(1))

    async def live() -> None:
        await engine.apply(written(Log()))
        await engine.set_meta("role", b"x")
        await engine.flush()
        engine.wipe()
        assert (engine.applied.seq, engine.durable_seq, engine.applied.schemas(), engine.meta("role")) == (0, 0, {}, None)
        await engine.apply(written(Log()))

    run(loop, live())


def test_the_memory_engine_goes_back_as_far_as_it_is_told() -> None:
    async def live(kept: int) -> None:
        engine, frames = MemoryEngine(), written(Log())
        await engine.apply(frames[:1])
        await engine.flush()
        for frame in frames[1:]:
            await engine.apply([frame])
        engine.crash(kept)
        assert await check_prefix(engine, frames, 1) == min(kept, 3) + 1

    for kept in range(5):
        asyncio.run(live(kept))
