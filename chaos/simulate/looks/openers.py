"""The look at who writes which log: at most one writer of each, in each epoch.

What always holds: it sees each append as it is asked for, at the twins of disk and DFS, and does not ask the product. A writer
fills its segments in the order of their numbers, which the writers of one epoch share, so an append to an older segment than
the newest one that was written shows a second writer that is not closed. Source: protocol.md sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chaos.simulate.plan import SITES
from chaos.simulate.twins.process import Process
from chaos.simulate.world import PAIR, World
from remote_log.layout import RemoteLayout, SegmentName
from storage.log.segment import parse_wal_name


class Openers:
    """`broken` takes a sentence, once, for each log and each epoch that two write."""

    def __init__(self, world: World, broken: Callable[[str], None]) -> None:
        self._broken, self._layout = broken, RemoteLayout(PAIR)
        self._newest: dict[str, tuple[Process, int]] = {}  # of each log: who appended last, and the newest segment's number
        self._authors: dict[int, Process] = {}  # of each epoch, whichever log
        self._said: set[str] = set()
        for site in SITES:
            world.machines[site].disk.appends = partial(self._to_wal, site)
            world.machines[site].dfs.appends = partial(self._to_remote_log, site)

    def _to_wal(self, site: str, process: Process, path: str) -> None:
        number = parse_wal_name(path.rpartition("/")[2])
        if number is not None:
            self._appended(process, f"the WAL of site {site}", number[0], number[0] << 32 | number[1])

    def _to_remote_log(self, site: str, process: Process, path: str) -> None:
        name = self._layout.parse(path)
        if isinstance(name, SegmentName):
            self._appended(process, f"epoch {name.epoch} of the remote log at site {site}", name.epoch, name.n)

    def _appended(self, process: Process, log: str, epoch: int, number: int) -> None:
        author = self._authors.get(epoch, process)
        if author is not process and not author.killed:
            self._say(f"Two processes write epoch {epoch}: {author.name} and {process.name}.")
        before, newest = self._newest.get(log, (process, number))
        if before is process and number < newest:
            self._say(f"Two writers in {process.name} write {log}: one appends to a segment older than the other one's.")
        self._authors[epoch] = process
        self._newest[log] = process, max(number, newest) if before is process else number

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self._broken(sentence)
