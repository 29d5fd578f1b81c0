"""Faults of a site's files: which files a plan means, what becomes of calls on them, and the fault as an object.

What always holds: one table of rules serves both gateways, so that a DFS fails for both, and a gateway that starts during a
fault meets it; a rule goes with its fault. A descriptor of a log whose sync failed must never be used again:
`BrokenFiles.broken` says who did.
Source: docs/decisions/2026-11-24-faults-of-files-inside-the-process.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from chaos.disk_faults.control import RULES, Rule, failing, failing_sync, freezing, full, slow
from chaos.fault_lines import Fault
from chaos.harness.faults.files import PLACES, BrokenFiles
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, Stage
from twinlog.errors import InvalidInput

_LOGS = ("disk", "wal", "dfs")  # where a sync that failed is final; SQLite and RocksDB have their own ways
_RULES: Mapping[str, tuple[Callable[[str], Rule], str]] = {  # kind -> its rule by its figure, and the figure without one
    "disk-slow": (lambda figure: slow(int(figure)), "50"), "disk-fails": (failing, "EIO"),
    "disk-full": (lambda figure: full(int(figure)), "0"), "sync-fails": (lambda figure: failing_sync(int(figure)), "0"),
    "disk-hangs": (lambda figure: freezing(), "-"),
}


def place_and_rule(fault: Fault) -> tuple[str, Rule]:
    """Reads `how PLACE` or `how PLACE/FIGURE`. Raises InvalidInput, ValueError."""
    place, slash, figure = fault.how.partition("/")
    make, default = _RULES[fault.kind]
    if place not in PLACES or (slash and (default == "-" or figure.startswith("-"))):
        more = "" if default == "-" else f", or this and /FIGURE (without one: {default})"
        raise InvalidInput(f"`how` of {fault.kind} is one of {', '.join(PLACES)}{more}")
    return place, make(figure if slash else default)


@dataclass
class OnDisk:
    """A rule for some files of a site. The site is chosen when the fault begins. `no_files`: places that are servers."""

    files: BrokenFiles
    fault: Fault
    site_of: Callable[[str], str | None]
    no_files: Collection[str] = ()
    number: int = 0

    async def why_not(self) -> str:
        place = self.fault.how.partition("/")[0]
        if place in self.no_files:
            return f"`{place}` is a server in this pair, and no file that a gateway opens"
        if self.site_of(self.fault.target) is None:
            return NO_ACTIVE
        return "" if self.files.faults.in_force() < RULES else f"{RULES} faults of files are there already"

    async def inject(self) -> str:
        site = str(self.site_of(self.fault.target))
        place, rule = place_and_rule(self.fault)
        self.number = self.files.faults.begin(self.files.folder / site / PLACES[place], rule)
        return f"site {site}" if self.fault.target != site else ""

    async def heal(self) -> str:
        faults = self.files.faults
        hits, again = faults.hits(self.number), faults.used_again(self.number)
        faults.end(self.number)
        if again and self.fault.how.partition("/")[0] in _LOGS:
            self.files.broken.append(f"A descriptor whose sync had failed was used again, {again} times ({self.fault.how}).")
        return f"calls that met it: {hits:,}" + (f"; uses of a descriptor whose sync had failed: {again}" if again else "")


def _kind(name: str, sentence: str) -> Kind:
    def effect(fault: Fault, stage: Stage) -> OnDisk:
        assert stage.files is not None, "a pair whose files are broken is started for that"
        return OnDisk(stage.files, fault, stage.site, stage.sites.parts.no_files)

    return Kind(name, SITE_TARGETS, sentence, effect, how=tuple(PLACES), check=place_and_rule)


KINDS = (
    _kind("disk-slow", "each call on files of `how` takes longer: PLACE, or PLACE/MS"),
    _kind("disk-fails", "changes of files of `how` fail: PLACE, or PLACE/ERROR"),
    _kind("disk-full", "files of `how` grow by BYTES and no more: PLACE, or PLACE/BYTES"),
    _kind("disk-hangs", "no call on files of `how` ends before this is healed"),
    _kind("sync-fails", "one sync of files of `how` fails, after COUNT: PLACE, or PLACE/COUNT"),
)
