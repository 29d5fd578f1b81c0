"""Faults of a site's files: which files a plan means, what becomes of calls on them, and the fault as an object.

What always holds: one table of rules serves both gateways, so that a DFS fails for both, and a gateway that starts during a
fault meets it; a rule goes with its fault. A descriptor of a log whose sync failed must never be used again: `Disks.broken`
says who did.
Source: docs/decisions/2026-11-24-faults-of-files-inside-the-process.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaos.disk_faults.control import RULES, DiskFaults, Rule, failing, failing_sync, freezing, full, slow
from chaos.fault_lines import Fault
from twinlog.errors import InvalidInput

PLACES: Mapping[str, str] = {  # what a plan calls it -> where it begins, below a site's folder
    "disk": "data", "wal": "data/wal", "engine": "data/engine", "journal": "data/journal.db", "dfs": "dfs",
}
_LOGS = ("disk", "wal", "dfs")  # where a sync that failed is final; SQLite and RocksDB have their own ways
_RULES: Mapping[str, tuple[Callable[[str], Rule], str]] = {  # kind -> its rule by its figure, and the figure without one
    "disk-slow": (lambda figure: slow(int(figure)), "50"), "disk-fails": (failing, "EIO"),
    "disk-full": (lambda figure: full(int(figure)), "0"), "sync-fails": (lambda figure: failing_sync(int(figure)), "0"),
    "disk-hangs": (lambda figure: freezing(), "-"),
}
DISK_KINDS = tuple(_RULES)


def place_and_rule(fault: Fault) -> tuple[str, Rule]:
    """Reads `how PLACE` or `how PLACE/FIGURE`. Raises InvalidInput, ValueError."""
    place, slash, figure = fault.how.partition("/")
    make, default = _RULES[fault.kind]
    if place not in PLACES or (slash and (default == "-" or figure.startswith("-"))):
        more = "" if default == "-" else f", or this and /FIGURE (without one: {default})"
        raise InvalidInput(f"`how` of {fault.kind} is one of {', '.join(PLACES)}{more}")
    return place, make(figure if slash else default)


def are_broken_by(faults: Iterable[Fault]) -> bool:
    """Returns whether gateways need the library."""
    return any(fault.kind in DISK_KINDS for fault in faults)


@dataclass
class Disks:
    """The files of both sites, below `folder`. `broken`: sentences of what must not be."""

    folder: Path
    faults: DiskFaults
    broken: list[str] = field(default_factory=list)


@dataclass
class OnDisk:
    """A rule for some files of a site. The site is chosen when the fault begins."""

    disks: Disks
    fault: Fault
    site_of: Callable[[str], str | None]
    number: int = 0

    async def why_not(self) -> str:
        if self.site_of(self.fault.target) is None:
            return "nobody is the active"
        return "" if self.disks.faults.in_force() < RULES else f"{RULES} faults of files are there already"

    async def inject(self) -> str:
        site = str(self.site_of(self.fault.target))
        place, rule = place_and_rule(self.fault)
        self.number = self.disks.faults.begin(self.disks.folder / site / PLACES[place], rule)
        return f"site {site}" if self.fault.target != site else ""

    async def heal(self) -> str:
        faults = self.disks.faults
        hits, again = faults.hits(self.number), faults.used_again(self.number)
        faults.end(self.number)
        if again and self.fault.how.partition("/")[0] in _LOGS:
            self.disks.broken.append(f"A descriptor whose sync had failed was used again, {again} times ({self.fault.how}).")
        return f"calls that met it: {hits:,}" + (f"; uses of a descriptor whose sync had failed: {again}" if again else "")
