"""Figures of the process that a site runs in: how late its event loop is, and the room on its disk.

What always holds: a disk that does not answer has no figure, and holds up nothing.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable

from prometheus_client import ProcessCollector

from gateway.metrics.catalogue import Figures
from gateway.service.histogram import Histogram
from storage.clock import Clock
from twinlog.errors import TwinlogError

LOOK_S = 0.25
DISK_LOOK_S = 5.0
DISK_ANSWER_S = 2.0


class ProcessFigures:
    """`run` measures for as long as it runs. `free_bytes`: of the disk of the data directory; None: not known."""

    def __init__(self, clock: Clock, free_bytes: Callable[[], Awaitable[int]] | None, release: str) -> None:
        self._clock, self._free_bytes, self._release = clock, free_bytes, release
        self._lag = Histogram()
        self._free: int | None = None

    async def run(self) -> None:
        await asyncio.gather(self._watch_loop(), self._watch_disk())

    async def _watch_loop(self) -> None:
        while True:
            begun_s = self._clock.monotonic_s()
            await self._clock.sleep(LOOK_S)
            self._lag.observe(max(0.0, self._clock.monotonic_s() - begun_s - LOOK_S))

    async def _watch_disk(self) -> None:
        while self._free_bytes is not None:
            try:
                async with asyncio.timeout(DISK_ANSWER_S):
                    self._free = await self._free_bytes()
            except (TimeoutError, TwinlogError):
                self._free = None
            await self._clock.sleep(DISK_LOOK_S)

    def disk(self) -> dict[str, float]:
        return {} if self._free is None else {"disk_free_bytes": float(self._free)}

    def figures(self) -> Figures:
        return {
            "build_info": {(self._release, platform.python_version()): 1.0},
            "event_loop_lag_seconds": self._lag,
            "wall_clock_timestamp_seconds": self._clock.wall_ms() / 1000,
            **self.disk(),
        }


def process_collector() -> ProcessCollector:
    """Memory, descriptors, CPU time and start of this process, as the operating system has them."""
    return ProcessCollector(registry=None)
