"""Planted bugs that only a fault at a named step or of a clock can show."""

from __future__ import annotations

import time

from chaos.harness.bugs.bug import HarnessBug
from gateway.epoch.commit_rule import CommitMode
from gateway.epoch.modes import Modes
from storage.clock import SystemClock


def _wall_s(self: SystemClock) -> float:
    return time.time()


async def _degrade_first(self: Modes, *, by_command: bool) -> None:
    core = self._commit.core
    if core.mode is CommitMode.ASYNC:
        return
    since = min(core.remote, core.committed)
    remote, self.remote, self._commit.remote = self.remote, None, None
    self._change(CommitMode.ASYNC)
    if remote is not None:
        await remote.close()
    await self._coordinator.force(lambda state: self._downgraded(state, since))


BUGS = (
    HarnessBug(
        "wall-clock-lease", "Leases and deadlines are counted by the wall clock, which somebody may set.", "P2", "clock-jumps",
        ("one_active", "linearizable", "status"), ((SystemClock, "monotonic_s", _wall_s),),
    ),
    HarnessBug(
        "degrades-first", "A site acknowledges asynchronously before the register says so, and also when it never does.", "P8",
        "at-steps", ("honest",), ((Modes, "degrade", _degrade_first),),
    ),
)
