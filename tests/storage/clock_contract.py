"""The Clock contract: what every clock must do, the system's and the simulator's. A test class gives the fixture `clock`."""

from __future__ import annotations

import asyncio

import pytest

from storage.clock import Clock, HybridClock
from storage.log.frame import COUNTER_BITS

EARLY_S = 0.001  # an event loop may wake a sleeper this much before its time


class ClockContract:
    @pytest.fixture
    def clock(self) -> Clock:
        raise NotImplementedError

    async def test_the_monotonic_clock_never_goes_back(self, clock: Clock) -> None:
        seen = [clock.monotonic_s()]
        for pause_s in (0.0, 0.001, 0.0, 0.002):
            seen += [clock.monotonic_s(), clock.monotonic_s()]
            await clock.sleep(pause_s)
        assert seen == sorted(seen)
        assert seen[-1] > seen[0]

    async def test_a_sleep_takes_its_time_by_the_same_clock(self, clock: Clock) -> None:
        begin_s = clock.monotonic_s()
        await clock.sleep(0.02)
        assert clock.monotonic_s() - begin_s >= 0.02 - EARLY_S

    async def test_a_shorter_sleep_ends_first_whichever_began_first(self, clock: Clock) -> None:
        ended: list[float] = []

        async def one(duration_s: float) -> None:
            await clock.sleep(duration_s)
            ended.append(duration_s)

        begin_s = clock.monotonic_s()
        await asyncio.gather(one(0.06), one(0.01), one(0.03))
        assert ended == [0.01, 0.03, 0.06]
        assert clock.monotonic_s() - begin_s >= 0.06 - EARLY_S

    @pytest.mark.parametrize("duration_s", [0.0, -1.0])
    async def test_a_sleep_of_nothing_lets_others_have_their_turn(self, clock: Clock, duration_s: float) -> None:
        turns: list[str] = []

        async def other() -> None:
            turns.append("other")

        task = asyncio.ensure_future(other())
        await clock.sleep(duration_s)
        turns.append("sleeper")
        await task
        assert turns == ["other", "sleeper"]

    async def test_a_sleep_can_be_cancelled(self, clock: Clock) -> None:
        begin_s = clock.monotonic_s()
        asleep = asyncio.ensure_future(clock.sleep(3600.0))
        await clock.sleep(0.001)
        asleep.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asleep
        assert clock.monotonic_s() - begin_s < 3600.0

    async def test_the_wall_clock_counts_milliseconds_since_1970(self, clock: Clock) -> None:
        before_ms = clock.wall_ms()
        assert isinstance(before_ms, int)
        assert 1_000_000_000_000 < before_ms < 10_000_000_000_000  # the years 2001 to 2286
        await clock.sleep(0.02)
        assert abs(clock.wall_ms() - before_ms) < 60_000, "milliseconds, not seconds or nanoseconds"

    async def test_hybrid_timestamps_grow_and_never_go_below_the_wall_clock(self, clock: Clock) -> None:
        hybrid = HybridClock(clock)
        first, second = hybrid.reserve(3), hybrid.reserve(1)
        assert second >= first + 3
        await clock.sleep(0.002)
        wall = clock.wall_ms() << COUNTER_BITS
        third = hybrid.reserve(1)
        assert third > second
        assert third >= wall
