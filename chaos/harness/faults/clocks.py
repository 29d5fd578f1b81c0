"""Faults of a site's clocks: its wall clock is set, and its clocks run faster or slower.

What always holds: a rate counts for the wall clock and for the monotonic one, and a jump for the wall clock alone, as on a
machine whose clock somebody sets; the clocks of both sites together never drift apart by more than the lease allows, for what
happens beyond that is nobody's promise. What a wall clock has gained by its rate it keeps.
Source: docs/protocol.md, sections 3 and 5; remote_log/fencing/read_lease.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from chaos.clock_faults.control import ClockFaults
from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, OnSite, Stage
from chaos.harness.pair.sites import OTHER
from remote_log.fencing.read_lease import LeaseSettings
from storage.log.frame import SKEW_MAX_S
from twinlog.errors import InvalidInput

MARGIN = LeaseSettings().drift_margin


def seconds(fault: Fault) -> float:
    """Raises InvalidInput, ValueError."""
    by_s = float(fault.how)
    if not 0 < abs(by_s) < SKEW_MAX_S:
        raise InvalidInput(f"`how` of {fault.kind} is so many seconds, forwards or (below 0) backwards, less than {SKEW_MAX_S}")
    return by_s


def rate(fault: Fault) -> float:
    """Raises InvalidInput, ValueError."""
    found = float(fault.how)
    if apart(found, 1.0) > MARGIN:
        raise InvalidInput(f"`how` of {fault.kind} is a rate, and no faster or slower than {MARGIN:.0%} against a clock at 1")
    return found


def apart(one: float, other: float) -> float:
    """Returns by how much the faster one gains on the slower one, as a share."""
    return max(one, other) / min(one, other) - 1 if min(one, other) > 0 else float("inf")


@dataclass
class Jump(OnSite):
    """The wall clock is set, and back when it is healed."""

    clock: ClockFaults | None = None

    async def inject(self) -> str:
        site = self.choose()
        self.clock = self.stage.clocks[site]
        self.clock.jump(seconds(self.fault))
        return f"site {site}: its wall clock is {self.clock.ahead_s:+.1f} s from the real one"

    async def heal(self) -> str:
        assert self.clock is not None, "it was injected"
        self.clock.jump(-seconds(self.fault))
        return f"back at {self.clock.ahead_s:+.1f} s"


@dataclass
class Drift(OnSite):
    """The clocks run at another rate."""

    clock: ClockFaults | None = None

    async def why_not(self) -> str:
        site = self.stage.site(self.fault.target)
        if site is None:
            return NO_ACTIVE
        here, there = self.stage.clocks[site].rate, self.stage.clocks[OTHER[site]].rate
        if here != 1.0:
            return f"the clocks of site {site} drift already"
        return "" if apart(rate(self.fault), there) <= MARGIN else f"the clocks would drift apart by more than {MARGIN:.0%}"

    async def inject(self) -> str:
        self.clock = self.stage.clocks[self.choose()]
        self.clock.run_at(rate(self.fault))
        return self.told

    async def heal(self) -> str:
        assert self.clock is not None, "it was injected"
        self.clock.run_at(1.0)
        return f"its wall clock is {self.clock.ahead_s:+.1f} s from the real one"


def _jump(fault: Fault, stage: Stage) -> Jump:
    return Jump(stage, fault)


def _drift(fault: Fault, stage: Stage) -> Drift:
    return Drift(stage, fault)


KINDS = (
    Kind("clock-jump", SITE_TARGETS, "the wall clock is set by so many seconds, and back when it is healed", _jump, lasts=False,
         how=("3600", "-3600", "1.5"), check=seconds),
    Kind("clock-drift", SITE_TARGETS, "the clocks run at this rate", _drift, how=("1.15", "0.9"), check=rate),
)
