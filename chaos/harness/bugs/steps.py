"""Planted bugs that only a fault at a named step, of a clock or of a limit can show."""

from __future__ import annotations

import asyncio
import threading
import time

from chaos.harness.bugs.bug import HarnessBug
from gateway.epoch.commit_rule import CommitMode
from gateway.epoch.modes import Modes
from storage.clock import SystemClock
from storage.disk.workers import _Thread


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


def _start_believed(self: _Thread) -> asyncio.AbstractEventLoop:
    self._loop = asyncio.get_running_loop()
    self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
    self._thread.start()
    return self._loop


BUGS = (
    HarnessBug(
        "wall-clock-lease", "Leases and deadlines are counted by the wall clock, which somebody may set.", "P2", "clock-jumps",
        ("one_active", "linearizable", "status"), ((SystemClock, "monotonic_s", _wall_s),),
    ),
    HarnessBug(
        "degrades-first", "A site acknowledges asynchronously before the register says so, and also when it never does.", "P8",
        "at-steps", ("honest",), ((Modes, "degrade", _degrade_first),),
    ),
    HarnessBug(  # it was one of the product's, until this scenario
        "thread-believed", "A worker whose thread could not be started takes calls all the same, and they wait for ever.", "I8",
        "resources", ("stuck", "stopping", "drained", "processes"), ((_Thread, "_start", _start_believed),),
    ),
)
