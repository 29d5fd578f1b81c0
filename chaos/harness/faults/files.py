"""The files of both sites while the library stands in their gateways, which makes calls on them slow, hang or fail.

What always holds: `broken` keeps what must not be; a plan calls a site's files by the names of PLACES.
Source: docs/decisions/2026-11-24-faults-of-files-inside-the-process.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chaos.disk_faults.control import DiskFaults

PLACES: Mapping[str, str] = {  # what a plan calls it -> where it begins, below a site's folder
    "disk": "data", "wal": "data/wal", "engine": "data/engine", "journal": "data/journal.db", "dfs": "dfs",
}


@dataclass
class BrokenFiles:
    """The files of both sites, below `folder`. `broken`: sentences of what must not be."""

    folder: Path
    faults: DiskFaults
    broken: list[str] = field(default_factory=list)
