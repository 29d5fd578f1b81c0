"""The simulated clock of one machine: it outlives the machine's processes, drifts, and its wall clock may be wrong and jump.

What always holds: `monotonic_s` only grows, at `rate` seconds a second of the run; a jump of the wall clock changes no
duration. The protocol allows a rate as far from 1 as its drift margin. Source: storage/clock.py.
"""

from __future__ import annotations

import asyncio

from chaos.simulate.twins.loop import VirtualLoop

BEGIN_WALL_MS = 1_400_000_000_000  # no run depends on when it is made
ROUNDING_S = 1e-9


class SimClock:
    """Clock. `booted_s`: what its monotonic clock shows at the begin of the run."""

    def __init__(self, loop: VirtualLoop, *, rate: float = 1.0, ahead_ms: int = 0, booted_s: float = 1000.0) -> None:
        self._loop = loop
        self._rate = rate
        self._since_s, self._shown_s = loop.now_s, booted_s
        self._wall_ms = BEGIN_WALL_MS + ahead_ms - booted_s * 1000

    def set_rate(self, rate: float) -> None:
        """It drifts otherwise from now on."""
        self._since_s, self._shown_s = self._loop.now_s, self.monotonic_s()
        self._rate = rate

    @property
    def rate(self) -> float:
        """Its seconds in one of the run's."""
        return self._rate

    def jump(self, ms: float) -> None:
        """The wall clock is set."""
        self._wall_ms += ms

    def monotonic_s(self) -> float:
        return self._shown_s + (self._loop.now_s - self._since_s) * self._rate

    def wall_ms(self) -> int:
        return int(self._wall_ms + self.monotonic_s() * 1000)

    async def sleep(self, duration_s: float) -> None:
        if duration_s <= 0:
            await asyncio.sleep(0)
            return
        loop = self._loop
        until_s, left_s = self._shown_s + (loop.now_s - self._since_s) * self._rate + duration_s, duration_s
        while left_s > ROUNDING_S:  # again if it drifted otherwise meanwhile
            ended, timer = loop.alarm(left_s / self._rate)
            try:
                await ended
            finally:
                timer.cancel()
            left_s = until_s - (self._shown_s + (loop.now_s - self._since_s) * self._rate)
