"""The availability monitor in a simulation: the product's own watcher, over the simulated network, at the witness or at a desk.

What always holds: it reaches the sites as `twinlog monitor` does, by their views, checks and operations; its process is killed
now and then and begins anew, remembering nothing; what it orders is a site's ordinary operation, judged like an operator's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from chaos.simulate.plan import SITES
from chaos.simulate.twins.clock import SimClock
from chaos.simulate.twins.network import CallInFlight
from chaos.simulate.twins.process import Process
from chaos.simulate.world import Life, World
from gateway.site.operations import SiteOperations
from switchover.monitor.findings import Thresholds
from switchover.monitor.judgement import Advice
from switchover.monitor.views import MONITOR, SiteView
from switchover.monitor.watcher import Watcher
from twinlog.errors import PeerError
from twinlog.sites import ALIVE_TIMEOUT_S

SETTINGS = Thresholds(  # so short that it acts within a run, between faults that last for seconds
    interval_s=0.35, look_after_s=1.0, resync_after_s=2.0, degrade_after_s=0.7, failover_after_s=0.7, gap_max_s=8.0,
    quiet_after_action_s=2.0, actions_max=5, actions_window_s=20.0, silence_max_s=1.0,
)
VIEW_TIMEOUT_S, ORDER_TIMEOUT_S = 5.5, 10.0  # ALIVE_TIMEOUT_S is the product's own
LIFE_S, DOWN_S = 10.0, 1.0  # on average
Note = Callable[[str], None]


class SimProbe:
    """The SiteProbe from the place `src`."""

    def __init__(self, world: World, src: str) -> None:
        self._world, self._src = world, src

    async def alive(self, site: str) -> None:
        await self._ask(site, _live, ALIVE_TIMEOUT_S)

    async def view(self, site: str) -> SiteView:
        found: SiteView = await self._ask(site, _view, VIEW_TIMEOUT_S)
        return found

    async def checks(self, site: str) -> Mapping[str, Any]:
        found = await self._ask(site, lambda life: _operations(life).checks("failover"), VIEW_TIMEOUT_S)
        return _as_answered(found)

    async def order(self, site: str, kind: str, to: str | None, options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        def begin(life: Life) -> Coroutine[Any, Any, Any]:
            return _operations(life).start(kind, to, dict(options), False, f"{MONITOR} {self._src}", key)

        return _as_answered(await self._ask(site, begin, ORDER_TIMEOUT_S))

    async def _ask(self, site: str, work: Callable[[Life], Coroutine[Any, Any, Any]], timeout_s: float) -> Any:
        failed = partial(_failed, site)
        return await self._world.network.call(self._src, site, partial(self._serve, site, work), timeout_s, failed)

    def _serve(self, site: str, work: Callable[[Life], Coroutine[Any, Any, Any]], call: CallInFlight) -> None:
        life = self._world.alive(site)
        if life is None or life.operations is None or life.context is None:
            call.refuse()
        else:
            call.run_in(life.process, partial(work, life))


class SimMonitor:
    """One monitor through all its lives. `note` gets what it does, for the trace."""

    def __init__(self, world: World, note: Note) -> None:
        self._world, self._note = world, note
        self._chance = world.stream("monitor")
        self._process: Process | None = None
        self.acted = 0

    async def keep(self) -> None:
        """It runs, dies, and is started again, until this is cancelled."""
        while True:
            self._boot()
            await asyncio.sleep(self._chance.expovariate(1 / LIFE_S))
            self.stop()
            await asyncio.sleep(self._chance.expovariate(1 / DOWN_S))

    def stop(self) -> None:
        if self._process is not None and not self._process.killed:
            self._world.loop.kill(self._process)

    def _boot(self) -> None:
        place = self._chance.choice(("w", "c"))
        self._process = Process(f"monitor at {place}")
        watcher = Watcher(
            SITES, SimProbe(self._world, place), SimClock(self._world.loop, rate=self._chance.choice((0.95, 1.0, 1.05))),
            SETTINGS, act=self._world.plan.knobs.monitor == "act", report=self._report,
        )
        self._process.spawn(watcher.run(), "watch")

    def _report(self, advice: Advice, became: str) -> None:
        if became:
            self.acted += 1
            self._note(f"monitor: {advice.kind} at {advice.site}: {became}")


async def _live(life: Life) -> None:
    """The answer alone says it: a process that is stopped does not get here."""


async def _view(life: Life) -> SiteView:
    assert life.operations is not None
    assert life.context is not None
    return replace(await life.operations.view(), answers=life.context.metrics.answers())


def _operations(life: Life) -> SiteOperations:
    assert life.operations is not None
    return life.operations


def _failed(site: str, why: str, sent: bool) -> PeerError:
    return PeerError(f"site {site} does not answer: {why}", site=site, sent=sent)


def _as_answered(document: msgspec.Struct) -> Mapping[str, Any]:
    """The document as a client reads it from the API's answer."""
    built: dict[str, Any] = msgspec.to_builtins(document)
    return built
