"""The system's clock obeys the contract of Clock; hybrid timestamps grow even where a wall clock goes back."""

from __future__ import annotations

import pytest

from storage.clock import Clock, HybridClock, SystemClock
from storage.log.frame import COUNTER_BITS
from tests.storage.clock_contract import ClockContract
from twinlog.errors import Refused


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


@pytest.mark.parametrize("ahead_ms", [86_400_001, 1 << 47])
def test_a_timestamp_far_ahead_is_refused_and_changes_nothing(ahead_ms: int) -> None:
    """The next version would lie behind the last one that there is."""
    hybrid = HybridClock(SetClock(5_000))
    for timestamp in ((5_000 + ahead_ms) << COUNTER_BITS, (1 << 64) - 2):
        with pytest.raises(Refused, match="set the clock"):
            hybrid.observe(timestamp)
    assert hybrid.reserve(1) == 5_000 << COUNTER_BITS
    hybrid.observe((5_000 + 86_400_000) << COUNTER_BITS)


def test_there_is_a_last_timestamp() -> None:
    hybrid = HybridClock(SetClock(5_000), (1 << 63) - 3)
    assert hybrid.reserve(2) == (1 << 63) - 2
    with pytest.raises(Refused, match="no timestamp after"):
        hybrid.reserve(1)
