"""Faults of a site's gateway as a process: signals, and the loss of the whole site."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Effect, Kind, Stage
from chaos.harness.faults.servers import OnServer
from chaos.harness.pair.parts import SERVERS
from twinlog.errors import Unavailable

AGAIN_S = 3.0  # until a supervisor starts a process again that has ended


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
        work = {"crash": sites.kill, "pause": sites.pause, "site-lost": sites.lose, "start": sites.start_and_hear}[self.kind]
        refused = await asyncio.to_thread(work, site)
        if self.kind == "site-lost" and self.stage.powered is not None:
            for folder in (sites.data_dir(site), sites.folder / site / "dfs"):
                self.stage.powered.losses.renewed(folder)
        return f"refused: {refused}" if refused else f"site {site}" if self.target != site else ""

    async def heal(self) -> str:
        if self.kind == "pause":
            self.stage.sites.resume(self.chosen)
            return ""
        return await started_again(self.stage, self.chosen)


async def started_again(stage: Stage, site: str) -> str:
    """Returns once it answers: an empty text, or why it did not start before, where it may not; a supervisor would start it
    again until it does, and so does this. Or what it said when it refused to start."""
    reason = ""
    while True:
        before = _excuse(stage, site)  # it may be over by the time that this one has ended
        try:
            refused = await asyncio.to_thread(stage.sites.start_and_hear, site)
        except Unavailable:
            why = before or _excuse(stage, site)
            if not why:
                raise
            stage.sites.excuse(site)
            reason = f"site {site} did not start {why}"
            await asyncio.sleep(AGAIN_S)
            continue
        return "; ".join(filter(None, (reason, f"refused: {refused}" if refused else "")))


def _excuse(stage: Stage, site: str) -> str:
    """Returns the reason for which a gateway may end at its start, which needs its disk and its storage; empty: none."""
    if stage.files is not None and stage.files.faults.in_force():
        return "on a broken disk"
    if not stage.sites.servers.are_well(site):
        return "while a server of its site was away"
    cut = any(link.startswith(f"{site}>pg-") for link, _, _ in stage.toxics)
    return "while its link to PostgreSQL was broken" if cut else ""


def _effect(fault: Fault, stage: Stage) -> Effect:
    which = OnServer if fault.target in SERVERS else OnProcess
    return which(stage, fault.kind, fault.target)


_TARGETS = (*SITE_TARGETS, *SERVERS)
KINDS = (
    Kind("crash", _TARGETS, "SIGKILL; started again when it is healed", _effect, lasts=False),
    Kind("terminate", _TARGETS, "SIGTERM; started again when it is healed", _effect, lasts=False),
    Kind("pause", _TARGETS, "SIGSTOP, then SIGCONT", _effect),
    Kind("site-lost", SITE_TARGETS, "killed; its data and its DFS are empty; started when it is healed", _effect, lasts=False),
    Kind("start", ("a", "b"), "the gateway is started", _effect, lasts=False),
)
