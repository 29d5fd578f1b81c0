"""Power loss of a site, or of both at once: what its gateway wrote and did not sync is lost with it.

What always holds: the gateway is cut before it is killed, so that everything it did is known; a site that does not run can lose
power, too, with what was written before its end. A site loses its data directory. Its DFS loses power only with both sites: it
stands for a file system on several machines, and its writer, the other site's gateway, would keep files open that change below
it, which no client of such a file system sees. Nobody writes to it while both are dead.
Source: docs/decisions/2026-11-24-power-loss-of-real-processes.md.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from chaos.fault_lines import Fault
from chaos.harness.faults.files import PLACES, PoweredFiles
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, Stage
from chaos.harness.faults.processes import started_again
from chaos.harness.pair.sites import SITES
from chaos.power_loss.losing import all_lost, by_chance
from twinlog.errors import Unavailable

BOTH = "both"
LOST = "lost"


@dataclass
class PowerLost:
    """The sites are chosen when the fault begins, and started again when it is healed."""

    stage: Stage
    powered: PoweredFiles
    fault: Fault
    chosen: list[str] = field(default_factory=list)

    async def why_not(self) -> str:
        sites = self._sites()
        if not sites:
            return NO_ACTIVE
        if self.stage.sites.parts.servers:
            return "what a server of this pair has not synced is not recorded"
        paused = [site for site in sites if self.stage.sites.lives[site].paused]
        return f"site {paused[0]} is paused" if paused else ""

    async def inject(self) -> str:
        self.chosen = self._sites()
        return await asyncio.to_thread(self._lose)

    async def heal(self) -> str:
        return "; ".join(filter(None, await asyncio.gather(*map(self._start, self.chosen))))

    async def _start(self, site: str) -> str:
        try:
            return await started_again(self.stage, site)
        except Unavailable as error:
            return error.message  # whether it comes back after all, and why it ended, is judged at the end

    def _sites(self) -> list[str]:
        if self.fault.target == BOTH:
            return list(SITES)
        site = self.stage.site(self.fault.target)
        return [] if site is None else [site]

    def _lose(self) -> str:
        sites, losses = self.stage.sites, self.powered.losses
        places = ("disk", "dfs") if self.fault.target == BOTH else ("disk",)
        folders = [sites.folder / site / PLACES[place] for site in self.chosen for place in places]
        with sites.starting:
            cut_ns = losses.processes.cut(*filter(None, map(sites.pid, self.chosen)))
            for site in self.chosen:
                sites.kill(site)
            return losses.lose(folders, all_lost if self.fault.how == LOST else by_chance(self.powered.drawn), cut_ns)


def _effect(fault: Fault, stage: Stage) -> PowerLost:
    assert stage.powered is not None, "a pair that loses power is started for that"
    return PowerLost(stage, stage.powered, fault)


KINDS = (
    Kind(
        "power-loss", (*SITE_TARGETS, BOTH), "killed; what was not synced is lost, kept or torn (how lost: lost); then started",
        _effect, lasts=False, how=("", LOST),
    ),
)
