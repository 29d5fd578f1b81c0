"""Faults at named steps of a gateway: it dies, stops, waits or is refused there, and nowhere else.

What always holds: `for` is how long the trap stays: a step that was not passed by then is reported as not reached; a gateway
that died at one is started again when the fault is healed, and one that stopped continues.
Source: chaos/harness/steps/.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import SITE_TARGETS, Kind, OnSite, Stage
from chaos.harness.faults.processes import started_again
from chaos.harness.steps.points import FAILING, KNOWN, OF_PORTS, point_and_nth
from chaos.harness.steps.table import Deed
from gateway.watchdog import TICK_S, TICKS_MAX
from twinlog.terminal import Exit

NOT_REACHED = "not reached"
STANDS_S = TICK_S * TICKS_MAX  # after which a gateway ends whose event loop stands
STANDS_SLACK_S = 10.0  # ticks of a busy machine are longer
_DEEDS: Mapping[str, tuple[Deed, frozenset[str], str]] = {  # kind -> deed, where it can be, what came of it
    "crash-at": (Deed.CRASH, KNOWN, "killed itself"), "pause-at": (Deed.PAUSE, KNOWN, "stopped itself"),
    "fail-at": (Deed.FAIL, FAILING, "was refused"), "wait-at": (Deed.WAIT, OF_PORTS, "waited"),
    "stand-at": (Deed.STAND, KNOWN, "stood"),
}


@dataclass
class Trapped(OnSite):
    """A trap in the gateway of one site."""

    number: int = 0

    def arm(self, point: str, nth: int, deed: Deed) -> str:
        self.number = self.stage.sites.traps[self.choose()].arm(point, nth, deed)
        return self.told

    def disarm(self) -> tuple[float, int]:
        """Returns when it struck, 0: it did not, and how often its point was passed."""
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
            sites.excuse_end(site, -signal.SIGKILL)
            return "; ".join(filter(None, (f"{came} there", await started_again(self.stage, site))))
        return await self._after_standing(time.monotonic() - struck) if deed is Deed.STAND else f"{came} there"

    async def _after_standing(self, stood_s: float) -> str:
        """It has ended itself if it stood for so long, and only then."""
        sites, site = self.stage.sites, self.chosen
        if sites.is_running(site):
            if stood_s > STANDS_S + STANDS_SLACK_S:
                sites.mute.append(f"The event loop of site {site} stood for {stood_s:.0f} s, and its gateway did not end.")
            return "stood there"
        if stood_s > STANDS_S:
            sites.excuse_end(site, Exit.FAIL_STOP)
        return "; ".join(filter(None, ("stood there, and ended itself", await started_again(self.stage, site))))


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
    _kind("stand-at", "the event loop stands at a step until this is healed; the gateway ends itself when that takes too long"),
)
