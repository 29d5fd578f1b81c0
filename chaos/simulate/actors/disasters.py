"""Disasters: what was synced is lost, or wrong. Each takes one copy of what was acknowledged, and never the only one.

What always holds: a disaster that would take the only copy at its moment does not happen, and the trace says so: then no pair
could keep its promises. What it took is kept in mind (`lost` and `rotten`, at the machine): the operator sees a new disk too,
and what is rotten is no copy.
Source: protocol.md, P1 and P6; docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chaos.fault_lines import Fault
from chaos.log_damage import provable
from chaos.simulate.actors.older import OlderParts
from chaos.simulate.twins.coordinator import PLACE as WITNESS
from chaos.simulate.twins.stored import Stored
from chaos.simulate.world import OTHER, PAIR, World
from remote_log.layout import RemoteLayout, SegmentName

Undo = Callable[[], None]
CURSORS = "cursors/holders.json"


class Disasters:
    """`note` gets what did not happen."""

    def __init__(self, world: World, note: Callable[[str], None], boot: Callable[[str], None]) -> None:
        self._world, self._note, self._boot = world, note, boot
        self._chance = world.stream("disasters")

    def deeds(self) -> dict[str, Callable[[str, Fault], Undo | None]]:
        return {
            "replace-disk": self._replace_disk, "site-lost": self._lose_site, "rot": self._rot,
            "coordinator-lost": self._lose_register, "coordinator-back": self._return_register,
            **OlderParts(self._world, self._note, self._boot, self._has_two_copies).deeds(),
        }

    def _has_two_copies(self, what: str) -> bool:
        """Synchronous, everywhere where it is known, and no degrade is under way to there: then the active's site and the other
        one each have everything, and will not be taken for less."""
        watch = self._world.watch
        value = watch.value
        if value is not None and value.active is not None and watch.says_sync(value.epoch, value.active):
            site = self._world.lives[value.active].site
            if site is None or site.active_epoch is None or not site.active_epoch.modes.unsettled:
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

    def _lose_register(self, _: str, fault: Fault) -> None:
        """The coordinator is set up anew, and knows of no pair. Without one: what is on one DFS; `how` says on which."""
        world = self._world
        if world.plan.knobs.coordinator:
            world.watch.lost(WITNESS)
        elif not world.watch.agrees:
            self._note(f"{fault.kind} does not happen: the copies differ")
        else:
            dfs = world.machines[fault.how].dfs
            dfs.delete(RemoteLayout(PAIR).register_folder)
            world.watch.lost(fault.how)

    def _return_register(self, _: str, fault: Fault) -> None:
        """The coordinator's database is restored from a backup, so many changes old."""
        if not self._world.plan.knobs.coordinator:
            self._note(f"{fault.kind} does not happen: there is none")
        else:
            self._note(f"{self._world.register.go_back(int(fault.how))} changes of the register are forgotten")

    # ---- rot
    def _rot(self, site: str, fault: Fault) -> None:
        """A bit of what was synced turns: in a file of the site's WAL, or of the remote log on the other site's DFS; in its
        cursors; or in the newest file of the register there, when a pair without a coordinator keeps it on two DFSs."""
        if not self._has_two_copies(fault.kind):
            return
        if fault.how in ("cursors", "register"):
            self._rot_note(site, fault)
            return
        here = self._world.machines[site if fault.how == "wal" else OTHER[site]]
        layout = RemoteLayout(PAIR)
        if fault.how == "wal":
            stored = here.disk.stored
            files = {path: (each.data, synced(each)) for path, each in stored.items() if path.startswith("wal/")}
        else:
            files = {
                path: (each.data, len(each.data)) for path, each in here.dfs.files.items()
                if isinstance(layout.parse(path), SegmentName)
            }
        places = [(path, place) for path, (data, upto) in sorted(files.items()) for place in provable(bytes(data[:upto]))]
        if not places:
            self._note(f"{fault.kind} does not happen: nothing there would differ from a torn end")
            return
        path, (start, end) = self._chance.choice(places)
        offset = self._chance.randrange(start, end)
        files[path][0][offset] ^= 1 << self._chance.randrange(8)
        here.rotten.add(path)
        self._note(f"bit at {offset} of {path}")


    def _rot_note(self, site: str, fault: Fault) -> None:
        here, folder = self._world.machines[site], RemoteLayout(PAIR).register_folder
        if fault.how == "cursors":
            files = {path: each.data for path, each in here.disk.stored.items() if path == CURSORS}
        else:
            here = self._world.machines[OTHER[site]]
            files = {path: each.data for path, each in here.dfs.files.items() if path.startswith(folder + "/")}
        if not files or (fault.how == "register" and not self._world.watch.agrees):
            self._note(f"{fault.kind} does not happen: there is no such file, or its copies differ")
            return
        path = max(files)
        files[path][self._chance.randrange(len(files[path]))] ^= 1 << self._chance.randrange(8)
        here.rotten.add(path)
        self._note(f"bit of {path}")


def synced(stored: Stored) -> int:
    """Returns how many bytes of the file are on the disk for sure."""
    return min((offset for offset, _ in stored.unsynced), default=len(stored.data))
