"""A kind of fault: its name, what a plan may say of it, and the object that causes and undoes it.

What always holds: `heal` undoes what `inject` did and nothing else, also when the site that it was done to has changed since;
a fault that has a reason against it changes nothing; what a plan says wrongly is refused before anything is started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from chaos.clock_faults.control import ClockFaults
from chaos.fault_lines import Fault
from chaos.harness.faults.files import BrokenFiles, PoweredFiles
from chaos.harness.pair.asked import OTHER, SITES, AskedSites
from chaos.harness.pair.commands import Commands
from chaos.harness.pair.links import Links
from chaos.harness.pair.monitors import Monitors
from chaos.harness.pair.parts import LINKS, SEVERAL
from chaos.harness.pair.sites import RealSites
from chaos.servers.toxiproxy import Toxiproxy
from twinlog.errors import InvalidInput

LINK_TARGETS = (*LINKS, *SEVERAL)
SITE_TARGETS = ("a", "b", "active", "standby")
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
    """The things that faults act on. `asked`: both sites. `active`: the site that the register names, None without one.
    `files`, `powered`: None where no fault of the plan needs them; `clocks`: of each site, likewise. `seed`: the plan's.
    `is_sync`: whether the register says so. `monitors`, `toxiproxy`: None where they are not ours."""

    asked: AskedSites
    links: Links
    commands: Commands
    active: Callable[[], str | None]
    files: BrokenFiles | None = None
    powered: PoweredFiles | None = None
    clocks: Mapping[str, ClockFaults] = field(default_factory=dict)
    seed: int = 0
    is_sync: Callable[[], bool] = lambda: True
    monitors: Monitors | None = None
    toxiproxy: Toxiproxy | None = None
    toxics: set[tuple[str, str, str]] = field(default_factory=set)  # (link, toxic, stream) in force

    @property
    def sites(self) -> RealSites:
        """The sites as processes, which only a pair has that the harness started."""
        assert type(self.asked) is not AskedSites, "a plan for a pair of somebody else has no faults of processes"
        return cast(RealSites, self.asked)

    def site(self, target: str) -> str | None:
        if target in SITES:
            return target
        active = self.active()
        return active if target == "active" or active is None else OTHER[active]


@dataclass
class OnSite:
    """The part of an Effect that chooses its site when the fault begins: the target may be a role."""

    stage: Stage
    fault: Fault
    chosen: str = ""

    async def why_not(self) -> str:
        return "" if self.stage.site(self.fault.target) is not None else NO_ACTIVE

    def choose(self) -> str:
        self.chosen = str(self.stage.site(self.fault.target))
        return self.chosen

    @property
    def told(self) -> str:
        """Returns which one it is, where the plan does not say so."""
        return f"site {self.chosen}" if self.fault.target != self.chosen else ""


@dataclass(frozen=True)
class Kind:
    """`lasts`: it needs `for`. `how`: the values that it knows; empty: what `check` lets pass. `check` raises InvalidInput or
    ValueError."""

    name: str
    targets: tuple[str, ...]
    sentence: str
    effect: Callable[[Fault, Stage], Effect]
    lasts: bool = True
    how: tuple[str, ...] = ("",)
    check: Callable[[Fault], object] | None = None

    def checked(self, fault: Fault) -> Fault:
        """Returns it. Raises InvalidInput, ValueError."""
        if fault.target not in self.targets:
            raise InvalidInput(f"the target of {self.name} is one of {', '.join(self.targets)}")
        if self.lasts and fault.for_s <= 0:
            raise InvalidInput(f"{self.name} lasts: say `for` how many seconds")
        if self.check is not None:
            self.check(fault)
        elif fault.how not in self.how:
            first = "nothing, or " if "" in self.how else "one of "
            known = f"`how` of {self.name} is {first}{', '.join(filter(None, self.how))}"
            raise InvalidInput(known if any(self.how) else f"{self.name} has no `how`")
        return fault
