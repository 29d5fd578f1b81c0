"""The pair as its sites show it while a run lasts: samples, and openings and modes as lines of the history.

What always holds: it asks, and changes nothing. A change happened between two looks at a site: an opening is noted with the
later one, a mode with the earlier one, and an answer may be of a new epoch from the earlier one on; so none of them makes an
answer look wrong that was right. What no look saw is not in the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from chaos.harness.pair.asked import SITES, AskedSites
from chaos.harness.pair.samples import SAMPLE_S, Sample, sample_of
from chaos.history.history import GivenUp, Mode, ModeRecorded, Opened
from chaos.history.lines import Line
from twinlog.errors import TwinlogError

LOOK_EVERY_S = 0.1
GAP_S = 0.4  # a longer one between two answers of a site may hide a change of its mode, and the way back
SERVING = ("ACTIVE", "DOWNGRADE_ACTIVE")


@dataclass
class _Seen:
    """A site's last answer. `at_s`: when it was asked for."""

    at_s: float = -inf
    epoch: int | None = None  # that it had open
    mode: Mode | None = None


@dataclass
class ClusterWatch:
    """`note` takes the lines. `since`: epoch -> the earliest moment at which it can have opened."""

    sites: AskedSites
    now_s: Callable[[], float]
    note: Callable[[Line], None]
    samples: list[Sample] = field(default_factory=list)
    since: dict[int, float] = field(default_factory=dict)
    active: str | None = None
    _newest: tuple[int, Mode] | None = None  # the last epoch that was seen open, and its last mode
    _seen: dict[str, _Seen] = field(default_factory=lambda: {site: _Seen() for site in SITES})

    async def keep(self) -> None:
        """Looks until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for site in SITES:
                group.create_task(self._keep(site))

    async def _keep(self, site: str) -> None:
        while True:
            await self.look(site)
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, site: str) -> None:
        at_s = self.now_s()
        try:
            document = await asyncio.to_thread(self.sites.direct.ask, site, "GET", "/v1/cluster")
        except TwinlogError:
            self._sample(Sample(site, at_s, "silent"))
            return
        self._sample(sample_of(site, at_s, self.now_s(), document))
        self.take_in(site, document, at_s, self.now_s())

    def _sample(self, sample: Sample) -> None:
        """Keeps it if it is due, or shows another role."""
        last = next((each for each in reversed(self.samples) if each.site == sample.site), None)
        if last is None or last.role != sample.role or sample.at_s - last.at_s >= SAMPLE_S:
            self.samples.append(sample)

    def take_in(self, site: str, document: dict[str, Any], asked_s: float, now_s: float) -> None:
        """An answer of a site that was asked for at `asked_s`."""
        before = self._seen[site]
        self._seen[site] = seen = _Seen(asked_s)
        active = document.get("active") or {}
        if document.get("role") not in SERVING or active.get("site") != site or document.get("epoch") is None:
            return
        seen.epoch, seen.mode = document["epoch"], document["mode"]
        if seen.epoch != before.epoch:
            self._opened(site, seen.epoch, seen.mode, before.at_s, now_s)
            return
        if asked_s - before.at_s > GAP_S:
            self.note(ModeRecorded(seen.epoch, "async", before.at_s))
            self.note(ModeRecorded(seen.epoch, seen.mode, before.at_s))
        elif seen.mode != before.mode:
            self.note(ModeRecorded(seen.epoch, seen.mode, before.at_s))
        self._newest = (seen.epoch, seen.mode)

    def _opened(self, site: str, epoch: int, mode: Mode, from_s: float, to_s: float) -> None:
        if epoch in self.since:
            return  # its site showed something else in between
        self.since[epoch] = from_s
        self.note(ModeRecorded(epoch, mode, from_s))
        self.note(Opened(site, epoch, to_s, mode))
        if self._newest is not None and self._newest[1] == "async" and self.active != site:
            self.note(GivenUp(self._newest[0], to_s))
        self.active, self._newest = site, (epoch, mode)
