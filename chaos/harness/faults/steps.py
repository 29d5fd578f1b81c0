"""Faults at named steps of a gateway: it dies, stops, waits or is refused there, and nowhere else.

What always holds: `for` is how long the trap stays: a step that was not passed by then is reported as not reached; a gateway
that died at one is started again when the fault is healed, and one that stopped continues.
Source: chaos/harness/steps/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import SITE_TARGETS, Kind, OnSite, Stage
from chaos.harness.faults.processes import started_again
from chaos.harness.steps.points import FAILING, KNOWN, OF_PORTS, point_and_nth
from chaos.harness.steps.table import Deed

NOT_REACHED = "not reached"
_DEEDS: Mapping[str, tuple[Deed, frozenset[str], str]] = {  # kind -> deed, where it can be, what came of it
    "crash-at": (Deed.CRASH, KNOWN, "killed itself"), "pause-at": (Deed.PAUSE, KNOWN, "stopped itself"),
    "fail-at": (Deed.FAIL, FAILING, "was refused"), "wait-at": (Deed.WAIT, OF_PORTS, "waited"),
}


@dataclass
class Trapped(OnSite):
    """A trap in the gateway of one site."""

    number: int = 0

    def arm(self, point: str, nth: int, deed: Deed) -> str:
        self.number = self.stage.sites.traps[self.choose()].arm(point, nth, deed)
        return self.told

    def disarm(self) -> tuple[bool, int]:
        """Returns whether it struck, and how often its point was passed."""
        return self.stage.sites.traps[self.chosen].disarm(self.number)


@dataclass
class AtStep(Trapped):
    """It strikes once, when the step is passed for the n-th time."""

    async def inject(self) -> str:
        deed, known, _ = _DEEDS[self.fault.kind]
        return self.arm(*point_and_nth(self.fault.how, known), deed)

    async def heal(self) -> str:
        sites, site = self.stage.sites, self.chosen
        deed, known, came = _DEEDS[self.fault.kind]
        struck, passed = self.disarm()
        if not struck:
            return f"passed {passed} of {point_and_nth(self.fault.how, known)[1]} times: {NOT_REACHED}"
        if deed is Deed.PAUSE:
            sites.resume(site)
        if deed is Deed.CRASH:
            sites.excuse_kill(site)
            return "; ".join(filter(None, (f"{came} there", await started_again(self.stage, site))))
        return f"{came} there"


def _kind(name: str, sentence: str) -> Kind:
    def check(fault: Fault) -> object:
        return point_and_nth(fault.how, _DEEDS[name][1])

    return Kind(name, SITE_TARGETS, sentence, _effect, how=tuple(sorted(_DEEDS[name][1])), check=check)


def _effect(fault: Fault, stage: Stage) -> AtStep:
    return AtStep(stage, fault)


KINDS = (
    _kind("crash-at", "the gateway kills itself when it passes a step: POINT, or POINT/NTH; started again when it is healed"),
    _kind("pause-at", "the gateway stops itself when it passes a step, until this is healed"),
    _kind("fail-at", "the call of a port at this step fails"),
    _kind("wait-at", "the call of a port at this step waits until this is healed"),
)
