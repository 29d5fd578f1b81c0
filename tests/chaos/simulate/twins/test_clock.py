"""The simulated clock: drift, jumps, and sleeping in its own time."""

from __future__ import annotations

import asyncio
import random

import pytest

from chaos.simulate.twins.clock import BEGIN_WALL_MS, SimClock
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process
from tests.chaos.simulate.on_virtual_loop import run


@pytest.mark.parametrize("rate", [0.9, 1.0, 1.1])
def test_it_drifts_and_sleeps_in_its_own_time(rate: float) -> None:
    loop = VirtualLoop()
    clock = SimClock(loop, rate=rate)
    begin_s = clock.monotonic_s()

    async def live() -> None:
        await asyncio.sleep(10)
        assert clock.monotonic_s() - begin_s == pytest.approx(10 * rate)
        before_s = loop.now_s
        await clock.sleep(2.0)
        assert loop.now_s - before_s == pytest.approx(2.0 / rate)

    run(loop, live())


def test_a_sleep_during_which_it_slows_down_is_never_too_short() -> None:
    loop = VirtualLoop()
    clock = SimClock(loop, rate=1.1)

    async def live() -> None:
        begin_s = clock.monotonic_s()
        sleeping = asyncio.ensure_future(clock.sleep(5.0))
        await asyncio.sleep(1)
        seen_s = clock.monotonic_s()
        clock.set_rate(0.9)
        assert clock.monotonic_s() == seen_s
        await sleeping
        assert clock.monotonic_s() - begin_s == pytest.approx(5.0)

    run(loop, live())


def test_a_jump_moves_the_wall_clock_and_no_duration() -> None:
    loop = VirtualLoop()
    clock = SimClock(loop, ahead_ms=250)
    assert clock.wall_ms() == BEGIN_WALL_MS + 250
    before_s = clock.monotonic_s()
    clock.jump(-60_000)
    assert (clock.wall_ms(), clock.monotonic_s()) == (BEGIN_WALL_MS + 250 - 60_000, before_s)


def test_it_never_goes_backwards() -> None:
    loop, chance = VirtualLoop(), random.Random(1)
    clock = SimClock(loop)

    async def live() -> None:
        last_s = clock.monotonic_s()
        for _ in range(500):
            await clock.sleep(chance.random() * chance.choice((1e-12, 1e-6, 1.0)))
            clock.set_rate(chance.uniform(0.9, 1.1))
            assert clock.monotonic_s() >= last_s
            last_s = clock.monotonic_s()

    run(loop, live())


def test_it_goes_on_while_a_process_is_paused() -> None:
    loop = VirtualLoop()
    clock, process = SimClock(loop), Process("p")
    woke: list[float] = []

    async def sleeper() -> None:
        await clock.sleep(1.0)
        woke.append(clock.monotonic_s())

    async def main() -> None:
        begin_s = clock.monotonic_s()
        process.spawn(sleeper())
        await asyncio.sleep(0.5)
        loop.pause(process)
        await asyncio.sleep(10)
        assert woke == []
        loop.go_on(process)
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert woke == [pytest.approx(begin_s + 10.5)]

    run(loop, main())
