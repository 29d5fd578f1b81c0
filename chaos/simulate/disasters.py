"""Disasters: what was synced is lost, or wrong. Each takes one copy of what was acknowledged, and never the only one.

What always holds: a disaster that would take the only copy at its moment does not happen, and the trace says so: then no pair
could keep its promises. What it took is kept in mind (`lost`, at the machine), for the operator sees a new disk too.
Source: protocol.md, P1 and P6; docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chaos.simulate.plan import Fault
from chaos.simulate.world import World

Undo = Callable[[], None]


class Disasters:
    """`note` is told what did not happen."""

    def __init__(self, world: World, note: Callable[[str], None], boot: Callable[[str], None]) -> None:
        self._world, self._note, self._boot = world, note, boot

    def deeds(self) -> dict[str, Callable[[str, Fault], Undo | None]]:
        return {"replace-disk": self._replace_disk, "site-lost": self._lose_site}

    def _has_two_copies(self, what: str) -> bool:
        """Synchronous, everywhere where it is known: then the active's site and the other one each have everything."""
        watch = self._world.watch
        value = watch.value
        if value is not None and value.active is not None and watch.says_sync(value.epoch, value.active):
            return True
        self._note(f"{what} does not happen: there may be one copy only")
        return False

    def _replace_disk(self, site: str, fault: Fault) -> Undo | None:
        if not self._has_two_copies(fault.kind):
            return None
        self._world.kill(site, machine=True)
        self._world.wipe(site)
        return partial(self._boot, site)

    def _lose_site(self, site: str, fault: Fault) -> Undo | None:
        """The data centre burns down, and is built anew: machine and DFS are empty."""
        if not self._has_two_copies(fault.kind):
            return None
        self._world.kill(site, machine=True)
        self._world.wipe(site)
        self._world.machines[site].dfs.wipe()
        self._world.watch.lost(site)
        return partial(self._boot, site)
