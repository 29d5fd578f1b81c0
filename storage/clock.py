"""Time, as a port. Durations and deadlines read `monotonic_s`; only row versions read the wall clock.

What always holds: nothing in the core asks the operating system for the time; a hybrid timestamp never goes
backwards, not across a switch either (the new active observes the largest replayed one first), and never runs away: what lies
a day ahead of the machine's clock is refused.
Source: protocol.md section 3 (hybrid timestamps) and 5 (durations only, monotonic clock).
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from storage.log.frame import COUNTER_BITS, SKEW_MAX_S, TIMESTAMP_MAX, latest_timestamp
from twinlog.errors import Refused


class Clock(Protocol):
    """The time port. Its simulated twin runs on virtual time, with drift and jumps."""

    def monotonic_s(self) -> float:
        """Seconds that only grow, also while the process or the machine is paused."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, as the machine believes; may jump."""

    async def sleep(self, duration_s: float) -> None:
        """Let `duration_s` seconds pass."""


class SystemClock:
    """The real clock. CLOCK_BOOTTIME also counts a suspended machine, so that a lease expires during it."""

    def monotonic_s(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)


class HybridClock:
    """Hybrid logical timestamps: 48 bits of wall milliseconds, 16 bits of counter, as one int.

    `last` is the largest timestamp handed out or observed.
    """

    def __init__(self, clock: Clock, last: int = 0) -> None:
        self._clock = clock
        self.last = last

    def observe(self, timestamp: int) -> None:
        """Never hand out anything at or below `timestamp` from now on.

        Raises Refused for one that lies further ahead of the machine's clock than two clocks can differ: every later version
        would lie there too, up to the last one that there is.
        """
        if timestamp > latest_timestamp(self._clock.wall_ms()):
            raise Refused(
                f"the log holds the timestamp {timestamp}, more than {SKEW_MAX_S} s ahead of this site's clock: set the clock"
                " of this machine, or of the one that wrote it, then try again"
            )
        if timestamp > self.last:
            self.last = timestamp

    def reserve(self, count: int) -> int:
        """The first of `count` consecutive timestamps, all above every one seen before. Raises Refused behind the last one."""
        first = max(self._clock.wall_ms() << COUNTER_BITS, self.last + 1)
        if first + count - 1 > TIMESTAMP_MAX:
            raise Refused(f"there is no timestamp after {self.last}: this machine's clock, or a stored version, is no time")
        self.last = first + count - 1
        return first
