"""The look at what a gateway asks of a DFS: the order of claims and looks, and who closes and deletes which segment.

What always holds: it sees each call as it is asked, and knows what the caller has heard before: a call that the protocol does
not allow then is one too many, whatever comes of it. Source: protocol.md section 5 (write first, then look) and 7.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from chaos.simulate.looks.decisions import Decisions
from chaos.simulate.plan import SITES
from chaos.simulate.twins.process import Process
from chaos.simulate.world import PAIR, Life, World
from remote_log.dfs.port import DfsEntry
from remote_log.layout import RemoteLayout, SegmentName
from remote_log.writing.writer import RemoteWriter

RECOVERIES = 6  # of one segment by one process, as far as it heard that they were begun: the trimmer, and fences that ask twice


@dataclass(slots=True)
class _Told:
    """The answers of one DFS to one process. `looked_s`: when it last had the claims; `claimed`: it made one since."""

    looked_s: float = -1.0
    claimed: str = ""
    recovered: Counter[str] = field(default_factory=Counter)


class DfsCalls:
    """`broken` takes a sentence for each call that must not be."""

    def __init__(self, world: World, decisions: Decisions, broken: Callable[[str], None]) -> None:
        self._world, self._decisions, self._broken, self._layout = world, decisions, broken, RemoteLayout(PAIR)
        self._told: dict[tuple[str, Process], _Told] = {}
        for site in SITES:
            world.machines[site].dfs.asked = partial(self._asked, site)
            world.machines[site].dfs.listed = partial(self._listed, site)
            world.machines[site].dfs.recovers = partial(self._begun, site)

    def _listed(self, place: str, process: Process, folder: str, entries: list[DfsEntry]) -> None:
        if folder == self._layout.claims_folder:
            told = self._told.setdefault((place, process), _Told())
            told.looked_s, told.claimed = self._world.loop.now_s, ""

    def _begun(self, place: str, process: Process, path: str) -> None:
        """A call that failed may be made again as often as it takes; one that was answered has begun the recovery."""
        told = self._told.setdefault((place, process), _Told())
        told.recovered[path] += 1
        if told.recovered[path] > RECOVERIES:
            self._broken(
                f"{process.name} had the DFS of site {place} recover the lease of {path} for the {told.recovered[path]}th time."
            )

    def _asked(self, place: str, process: Process, operation: str, path: str) -> None:
        looks = {"create_file": self._claims, "recover_lease": self._recovers, "delete": self._deletes}
        look = looks.get(operation)
        if look is not None:
            told = self._told.setdefault((place, process), _Told())
            for sentence in look(place, process, told, path):
                self._broken(f"{process.name} at the DFS of site {place} {sentence}.")

    def _claims(self, place: str, process: Process, told: _Told, path: str) -> Iterator[str]:
        folder, _, name = path.rpartition("/")
        epoch = self._layout.parse_epoch(name)
        if folder != self._layout.claims_folder or epoch is None:
            return
        given = self._decisions.given.get((epoch, process.name.partition(".")[0]))
        if given is not None and told.looked_s < given.at_s:
            yield f"claims epoch {epoch}, and has not looked for a higher claim since it got it"
        told.claimed = path

    def _recovers(self, place: str, process: Process, told: _Told, path: str) -> Iterator[str]:
        life = self._life(process)
        epoch = life.site.active_epoch if life is not None and life.site is not None else None
        if told.claimed and life is not None and life.site is not None and epoch is None:
            yield f"closes {path} behind its claim {told.claimed}, and has not looked for a higher one"
        dfs = self._world.machines[place].dfs
        writes = epoch is not None and (epoch.remote is not None or epoch.modes.making_remote)  # a degrade lets its writer go
        for writer in dfs.open_by(process):
            if writes and writer.path == path and writer.file is dfs.files.get(path) and not writer.file.is_asked:
                yield f"recovers the lease of {path}, which it has open itself"

    def _deletes(self, place: str, process: Process, told: _Told, path: str) -> Iterator[str]:
        if not isinstance(self._layout.parse(path), SegmentName):
            return
        life = self._life(process)
        epoch = life.site.active_epoch if life is not None and life.site is not None else None
        if epoch is not None and epoch.remote is not None and path in _kept(epoch.remote):
            yield f"deletes {path}, which its writer needs"

    def _life(self, process: Process) -> Life | None:
        return next((life for life in self._world.lives.values() if life.process is process), None)


def _kept(writer: RemoteWriter) -> set[str]:
    """The segments that stay as long as there is a writer: what is open, the newest one, and the newest one with a frame."""
    begun = [segment for segment in writer.segments if segment.begun]
    written = [segment for segment in begun if segment.last_seq >= segment.first_seq]
    return {segment.path for segment in (*begun[-1:], *written[-1:], *(one for one in writer.segments if not one.closed))}
