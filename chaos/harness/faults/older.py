"""Parts that come back older: a WAL, a journal, notes, a storage, a whole disk, a DFS, or the coordinator's database is put
back as it was when the fault began. The names are those of the simulator (chaos/simulate/actors/older.py).

What always holds: a copy is a snapshot of running sites, all of one moment; a site's own part is put back while its gateway
does not run (SIGKILL, as a machine that is set back dies), a DFS and the coordinator under running gateways; the files of
before are kept aside. The coordinator's file is exchanged as the handbook says: the present one is taken away with its
`-wal` and `-shm`, and the other one is renamed to its place.
Source: docs/operations.md, "Put back from an older copy" and "A coordinator that went back".
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, Stage
from chaos.harness.pair.files.copies import COORDINATOR, copied, exchanged, put_back
from chaos.harness.pair.sites import SITES, RealSites

LOST = "lost"  # `how` of coordinator-back: nobody has the newest database any more


def _folder(sites: RealSites, name: str) -> Path:
    return Path(mkdtemp(prefix=f"{name}-", dir=sites.folder))


@dataclass
class PartBack:
    """A part of a site. The site is chosen when the fault begins."""

    stage: Stage
    target: str
    part: str
    site: str = ""
    copy: Path = Path()

    async def why_not(self) -> str:
        return "" if self.stage.site(self.target) is not None else NO_ACTIVE

    async def inject(self) -> str:
        sites = self.stage.sites
        self.site, self.copy = str(self.stage.site(self.target)), _folder(sites, f"copy-{self.part}")
        await asyncio.to_thread(copied, sites, self.site, self.part, self.copy)
        return f"site {self.site}" if self.target != self.site else ""

    async def heal(self) -> str:
        return await asyncio.to_thread(self._put_back)

    def _put_back(self) -> str:
        sites, aside = self.stage.sites, _folder(self.stage.sites, f"newest-{self.part}")
        newest = sites.spoiled.newest
        for older in [key for key in newest if key[0] == self.site]:  # of an earlier fault: the site has gone on since
            del newest[older]
        newest[self.site, self.part] = aside
        if self.part == "dfs":
            put_back(sites, self.site, self.part, self.copy, aside)
            return f"the DFS of site {self.site} is back"
        sites.kill(self.site)
        put_back(sites, self.site, self.part, self.copy, aside)
        sites.lives[self.site].may_refuse = True
        refused = sites.start_and_hear(self.site)
        return f"the {self.part} of site {self.site} is back" + (f"; refused: {refused}" if refused else "")


@dataclass
class CoordinatorBack:
    """The one kind that knows where the register is."""

    stage: Stage
    is_lost: bool
    copy: Path = Path()

    async def why_not(self) -> str:
        return "" if self.stage.sites.coordinator.exists() else "this pair has no coordinator in a file"

    async def inject(self) -> str:
        sites = self.stage.sites
        self.copy = _folder(sites, "copy-coordinator")
        await asyncio.to_thread(_backup, sites.coordinator, self.copy / sites.coordinator.name)
        return ""

    async def heal(self) -> str:
        return await asyncio.to_thread(self._put_back)

    def _put_back(self) -> str:
        sites, aside = self.stage.sites, _folder(self.stage.sites, "newest-coordinator")
        exchanged(sites, self.copy, aside)
        if not self.is_lost:
            sites.spoiled.newest[COORDINATOR] = aside
        for site in SITES:
            sites.lives[site].may_refuse = True
        return "the coordinator's database is back"


def _backup(database: Path, target: Path) -> None:
    """A copy by SQLite itself, as an operator's backup makes it."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)


def _part(fault: Fault, stage: Stage) -> PartBack:
    return PartBack(stage, fault.target, fault.how or fault.kind.removesuffix("-back"))


def _coordinator(fault: Fault, stage: Stage) -> CoordinatorBack:
    return CoordinatorBack(stage, fault.how == LOST)


KINDS = (
    Kind("part-back", SITE_TARGETS, "at the end, `how` (wal, journal, notes) of a site is as it was at the beginning", _part,
         how=("wal", "journal", "notes")),
    Kind("storage-back", SITE_TARGETS, "the same for its rows", _part),
    Kind("disk-back", SITE_TARGETS, "the same for its whole data directory", _part),
    Kind("dfs-back", SITE_TARGETS, "the same for its DFS, while both gateways run", _part),
    Kind("coordinator-back", ("w",), "the same for the coordinator's database; `lost`: no newer copy is left", _coordinator,
         how=("", LOST)),
)
