"""The system's clock obeys the contract of Clock; hybrid timestamps grow even where a wall clock goes back."""

from __future__ import annotations

import pytest

from storage.clock import Clock, HybridClock, SystemClock
from storage.log.frame import COUNTER_BITS
from tests.storage.clock_contract import ClockContract


class TestSystemClock(ClockContract):
    @pytest.fixture
    def clock(self) -> Clock:
        return SystemClock()


class SetClock(SystemClock):
    """Shows the wall time that a test sets."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def test_hybrid_timestamps_grow_while_the_wall_clock_goes_back() -> None:
    clock = SetClock(5_000)
    hybrid = HybridClock(clock)
    first = hybrid.reserve(2)
    assert first == 5_000 << COUNTER_BITS
    clock.now_ms = 1_000
    assert hybrid.reserve(1) == first + 2
    clock.now_ms = 6_000
    assert hybrid.reserve(1) == 6_000 << COUNTER_BITS


def test_what_was_observed_is_never_handed_out_again() -> None:
    hybrid = HybridClock(SetClock(5_000))
    hybrid.observe(9_000 << COUNTER_BITS)
    assert hybrid.reserve(1) == (9_000 << COUNTER_BITS) + 1
    hybrid.observe(7)
    assert hybrid.last == (9_000 << COUNTER_BITS) + 1
