"""The values of the pair's register, and the moment at which each one is decided: at the witness, or on the two DFSs.

What always holds: it looks and never touches; which file decides is as in chaos/history/registers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Protocol

from chaos.history.registers import TwoRegisters
from chaos.simulate.twins.dfs import SimDfsCluster
from remote_log.layout import RemoteLayout
from storage.disk.sealed_json import unseal
from switchover.register.dfs_folder import RegisterEntry
from switchover.register.port import PairState

Decided = Callable[[PairState | None, PairState, str], None]  # the value before it, in the same place, the one decided, by whom


class Watch(Protocol):
    """`decided` gets each value; `forced` gets each site where a command began a line of its own, apart from the other one;
    `met` when both places hold the same value again; `forgotten` when nothing is left."""

    decided: Decided
    forced: Callable[[str], None]
    met: Callable[[], None]
    forgotten: Callable[[], None]

    @property
    def value(self) -> PairState | None:
        """Returns the value that a look at every place would find."""

    def says_sync(self, epoch: int, active: str) -> bool:
        """Nowhere is it known otherwise."""

    @property
    def remembered(self) -> PairState | None:
        """The same; of a pair that was forgotten, the last one before that: people remember."""

    @property
    def agrees(self) -> bool:
        """Wherever it is kept, it is the same."""

    @property
    def is_apart(self) -> bool:
        """A command began a line of its own, and both places did not hold the same value since."""

    @property
    def met_s(self) -> float:
        """Returns when that last ended."""

    def lost(self, place: str) -> None:
        """Forgets the values that were kept at `place`, a site or the witness."""


class DfsWatch:
    """Watch, of a pair without a coordinator. `clusters`: by site."""

    def __init__(self, clusters: Mapping[str, SimDfsCluster], layout: RemoteLayout) -> None:
        self.decided: Decided = lambda before, value, author: None
        self.forced: Callable[[str], None] = lambda site: None
        self.met: Callable[[], None] = lambda: None
        self.forgotten: Callable[[], None] = lambda: None
        self._layout, self._clusters = layout, clusters
        self._registers = TwoRegisters()
        self._met_s = -inf
        for site, cluster in clusters.items():
            cluster.made = partial(self._made, site)

    @property
    def value(self) -> PairState | None:
        return self._registers.value

    def says_sync(self, epoch: int, active: str) -> bool:
        values = [value for _, value in self._registers.newest.values()]
        there = [value for value in values if value.epoch == epoch and value.active == active]
        return bool(there) and all(value.mode == "sync" for value in there) and self.value in there

    @property
    def remembered(self) -> PairState | None:
        return self.value

    @property
    def is_apart(self) -> bool:
        return self._registers.is_apart

    @property
    def met_s(self) -> float:
        return self._met_s

    @property
    def agrees(self) -> bool:
        return self._registers.agrees

    def lost(self, place: str) -> None:
        if self._registers.lost(place):
            self.forgotten()

    def went_back(self, place: str) -> None:
        """Looks anew at the values that are kept at `place`, a site: its DFS is back where it was."""
        folder, files = self._layout.register_folder + "/", self._clusters[place].files
        numbers = {self._layout.parse_register(path.removeprefix(folder)): path for path in files if path.startswith(folder)}
        numbers.pop(None, None)
        self._registers.newest.pop(place, None)
        if numbers:
            number = max(number for number in numbers if number is not None)
            path = numbers[number]
            self._registers.newest[place] = number, unseal(bytes(files[path].data), RegisterEntry, path, "").value

    def _made(self, site: str, path: str, content: bytes) -> None:
        folder, _, name = path.rpartition("/")
        number = self._layout.parse_register(name)
        if folder != self._layout.register_folder or number is None:
            return
        entry = unseal(content, RegisterEntry, path, "")
        met = self._registers.made(site, number, entry.value)
        if met is None:
            return
        if met.is_forced:
            self.forced(site)
        if met.is_new:
            self.decided(met.before, entry.value, entry.site)
        if met.is_whole:
            self._met_s = self._clusters[site].loop.now_s
            self.met()
