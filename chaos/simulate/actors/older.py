"""Parts that come back older: a WAL, a journal, notes, a storage, a whole disk or a DFS, put back as it was some time before.

What always holds: a part goes back only while two copies of everything exist at this moment, and never while its own process
runs; a storage or a disk that went back counts as no copy until it has been seen whole again, as a new disk does.
Source: protocol.md 5 (A part that comes back older).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from chaos.fault_lines import Fault
from chaos.simulate.twins.engine import StorageCopy
from chaos.simulate.twins.journal import MemoryJournal
from chaos.simulate.twins.stored import Stored
from chaos.simulate.twins.watch import DfsWatch
from chaos.simulate.world import World

Undo = Callable[[], None]
FOLDERS = {"wal": ("wal/",), "notes": ("cursors/", "register/"), "disk": ("",)}


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy that is put back; None: that part stays as it is. `folders`: what the files replace."""

    folders: tuple[str, ...] = ()
    files: dict[str, Stored] | None = None
    journal: MemoryJournal | None = None
    storage: StorageCopy | Path | None = None


class OlderParts:
    """`note` gets what did not happen; `has_two_copies` notes that, too."""

    def __init__(
        self, world: World, note: Callable[[str], None], boot: Callable[[str], None], has_two_copies: Callable[[str], bool]
    ) -> None:
        self._world, self._note, self._boot, self._has_two_copies = world, note, boot, has_two_copies

    def deeds(self) -> dict[str, Callable[[str, Fault], Undo | None]]:
        return {"part-back": self._copy_part, "storage-back": self._copy_part, "disk-back": self._copy_part,
                "dfs-back": self._copy_dfs}

    def _copy_part(self, site: str, fault: Fault) -> Undo:
        """Copies now what is put back when the fault ends."""
        part = fault.how or fault.kind.removesuffix("-back")
        here = self._world.machines[site]
        copy = _Copy()
        if part in FOLDERS:
            copy = replace(copy, folders=FOLDERS[part], files=_synced(here.disk.stored, FOLDERS[part]))
        if part in ("journal", "disk"):
            copy = replace(copy, journal=here.journal.copied())
        if part in ("storage", "disk"):
            copy = replace(copy, storage=here.engine.copied())
        return partial(self._put_back, site, part, fault, copy)

    def _put_back(self, site: str, part: str, fault: Fault, copy: _Copy) -> None:
        if not self._has_two_copies(fault.kind):
            return
        world, here = self._world, self._world.machines[site]
        world.kill(site, machine=True)
        if part == "disk":
            world.before_wipe(site)  # what was in quarantine there had been told of
        if copy.files is not None:
            for path in [path for path in here.disk.stored if path.startswith(copy.folders)]:
                del here.disk.stored[path]
            here.disk.stored.update(copy.files)
        if copy.journal is not None:
            here.journal = copy.journal
        if copy.storage is not None:
            here.hollow, here.told = True, max(here.told, here.engine.durable_seq)
            here.engine.put_back(copy.storage)
        self._note(f"the {part} of {site} is back where it was {fault.for_s} s ago")
        self._boot(site)


    def _copy_dfs(self, site: str, fault: Fault) -> Undo:
        """The DFS at this site, and the register on it if the pair keeps it there."""
        return partial(self._put_back_dfs, site, fault, self._world.machines[site].dfs.copied())

    def _put_back_dfs(self, site: str, fault: Fault, copied: dict[str, tuple[bytes, bool]]) -> None:
        world, here = self._world, self._world.machines[site]
        if not self._has_two_copies(fault.kind):
            return
        if not world.plan.knobs.coordinator and not world.watch.agrees:
            self._note(f"{fault.kind} does not happen: the copies of the register differ")
            return
        world.before_kill()  # a look: how far this site leads now, also by what is durable here and not yet committed
        here.dfs.put_back(copied)
        here.hollow, here.restored = True, frozenset(copied)
        if isinstance(world.watch, DfsWatch):
            world.watch.went_back(site)
        self._note(f"the DFS of {site} is back where it was {fault.for_s} s ago")


def _synced(stored: dict[str, Stored], folders: tuple[str, ...]) -> dict[str, Stored]:
    """Returns copies of the files there, with what is synced of them."""
    copied = {path: deepcopy(file) for path, file in stored.items() if path.startswith(folders)}
    for file in copied.values():
        file.keep(lambda data: b"")
        file.is_open = False
    return copied
