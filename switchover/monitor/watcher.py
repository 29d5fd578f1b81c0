"""The availability monitor's driver: looks at both sites in turn, has it judged by monitor.py, and does what that says.

What always holds: it acts through the ordinary operations of a site, as the actor `monitor`, under an idempotency key, so that
the site refuses a second one; an order whose answer was lost is asked again of the same site under the same key, and no other.
Everything outside comes in through ports (SiteProbe, Clock): the simulator runs this very code. Source: protocol.md section 8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from storage.clock import Clock
from switchover.monitor.findings import AdviceKind, Thresholds
from switchover.monitor.judgement import Advice, MonitorState, step, wants_checks_of
from switchover.monitor.views import Observation, SiteProbe, SiteView, TakeoverReadiness
from twinlog.errors import PeerError, TwinlogError

ORDER_ATTEMPTS = 3
ORDER_RETRY_S = 0.5
Report = Callable[[Advice, str], None]  # the advice, and what became of the action, if there was one


class Watcher:
    """Calls `report` with each advice that differs from the one before, and with each action. `thresholds` may change at any
    time: the next look is judged by them, and what has held so far counts."""

    def __init__(
        self, sites: tuple[str, ...], probe: SiteProbe, clock: Clock, thresholds: Thresholds, *, act: bool, report: Report
    ) -> None:
        self._sites, self._probe, self._clock = sites, probe, clock
        self.thresholds, self._act, self._report = thresholds, act, report
        self._state = MonitorState()
        self._told: tuple[object, ...] = ()
        self._wanted: str | None = None  # the site whose checks the last look needed

    async def run(self) -> None:
        """Looks, judges and acts until it is cancelled. A look that waits for a site's silence takes its time off the pause."""
        while True:
            began_s = self._clock.monotonic_s()
            await self.round()
            await self._clock.sleep(max(0.0, began_s + self.thresholds.interval_s - self._clock.monotonic_s()))

    async def round(self) -> Advice:
        """One look, and what follows from it."""
        seen = await self.look()
        self._state, advice = step(self.thresholds, self._state, seen, act=self._act)
        became = await self._do(advice) if advice.act else ""
        face = (advice.kind, advice.id, advice.holds_in_s == 0, bool(advice.acts_not), became)
        if face != self._told:
            self._told = face
            self._report(advice, became)
        return advice

    async def look(self) -> Observation:
        """Both sites at the same time, and the checks of the one that might have to take over: also at the same time where the
        look before needed them. A site that hangs costs a look one short time-out: it is asked for its checks no more than for
        its view, and whether it can take over is unknown.
        """
        looks = dict(zip(self._sites, await asyncio.gather(*(self._look_at(site) for site in self._sites)), strict=True))
        views = {site: None if isinstance(view, TwinlogError) else view for site, (view, _) in looks.items()}
        errors = {site: view.message for site, (view, _) in looks.items() if isinstance(view, TwinlogError)}
        seen = Observation(self._clock.monotonic_s(), views, errors)
        asked, self._wanted = self._wanted, wants_checks_of(self._state, seen)
        if self._wanted is None:
            return seen
        told = self._wanted == asked or views[self._wanted] is None
        readiness = looks[self._wanted][1] if told else await self._readiness(self._wanted)
        return replace(seen, readiness=readiness)

    async def _look_at(self, site: str) -> tuple[SiteView | TwinlogError, TakeoverReadiness | None]:
        """One that does not answer at all is given up soon; one that does may take its time for its view, for it waits for the
        other site, both DFSs and the register."""
        try:
            await self._probe.alive(site)
        except TwinlogError as error:
            return error, None
        if site != self._wanted:
            return await self._view(site), None
        return await asyncio.gather(self._view(site), self._readiness(site))

    async def _view(self, site: str) -> SiteView | TwinlogError:
        try:
            return await self._probe.view(site)
        except TwinlogError as error:
            return error

    async def _readiness(self, site: str) -> TakeoverReadiness | None:
        try:
            found = await self._probe.checks(site)
        except TwinlogError:
            return None
        return readiness_of(site, found)

    async def _do(self, advice: Advice) -> str:
        """Order it; what became of that, in words."""
        site = str(advice.site)
        to = site if advice.kind is AdviceKind.FAILOVER else None
        options = {"reason": advice.reason, "automatic": True}
        for attempt in range(ORDER_ATTEMPTS):
            try:
                document = await self._probe.order(site, str(advice.kind), to, options, advice.key)
            except PeerError as error:
                if attempt + 1 == ORDER_ATTEMPTS:
                    return f"site {site} did not answer; it may be running: twinlog history ({error.message})"
                await self._clock.sleep(ORDER_RETRY_S)
            except TwinlogError as error:
                return f"refused, {error.code}: {error.message}"
            else:
                return f"asked for: operation {document['id']}"
        raise AssertionError


def readiness_of(site: str, found: Mapping[str, Any]) -> TakeoverReadiness:
    """Reads the verdict on a takeover from a document of checks."""
    def told(status: str) -> tuple[str, ...]:
        return tuple(f"{check['id']}: {check['seen']}" for check in found["checks"] if check["status"] == status)

    return TakeoverReadiness(site, bool(found["ok"]), told("failed"), tuple(one.partition(":")[0] for one in told("unknown")))
