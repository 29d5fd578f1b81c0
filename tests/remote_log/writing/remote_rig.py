"""Shared parts of the remote log's tests: a clock that jumps, a client of the DFS with seeded delays, a writer that notes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from remote_log.dfs.port import DfsEntry
from remote_log.fencing.claims import ClaimContent
from remote_log.layout import RemoteLayout
from remote_log.writing.writer import RemoteWriter, RemoteWriterSettings
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.frame import Frame
from storage.log.segment import wal_name
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs, MemoryDisk
from twinlog.errors import TwinlogError

LAYOUT = RemoteLayout("pair")


@dataclass
class Now:
    """The writer, as a trimmer sees it."""

    remote: RemoteWriter | None = None
    making_remote: bool = False


class JumpingClock:
    """Sleeping takes one turn of the event loop and moves the time on by what was asked."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def monotonic_s(self) -> float:
        return self.now_s

    def wall_ms(self) -> int:
        return int(self.now_s * 1000)

    async def sleep(self, duration_s: float) -> None:
        self.slept.append(duration_s)
        self.now_s += duration_s
        await asyncio.sleep(0)


class SlowDfs(MemoryDfs):
    """Each call takes a random, seeded number of turns, and so does the answer of a listing: it may be an old one."""

    def __init__(self, disk: MemoryDisk, rng: random.Random, turns_max: int = 6) -> None:
        super().__init__(disk)
        self._rng, self._turns_max = rng, turns_max

    async def meet(self, operation: str, path: str) -> Fault:
        await turns(self._rng.randint(0, self._turns_max))
        return await super().meet(operation, path)

    async def list(self, folder: str) -> list[DfsEntry]:
        entries = await super().list(folder)
        await turns(self._rng.randint(0, 10 * self._turns_max))
        return entries


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def until(holds: Callable[[], bool], turns_max: int = 5000) -> None:
    for _ in range(turns_max):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to pass")


def content_of(plan: str, epoch: int = 2) -> ClaimContent:
    return ClaimContent(site="b", plan=plan, kind="takeover", reason="test", wall_ms=1, follows_epoch=epoch - 1)


class NotingWriter(RemoteWriter):
    """A writer whose epoch is claimed, and whose reports are kept: `synced` (last sequence, start of the append), `fenced`."""

    def __init__(
        self, dfs: MemoryDfs, epoch: int = 1, clock: JumpingClock | None = None, keys: Keyring = NO_KEYS, **settings: Any
    ) -> None:
        self.synced: list[tuple[int, float]] = []
        self.fenced: list[TwinlogError] = []
        self.clock = clock or JumpingClock()
        self.wal_index = 1
        dfs.disk.put(LAYOUT.claim(epoch), b"{}")
        super().__init__(
            dfs, LAYOUT, epoch, self.clock, RemoteWriterSettings(**settings),
            on_synced=lambda seq, started_s: self.synced.append((seq, started_s)), on_ended=self.fenced.append,
            wal_name=lambda: wal_name(epoch, self.wal_index), keys=keys,
        )

    @property
    def synced_seq(self) -> int:
        return self.synced[-1][0] if self.synced else 0


class Kept:
    """The place for what a trimmer keeps aside (Aside); `ends`: of older epochs, by the history of the active."""

    def __init__(self, ends: dict[int, int] | None = None) -> None:
        self._ends = ends or {}
        self.cut: list[Frame] = []
        self.damaged: dict[str, bytes] = {}
        self.failure: TwinlogError | None = None

    def cut_off(self, frames: Sequence[Frame]) -> list[Frame]:
        return [frame for frame in frames if frame.last_seq > self._ends.get(frame.epoch, frame.last_seq)]

    async def keep(self, cut_off: Sequence[Frame], damaged: Mapping[str, bytes]) -> None:
        if self.failure is not None:
            raise self.failure
        self.cut += cut_off
        self.damaged |= damaged
