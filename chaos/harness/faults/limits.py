"""Faults of what a machine gives a site's gateway: descriptors, memory and threads run out, and are there again.

What always holds: the limit is set from outside, on the process that runs, and taken back from the same process; a gateway that
ended for want of memory is started again when the fault is healed, and no news; one that ended for want of anything else is.
The interpreter's own errors of memory and of threads may stand in its log; one of descriptors may not.
It mostly ends by SIGABRT: RocksDB's want of memory is an exception of C++, which the Rust around it cannot catch.
Source: prlimit(2). A limit of threads (RLIMIT_NPROC) does not bind root, and counts those of the user, not of the process: it
is a step at which a gateway fails to start a thread.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import SITE_TARGETS, Kind, OnSite, Stage
from chaos.harness.faults.processes import started_again
from chaos.harness.faults.steps import Trapped
from chaos.harness.steps.points import THREAD
from chaos.harness.steps.table import Deed
from twinlog.errors import InvalidInput, Unavailable

MIB = 1 << 20
NO_THREADS = "no-threads"
MEMORY_ERROR, THREAD_ERROR = "MemoryError", "RuntimeError: can't start new thread"


def left_over(fault: Fault) -> int:
    """Returns what the process still gets, in descriptors or MiB. Raises InvalidInput, ValueError."""
    found = int(fault.how or 0)
    if found < 0:
        raise InvalidInput(f"`how` of {fault.kind} is what is left, and not below 0")
    return found


@dataclass
class Limited(OnSite):
    """A limit of the process of one site. `number`: of the limit, as the module `resource` has it."""

    number: int = resource.RLIMIT_NOFILE
    pid: int = 0
    life: int = 0
    before: tuple[int, int] = (0, 0)

    async def why_not(self) -> str:
        site = self.stage.site(self.fault.target)
        return await super().why_not() or ("" if self.stage.sites.pid(str(site)) is not None else f"site {site} does not run")

    async def inject(self) -> str:
        site = self.choose()
        life = self.stage.sites.lives[site]
        self.pid, self.life = self.stage.sites.pid(site) or 0, life.starts
        left = left_over(self.fault)
        limit = files_limit(self.pid, left) if self.number == resource.RLIMIT_NOFILE else memory_limit(self.pid, left)
        if self.number == resource.RLIMIT_DATA:
            self.stage.sites.foreseen |= {MEMORY_ERROR, THREAD_ERROR}  # the stack of a thread is memory
        life.starved = life.starts  # somebody else may be waiting for the end of this start
        self.before = resource.prlimit(self.pid, self.number)
        resource.prlimit(self.pid, self.number, (limit, self.before[1]))
        return f"site {site}: {limit:,}"

    async def heal(self) -> str:
        sites, site = self.stage.sites, self.chosen
        if sites.pid(site) == self.pid:
            resource.prlimit(self.pid, self.number, self.before)
            if self.number != resource.RLIMIT_DATA or await self._answers():
                return ""
        if self.number != resource.RLIMIT_DATA:
            return "its process is gone"
        sites.excuse(site, self.life)
        told = "its process is gone"
        return told if sites.is_running(site) else "; ".join(filter(None, (told, await started_again(self.stage, site))))

    async def _answers(self) -> bool:
        """It has memory again: it answers, or has ended itself, which this waits for."""
        sites, site = self.stage.sites, self.chosen
        try:
            await asyncio.to_thread(sites.wait_for_answer, site)
        except Unavailable:
            if sites.pid(site) == self.pid:
                sites.mute.append(f"The gateway of site {site} has memory again, and neither answers nor ends itself.")
                await asyncio.to_thread(sites.kill, site)
        return sites.pid(site) == self.pid


@dataclass
class NoThreads(Trapped):
    """No thread can be started."""

    async def inject(self) -> str:
        self.stage.sites.foreseen.add(THREAD_ERROR)
        told = self.arm(THREAD, 1, Deed.REFUSE)
        life = self.stage.sites.lives[self.chosen]
        life.starved = life.starts
        return told

    async def heal(self) -> str:
        return f"threads that were not started: {self.disarm()[1]}"


def files_limit(pid: int, left: int) -> int:
    """Returns the limit with which so many descriptors are free. They are below it, whatever numbers those in use have."""
    there = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
    free = (number for number in count() if number not in there)
    return next(islice(free, left, None))


def memory_limit(pid: int, left: int) -> int:
    """Returns the limit with which `left` MiB more of memory can be had. A limit of addresses (RLIMIT_AS) does not do: libc has
    reserved many, and makes memory of them later."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmData"].split()[0]) * 1024 + left * MIB


def _of(number: int) -> Callable[[Fault, Stage], Limited]:
    return lambda fault, stage: Limited(stage, fault, number=number)


def _threads(fault: Fault, stage: Stage) -> NoThreads:
    return NoThreads(stage, fault)


KINDS = (
    Kind("few-files", SITE_TARGETS, "so many more descriptors can be opened, and no others", _of(resource.RLIMIT_NOFILE),
         how=("0", "3"), check=left_over),
    Kind("few-memory", SITE_TARGETS, "so many MiB more of memory can be had", _of(resource.RLIMIT_DATA), how=("0", "8"),
         check=left_over),
    Kind(NO_THREADS, SITE_TARGETS, "no thread can be started", _threads),
)
