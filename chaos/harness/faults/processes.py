"""Faults of processes: signals to a site's gateway, the loss of the whole site, and monitors that are started and ended."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Effect, Kind, Stage
from chaos.harness.faults.servers import OnServer, OnToxiproxy
from chaos.harness.pair.asked import OTHER
from chaos.harness.pair.monitors import ACT, MONITORS, Monitors
from chaos.harness.pair.parts import SERVERS, TOXIPROXY
from chaos.harness.steps.points import THREAD
from twinlog.errors import InvalidInput, Unavailable

MONITOR = "monitor"
TAKEN = "taken"
TAKEN_S = 60.0  # that a site stays stopped at most, for want of a takeover
POLL_S = 0.05
STARVED = "without what a machine gives"
AGAIN_S = 3.0  # until a supervisor starts a process again that has ended


@dataclass
class OnProcess:
    """A signal to a site's gateway, or its loss. The site is chosen when the fault begins."""

    stage: Stage
    kind: str
    target: str
    how: str = ""
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
        if self.kind != "pause":
            return await started_again(self.stage, self.chosen)
        taken = self.how != TAKEN or await self._other_has_taken_over()
        self.stage.sites.resume(self.chosen)
        return "" if taken else f"site {OTHER[self.chosen]} had not taken over after {TAKEN_S:.0f} s more"

    async def _other_has_taken_over(self) -> bool:
        for _ in range(round(TAKEN_S / POLL_S)):
            if self.stage.active() == OTHER[self.chosen]:
                return True
            await asyncio.sleep(POLL_S)
        return False


async def started_again(stage: Stage, site: str) -> str:
    """Returns once it answers: an empty text, or why it did not start before, where it may not; a supervisor would start it
    again until it does, and so does this. Or what it said when it refused to start."""
    reason = ""
    while True:
        before = _excuse(stage, site)  # it may be over by the time that this one has ended
        try:
            refused = await asyncio.to_thread(stage.sites.start_and_hear, site)
        except Unavailable:
            life = stage.sites.lives[site]
            why = before or _excuse(stage, site) or (STARVED if life.starved == life.starts else "")
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
    if (traps := stage.sites.traps.get(site)) is not None and traps.refuses(THREAD):
        return STARVED
    if not stage.sites.servers.are_well(site):
        return "while a server of its site was away"
    link = f"{site}>pg-{site}"
    cut = link in stage.sites.links and (stage.links.is_away or any(link == each for each, _, _ in stage.toxics))
    return "while its link to PostgreSQL was broken" if cut else ""


@dataclass
class OnMonitor:
    """A monitor is started, or gets a signal. `options`: of the command."""

    stage: Stage
    kind: str
    name: str
    options: list[str]

    @property
    def _monitors(self) -> Monitors:
        assert self.stage.monitors is not None, "a pair that the harness started"
        return self.stage.monitors

    async def why_not(self) -> str:
        running = self._monitors.is_running(self.name)
        if self.kind == MONITOR:
            return f"{self.name} runs already" if running else ""
        if not running:
            return f"{self.name} does not run"
        return f"{self.name} is paused already" if self.name in self._monitors.paused else ""

    async def inject(self) -> str:
        monitors = self._monitors
        if self.kind == MONITOR:
            await asyncio.to_thread(monitors.start, self.name, self.options)
        else:
            work = {"crash": monitors.kill, "terminate": monitors.terminate, "pause": monitors.pause}[self.kind]
            await asyncio.to_thread(work, self.name)
        return ""

    async def heal(self) -> str:
        work = {MONITOR: self._monitors.terminate, "pause": self._monitors.resume}.get(self.kind, self._monitors.start_again)
        await asyncio.to_thread(work, self.name)
        return ""


def _effect(fault: Fault, stage: Stage) -> Effect:
    if fault.target in MONITORS:
        return OnMonitor(stage, fault.kind, fault.target, [f"--{fault.how}"] if fault.how else [])
    if fault.target == TOXIPROXY:
        return OnToxiproxy(stage, fault.kind)
    if fault.target in SERVERS:
        return OnServer(stage, fault.kind, fault.target)
    return OnProcess(stage, fault.kind, fault.target, fault.how)


def _pause(fault: Fault) -> None:
    """Raises InvalidInput."""
    if fault.how not in ("", TAKEN) or (fault.how and fault.target not in SITE_TARGETS):
        raise InvalidInput(f"`how` of pause is nothing, or, of a site, {TAKEN}")


_TARGETS = (*SITE_TARGETS, *SERVERS, *MONITORS)
KINDS = (
    Kind("crash", (*_TARGETS, TOXIPROXY), "SIGKILL; started again when it is healed", _effect, lasts=False),
    Kind("terminate", (*_TARGETS, TOXIPROXY), "SIGTERM; started again when it is healed", _effect, lasts=False),
    Kind("pause", _TARGETS, f"SIGSTOP, then SIGCONT; of a site, `{TAKEN}`: not before the other one has taken over", _effect,
         how=("", TAKEN), check=_pause),
    Kind("site-lost", SITE_TARGETS, "killed; its data and its DFS are empty; started when it is healed", _effect, lasts=False),
    Kind("start", ("a", "b"), "the gateway is started", _effect, lasts=False),
    Kind(MONITOR, MONITORS, f"`twinlog monitor` is started, with `{ACT}` as one that acts; ended when it is healed", _effect,
         lasts=False, how=("", ACT)),
)
