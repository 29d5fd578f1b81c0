"""The faults as objects: each one can be injected and healed, and says beforehand why it cannot be done now.

What always holds: `heal` undoes what `inject` did and nothing else, also when the site that it was done to has changed since;
a fault that has a reason against it changes nothing. What they are called and what they take: plan.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from chaos.fault_lines import Fault
from chaos.harness.disks import DISK_KINDS, Disks, OnDisk
from chaos.harness.pair.commands import Commands
from chaos.harness.pair.links import STREAMS, Links
from chaos.harness.pair.sites import OTHER, SITES, RealSites
from chaos.harness.plan import SEVERAL, figures
from twinlog.errors import Unavailable

NO_ACTIVE = "nobody is the active"


class Effect(Protocol):
    async def why_not(self) -> str:
        """Returns why it cannot be done now; an empty text when it can."""

    async def inject(self) -> str:
        """Returns what came of it, in a few words; an empty text where there is nothing to say."""

    async def heal(self) -> str:
        """Returns what it had done by then, as `inject`."""


@dataclass
class Stage:
    """The things that faults act on. `active`: the site that the register names, None without one. `disks`: None where no
    fault of the plan needs them."""

    sites: RealSites
    links: Links
    commands: Commands
    active: Callable[[], str | None]
    disks: Disks | None = None
    toxics: set[tuple[str, str, str]] = field(default_factory=set)  # (link, toxic, stream) in force

    def site(self, target: str) -> str | None:
        if target in SITES:
            return target
        active = self.active()
        return active if target == "active" or active is None else OTHER[active]


@dataclass
class Toxics:
    """Toxics on some links. What a black hole has swallowed does not arrive when it is healed: the connection is closed."""

    stage: Stage
    links: tuple[str, ...]
    toxic: str
    streams: tuple[str, ...]
    attributes: Mapping[str, int]

    def _all(self) -> list[tuple[str, str, str]]:
        return [(link, self.toxic, stream) for link in self.links for stream in self.streams]

    async def why_not(self) -> str:
        there = [each for each in self._all() if each in self.stage.toxics]
        return f"{there[0][0]} has a toxic {there[0][1]} already" if there else ""

    async def inject(self) -> str:
        for link, toxic, stream in self._all():
            self.stage.toxics.add((link, toxic, stream))
            await self.stage.links.add(link, toxic, stream, self.attributes)
        return ""

    async def heal(self) -> str:
        for link, toxic, stream in self._all():
            await self.stage.links.remove(link, toxic, stream)
            self.stage.toxics.discard((link, toxic, stream))
        return ""


@dataclass
class Down:
    stage: Stage
    links: tuple[str, ...]

    async def why_not(self) -> str:
        there = [link for link in self.links if (link, "down", "") in self.stage.toxics]
        return f"{there[0]} is down already" if there else ""

    async def inject(self) -> str:
        for link in self.links:
            self.stage.toxics.add((link, "down", ""))
            await self.stage.links.switch(link, on=False)
        return ""

    async def heal(self) -> str:
        for link in self.links:
            await self.stage.links.switch(link, on=True)
            self.stage.toxics.discard((link, "down", ""))
        return ""


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
        try:
            await asyncio.to_thread(self.stage.sites.start_and_wait, self.chosen)
        except Unavailable:
            if self.stage.disks is None or not self.stage.disks.faults.in_force():
                raise
            self.stage.sites.excuse(self.chosen)  # it is started again when all faults are healed
            return f"site {self.chosen} did not start on a broken disk"
        return ""


@dataclass
class Command:
    """A command of an operator. Its refusal is no failure of the run: the report shows it."""

    stage: Stage
    verb: str
    target: str

    async def why_not(self) -> str:
        return "" if self.stage.site(self.target) is not None else NO_ACTIVE

    async def inject(self) -> str:
        site = str(self.stage.site(self.target))
        if self.verb == "rejoin":  # which an operator types at a site that is there
            await asyncio.to_thread(self.stage.sites.wait_for_answer, site)
        words = {"failover": ["--to", site], "switchover": ["--to", site], "rejoin": [site, "--wait"]}.get(self.verb, [])
        return (await self.stage.commands.run(self.verb, *words)).told

    async def heal(self) -> str:
        """There is nothing to undo: the pair is brought to health by further commands."""
        return ""


_ATTRIBUTES: Mapping[str, tuple[str, tuple[str, ...]]] = {  # kind -> toxic, and the names of its figures
    "latency": ("latency", ("latency", "jitter")), "bandwidth": ("bandwidth", ("rate",)), "reset": ("reset_peer", ("timeout",)),
    "slow-close": ("slow_close", ("delay",)), "slice": ("slicer", ("average_size",)),
}
_COMMANDS = ("failover", "switchover", "rejoin", "degrade", "resync")


def effect_of(fault: Fault, stage: Stage) -> Effect:
    """The object of a line of a plan."""
    links = SEVERAL.get(fault.target, (fault.target,))
    if fault.kind in _ATTRIBUTES:
        toxic, names = _ATTRIBUTES[fault.kind]
        return Toxics(stage, links, toxic, STREAMS, dict(zip(names, figures(fault), strict=False)))
    if fault.kind == "black-hole":
        return Toxics(stage, links, "timeout", STREAMS, {"timeout": 0})
    if fault.kind == "one-way":
        stream = {"up": "upstream", "down": "downstream"}[fault.how]
        return Toxics(stage, links, "timeout", (stream,), {"timeout": 0})
    if fault.kind == "down":
        return Down(stage, links)
    if fault.kind in DISK_KINDS:
        assert stage.disks is not None, "a pair whose disks are broken is started for that"
        return OnDisk(stage.disks, fault, stage.site)
    if fault.kind in _COMMANDS:
        return Command(stage, fault.kind, fault.target)
    return OnProcess(stage, fault.kind, fault.target)
