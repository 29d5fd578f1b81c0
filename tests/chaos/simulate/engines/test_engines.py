"""The product's engines in a simulation: what a crash leaves of each, that the seed alone decides, and that nothing is left."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from chaos.fault_lines import Fault
from chaos.simulate.draw import IN_REAL, REAL_ENGINES, draw
from chaos.simulate.engines.engines import REAL, SimStorage
from chaos.simulate.observe import Observer
from chaos.simulate.plan import BARRIER, SeedPlan
from chaos.simulate.run import Run
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process
from chaos.simulate.world import World
from tests.chaos.simulate.on_virtual_loop import run
from tests.chaos.simulate.test_pure_of_the_world import watching
from tests.storage.engines.engine_rig import Log, noop, start_epoch
from twinlog.errors import EngineFailed


@pytest.fixture(params=REAL)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SimStorage]:
    made = REAL[request.param](tmp_path / "a", Random(1))
    yield made
    made.end()


def three(engine: SimStorage) -> None:
    """Two frames that are flushed, and one that is not."""
    log = Log()
    first = [log.frame(start_epoch(1)), log.frame(noop())]

    async def work() -> None:
        await engine.apply(first)
        await engine.flush()
        await engine.apply([log.frame(noop())])

    run(VirtualLoop(), work())
    assert (engine.applied.seq, engine.durable_seq, engine.durable_epoch) == (3, 2, 1)


def test_a_killed_process_leaves_what_its_engine_had_in_files(engine: SimStorage) -> None:
    """RocksDB has its last flush. SQLite has every commit."""
    three(engine)
    engine.killed(machine=False)
    assert engine.applied.seq == engine.durable_seq == (2 if type(engine) is REAL["rocksdb"] else 3)


def test_a_lost_machine_may_take_what_was_not_flushed_and_nothing_else(engine: SimStorage) -> None:
    left = set()
    for _ in range(12):
        engine.wipe()
        assert engine.applied.seq == 0
        three(engine)
        engine.killed(machine=True)
        left.add(engine.applied.seq)
    assert left == ({2} if type(engine) is REAL["rocksdb"] else {2, 3})


def test_a_copy_of_its_disk_takes_its_place(engine: SimStorage) -> None:
    copied = engine.copied()
    three(engine)
    engine.put_back(copied)
    assert engine.applied.seq == 0


def test_a_full_disk_fails_writes_until_there_is_room_and_it_is_opened_anew(engine: SimStorage) -> None:
    three(engine)

    async def work() -> None:
        engine.break_down("the disk is full")
        with pytest.raises(EngineFailed, match="the disk is full"):
            await engine.flush()
        with pytest.raises(EngineFailed, match="the disk is full"):
            await engine.reopen()
        engine.repair()
        await engine.reopen()
        assert await engine.flush() == engine.applied.seq

    run(VirtualLoop(), work())


def test_a_killed_process_makes_none_of_the_calls_that_wait(engine: SimStorage) -> None:
    loop, process = VirtualLoop(), Process("a.1")

    async def work() -> None:
        process.spawn(engine.set_meta("told", b"1"))
        await asyncio.sleep(0)
        loop.kill(process)
        await asyncio.sleep(1.0)

    run(loop, work())
    assert engine.meta("told") is None


def plan(kind: str, seed: int = 3) -> SeedPlan:
    found = draw(seed)
    faults = tuple(fault for fault in found.faults if fault.kind not in ("refuse-change", "at-step"))
    crash = Fault(3.0, "crash", "active", 1.0, "machine")
    barriers = tuple(Fault(at_s, BARRIER.name, "active") for at_s in (2.0, 5.0))
    faults = tuple(sorted((*faults, crash, *barriers), key=lambda fault: fault.at_s))
    return replace(found, operations=80, knobs=replace(found.knobs, engine=kind), faults=faults)


@pytest.mark.parametrize("kind", REAL)
def test_the_seed_alone_decides_and_the_machine_is_asked_for_nothing(kind: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    met: list[str] = []
    with watching(met):
        first = Run(plan(kind), tmp_path / "one").execute()
    assert met == []
    assert first.violations == ()
    assert any(kept.digest for kept in first.history.kept)
    assert Run(plan(kind)).execute().trace_hash == first.trace_hash


@pytest.mark.parametrize("kind", REAL)
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_of_a_run_even_of_one_that_failed(kind: str, fails: bool, tmp_path: Path) -> None:
    async def failing(*_: object) -> None:
        raise ValueError("planted")

    with patch("chaos.simulate.run.IN_MEMORY", (tmp_path,)):
        made = Run(plan(kind))
        assert len(list(tmp_path.iterdir())) == 1
        if fails:
            with patch.object(Observer, "final", failing), pytest.raises(ValueError, match="planted"):
                made.execute()
        else:
            made.execute()
    assert list(tmp_path.iterdir()) == []


def test_a_share_of_the_seeds_is_on_each() -> None:
    seeds = 4000
    drawn = Counter(draw(seed).knobs.engine for seed in range(seeds))
    for kind in REAL:
        expected = seeds * REAL_ENGINES.count(kind) / IN_REAL
        assert 0.6 * expected < drawn[kind] < 1.4 * expected
    assert set(drawn) == {"simulated", *REAL}


def test_a_world_without_a_folder_has_the_twin() -> None:
    world = World(plan("rocksdb"), VirtualLoop())
    assert not isinstance(world.machines["a"].engine, tuple(REAL.values()))  # type: ignore[arg-type]
