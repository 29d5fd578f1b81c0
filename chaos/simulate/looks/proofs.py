"""The look at each answer as it is made: an active shows rows with a proof that it still is, and refuses nobody for want of one
that it has.

What always holds: it looks at the site in the very step in which an answer is made, in a run's own time: what the network does
later, and what a stop of the process holds up, is not judged here. Source: protocol.md section 5, "Read lease".
"""

from __future__ import annotations

import re
from collections.abc import Callable

from chaos.simulate.actors.door import ADDRESS
from chaos.simulate.world import World
from gateway.site.site import Site
from twinlog.wire.exchange import Reply, SiteRequest

ROW = re.compile(r"/v1/tables/[^/]+/rows/[^/]+$")
UNPROVED = b"this site cannot prove that it is still the active"


class Proofs:
    """`broken` takes a sentence for each answer that must not be."""

    def __init__(self, world: World, broken: Callable[[str], None]) -> None:
        self._world, self._broken = world, broken
        world.replied = self._replied

    def _replied(self, name: str, site: Site, request: SiteRequest, reply: Reply, decided_s: float) -> None:
        """`site` answers now. If it was stopped and continues now, it made the answer at `decided_s` or now."""
        clock, epoch = self._world.machines[name].clock, site.active_epoch
        shown_s = clock.monotonic_s() - (self._world.loop.now_s - decided_s) * clock.rate
        has_proof = epoch is not None and epoch.lease.valid_at(clock.monotonic_s()) and site.serving.writing is epoch
        if reply.status == 503 and has_proof and UNPROVED in reply.content:
            self._broken(f"Site {name} refuses {request.method} for want of a proof that it is the active, and has one.")
        is_row = request.method == "GET" and reply.status == 200 and ROW.match(request.url[len(ADDRESS) :].partition("?")[0])
        if is_row and (epoch is None or not epoch.lease.expires_s > shown_s):
            self._broken(f"Site {name} answers a read without a proof that it is the active.")
