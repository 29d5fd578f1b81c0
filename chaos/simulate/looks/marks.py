"""The look at the mark on each frame of a WAL: whether it was written while acknowledgements were asynchronous.

What always holds: once an epoch has written a frame that is marked so, none is marked otherwise before the register has said
sync again: a rejoin judges by the marks what was acknowledged, and what was not. Source: protocol.md sections 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chaos.simulate.looks.decisions import Decisions
from chaos.simulate.plan import SITES
from chaos.simulate.twins.process import Process
from chaos.simulate.world import World
from storage.log.frame import Flags, parse_frame
from storage.log.segment import parse_wal_name
from twinlog.errors import TwinlogError


class Marks:
    """`broken` takes a sentence for each epoch with a wrong mark."""

    def __init__(self, world: World, decisions: Decisions, broken: Callable[[str], None]) -> None:
        self._world, self._decisions, self._broken = world, decisions, broken
        self._async_s: dict[tuple[Process, int], float] = {}  # since when the frames of an epoch are marked
        for site in SITES:
            world.machines[site].disk.logged = partial(self._logged, site)

    def _logged(self, site: str, process: Process, path: str, data: bytes) -> None:
        name = parse_wal_name(path.rpartition("/")[2])
        try:
            frame = parse_frame(data)
        except TwinlogError:
            return  # no frame
        if name is None or frame.epoch != name[0]:
            return  # a copy
        key = process, frame.epoch
        if frame.flags & Flags.ASYNC:
            self._async_s.setdefault(key, self._world.loop.now_s)
        elif self._decisions.synced_s.get(frame.epoch, -1.0) < self._async_s.pop(key, -1.0):
            self._broken(f"Site {site} marks frames of epoch {frame.epoch} as synchronous before the register says sync.")
