"""Bytes of a file turn, or its end is gone, while a gateway runs or not: in a log only where its readers can know it.

What always holds: one file is damaged, at a place that the plan's seed and line choose; a bit is turned in the file itself, so
that whoever has it open meets it. Nothing is damaged that may be the only copy. What is cut of a log is more than its last
frame; of a remote log it is never the newest segment, for a reader takes a short one for its end.
Source: docs/decisions/2026-11-21-a-damaged-remote-log.md; chaos/simulate/actors/disasters.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from chaos.fault_lines import Fault, fault_text
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, Stage
from chaos.harness.pair.files.spoiled import LOOK_BYTES, Damage
from chaos.harness.pair.sites import OTHER, SITES
from chaos.log_damage import provable, values
from twinlog.errors import InvalidInput

FLIP, CUT, VALUE = "flip", "cut", "value"
_LOGS = ("wal", "remote")
_NO_COPIES = ("cursors", "mark", "identity")  # nothing that was acknowledged is in them
PLACES: Mapping[str, Callable[[str], tuple[str, str]]] = {  # a plan's word -> site -> the site that has it, and a pattern
    "wal": lambda site: (site, "data/wal/*"),
    "remote": lambda site: (OTHER[site], "dfs/*/0/*[0-9]/*"),  # without claims and register
    "engine": lambda site: (site, "data/engine/rocksdb/*.sst"),
    "manifest": lambda site: (site, "data/engine/rocksdb/MANIFEST-*"),
    "notes": lambda site: (site, "data/engine/notes"),
    "journal": lambda site: (site, "data/journal.db"),
    "cursors": lambda site: (site, "data/cursors/holders.json"),
    "mark": lambda site: (site, "data/register/met.json"),
    "identity": lambda site: (site, "data/twinlog.json"),
    "register": lambda site: (OTHER[site], "dfs/*/0/register/*"),  # of a pair without a coordinator
}


def place_and_way(fault: Fault) -> tuple[str, str]:
    """Reads `how PLACE` or `how PLACE/WAY`. Raises InvalidInput."""
    place, _, way = fault.how.partition("/")
    if place not in PLACES or way not in ("", FLIP, CUT, VALUE) or (way == VALUE and place not in _LOGS):
        known, logs = ", ".join(PLACES), " or ".join(_LOGS)
        raise InvalidInput(f"`how` of rot is one of {known}, or this and /{CUT} (without: /{FLIP}), or {logs} and /{VALUE}")
    return place, way or FLIP


@dataclass
class Rot:
    stage: Stage
    fault: Fault

    async def why_not(self) -> str:
        site = self.stage.site(self.fault.target)
        if site is None:
            return NO_ACTIVE
        if place_and_way(self.fault)[0] not in _NO_COPIES:
            if site == self.stage.active() and not self.stage.is_sync():
                return "what the active alone has acknowledged may be in one copy only"
            if any(each.site != site and each.is_there for each in self.stage.sites.spoiled.damages):
                return f"site {OTHER[site]} has a damaged file already"
        return "" if self._places(site) else "nothing there would differ from what a crash leaves"

    async def inject(self) -> str:
        return await asyncio.to_thread(self._damage, str(self.stage.site(self.fault.target)))

    async def heal(self) -> str:
        """There is nothing to undo: the handbook's way out is the recovery's business."""
        return ""

    def _damage(self, site: str) -> str:
        place, way = place_and_way(self.fault)
        chance, sites = Random(f"{self.stage.seed} {fault_text(self.fault)}"), self.stage.sites
        places = self._places(site)
        if not places:
            return "the file is gone"
        path, (begin, end) = chance.choice(places)
        offset = chance.randrange(begin, end)
        with path.open("r+b") as file:
            file.seek(offset)
            was = file.read(LOOK_BYTES if way == CUT else 1)
            if way == CUT:
                file.truncate(offset)
            else:
                file.seek(offset)
                file.write(bytes([was[0] ^ 1 << chance.randrange(8)]))
            file.flush()
            os.fsync(file.fileno())
        sites.spoiled.damages.append(Damage(site, place, path, offset, was, way == CUT, sites.lives[site].starts))
        for each in SITES:
            sites.lives[each].may_refuse = True
        return f"{'cut' if way == CUT else 'a bit'} at {offset:,} of {path.relative_to(sites.folder)}"

    def _places(self, site: str) -> list[tuple[Path, tuple[int, int]]]:
        place, way = place_and_way(self.fault)
        there, pattern = PLACES[place](site)
        files = sorted(path for path in (self.stage.sites.folder / there).glob(pattern) if path.is_file())
        if place == "register":
            files = files[-1:]  # the newest
        if place == "remote" and way == CUT:
            files = files[:-1]
        found: list[tuple[Path, tuple[int, int]]] = []
        for path in files:
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # deleted meanwhile
                continue
            found += [(path, each) for each in (_ranges(data, way) if place in _LOGS else [(0, len(data))] if data else [])]
        return found[-1:] if way == VALUE else found  # an older value is in the storage already, and nobody reads it again


def _ranges(log: bytes, way: str) -> list[tuple[int, int]]:
    return values(log) if way == VALUE else provable(log)


def _rot(fault: Fault, stage: Stage) -> Rot:
    return Rot(stage, fault)


KINDS = (
    Kind("rot", SITE_TARGETS, "a bit of a file turns: PLACE, or, in a row of a log, PLACE/value; or its end is gone: PLACE/cut",
         _rot, lasts=False, how=tuple(PLACES), check=place_and_way),
)
