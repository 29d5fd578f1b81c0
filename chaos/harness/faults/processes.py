"""Faults of a site's gateway as a process: signals, and the loss of the whole site."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, Stage
from twinlog.errors import Unavailable


@dataclass
class OnProcess:
    """A signal to a site's gateway, or its loss. The site is chosen when the fault begins."""

    stage: Stage
    kind: str
    target: str
    chosen: str = ""

    async def why_not(self) -> str:
        site = self.stage.site(self.target)
        if site is None:
            return NO_ACTIVE
        running = self.stage.sites.is_running(site)
        if self.kind == "start":
            return f"site {site} runs already" if running else ""
        if not running and self.kind != "site-lost":
            return f"site {site} does not run"
        return f"site {site} is paused already" if self.stage.sites.lives[site].paused else ""

    async def inject(self) -> str:
        site = self.chosen = str(self.stage.site(self.target))
        sites = self.stage.sites
        if self.kind == "terminate":
            return "" if await asyncio.to_thread(sites.terminate, site) else "SIGTERM was not heeded in time: SIGKILL"
        work = {"crash": sites.kill, "pause": sites.pause, "site-lost": sites.lose, "start": sites.start_and_wait}[self.kind]
        await asyncio.to_thread(work, site)
        return f"site {site}" if self.target != site else ""

    async def heal(self) -> str:
        if self.kind == "pause":
            self.stage.sites.resume(self.chosen)
            return ""
        return await started_again(self.stage, self.chosen)


async def started_again(stage: Stage, site: str) -> str:
    """Returns why it did not start, where a broken disk is the reason; else an empty text, once it answers."""
    try:
        await asyncio.to_thread(stage.sites.start_and_wait, site)
    except Unavailable:
        if stage.files is None or not stage.files.faults.in_force():
            raise
        stage.sites.excuse(site)  # it is started again when all faults are healed
        return f"site {site} did not start on a broken disk"
    return ""


def _effect(fault: Fault, stage: Stage) -> OnProcess:
    return OnProcess(stage, fault.kind, fault.target)


KINDS = (
    Kind("crash", SITE_TARGETS, "SIGKILL; started again when it is healed", _effect, lasts=False),
    Kind("terminate", SITE_TARGETS, "SIGTERM; started again when it is healed", _effect, lasts=False),
    Kind("pause", SITE_TARGETS, "SIGSTOP, then SIGCONT", _effect),
    Kind("site-lost", SITE_TARGETS, "killed; its data and its DFS are empty; started when it is healed", _effect, lasts=False),
    Kind("start", ("a", "b"), "the gateway is started", _effect, lasts=False),
)
