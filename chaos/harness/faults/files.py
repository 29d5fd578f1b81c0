"""The files of both sites while libraries stand in their gateways: one that makes calls on them slow, hang or fail, and one
that records them for a power loss.

What always holds: `broken` keeps what must not be; a plan calls a site's files by the names of PLACES; a call that fails by a
rule is not recorded, for it did not happen.
Source: docs/decisions/2026-11-24-faults-of-files-inside-the-process.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol

from chaos.disk_faults.control import DiskFaults
from chaos.harness.pair.sites import SITES
from chaos.power_loss.losing import PowerLoss

PLACES: Mapping[str, str] = {  # what a plan calls it -> where it begins, below a site's folder
    "disk": "data", "wal": "data/wal", "engine": "data/engine", "journal": "data/journal.db", "dfs": "dfs",
}


@dataclass
class BrokenFiles:
    """The files of both sites, below `folder`. `broken`: sentences of what must not be."""

    folder: Path
    faults: DiskFaults
    broken: list[str] = field(default_factory=list)


class PoweredFiles:
    """The data and the DFS of both sites, below `folder`, on disks that can lose power. `seed`: of what is lost then."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.drawn = Random(f"{seed} power")
        places = {"disk": "engine/rocksdb", "dfs": None}  # RocksDB relies on the order of names, as ext4 and XFS have it
        self.losses = PowerLoss(folder / "power", {
            folder / site / PLACES[place]: in_order for site in SITES for place, in_order in places.items()
        })


class Attached(Protocol):
    """A library that stands between a process and libc."""

    def environ(self) -> Mapping[str, str]:
        """Returns what the process needs in its environment."""

    def is_attached(self, pid: int) -> bool: ...


def environ_of(*attached: Attached) -> dict[str, str]:
    """Returns the environment for a gateway: it names the libraries, in the order in which calls pass them."""
    environs = [each.environ() for each in attached]
    preloaded = ":".join(each["LD_PRELOAD"] for each in environs)
    return {name: value for each in environs for name, value in each.items()} | ({"LD_PRELOAD": preloaded} if environs else {})
