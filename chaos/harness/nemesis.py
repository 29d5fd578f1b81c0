"""Causes the faults of a plan at their times, and heals them; several may overlap.

What always holds: what cannot be done when its time has come is noted and left out; whatever was injected is healed, or is
undone by `heal_all`, which leaves every link as at the beginning, every server and gateway running, and no monitor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from chaos.fault_lines import Fault, fault_text
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import effect_of
from chaos.harness.pair.sites import SITES


class Span(msgspec.Struct, frozen=True):
    """A fault as it came about. `skipped`: why it did not; `told`: what came of it."""

    kind: str
    target: str
    how: str
    from_s: float
    to_s: float
    told: str = ""
    skipped: str = ""


class Nemesis:
    def __init__(self, stage: Stage, now_s: Callable[[], float], note: Callable[[str], None]) -> None:
        self._stage, self._now_s, self._note = stage, now_s, note
        self.spans: list[Span] = []

    async def run(self, faults: Sequence[Fault]) -> None:
        """All of them, to the end of the last one. Raises the first error of the harness itself."""
        begun_s = self._now_s()
        try:
            async with asyncio.TaskGroup() as group:
                for fault in faults:
                    group.create_task(self._cause(fault, begun_s))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _cause(self, fault: Fault, begun_s: float) -> None:
        await asyncio.sleep(max(0.0, begun_s + fault.at_s - self._now_s()))
        effect, line = effect_of(fault, self._stage), fault_text(fault)
        from_s = self._now_s()
        reason = await effect.why_not()
        if reason:
            self._note(f"left out: {line}: {reason}")
            self.spans.append(Span(fault.kind, fault.target, fault.how, from_s, from_s, "", reason))
            return
        self._note(line)
        told = await effect.inject()
        if fault.for_s:
            await asyncio.sleep(max(0.0, from_s + fault.for_s - self._now_s()))
            came = await effect.heal()
            self._note(f"healed: {line}" + (f": {came}" if came else ""))
            told = "; ".join(filter(None, (told, came)))
        self.spans.append(Span(fault.kind, fault.target, fault.how, from_s, self._now_s(), told))

    async def heal_all(self) -> None:
        if self._stage.monitors is not None:
            await asyncio.to_thread(self._stage.monitors.end)
        if self._stage.toxiproxy is not None and self._stage.links.is_away:
            await self._stage.links.bring_back(self._stage.toxiproxy.start)
        await self._stage.links.reset()
        self._stage.toxics.clear()
        await asyncio.to_thread(self._stage.sites.servers.heal)
        for site in SITES:
            if self._stage.sites.lives[site].paused:
                self._stage.sites.resume(site)
            self._stage.sites.start(site)
