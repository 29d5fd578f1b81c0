"""The parts of a pair's files: copied as by a snapshot, put back as by an operator, and kept aside where another copy is.

What always holds: while a part is copied or exchanged no gateway writes it, for each that runs stands still meanwhile; hard
links stay hard links, for the leases of a directory DFS are made of them; what is replaced is moved aside, never deleted.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from chaos.harness.pair.sites import SITES, RealSites
from twinlog.errors import Unavailable

PARTS: Mapping[str, tuple[str, ...]] = {  # a part -> its names below a site's folder, as patterns
    "wal": ("data/wal",), "journal": ("data/journal.db*",), "notes": ("data/cursors", "data/register"),
    "storage": ("data/engine",), "disk": ("data/*",), "dfs": ("dfs/*", "dfs/.*"),
}
COORDINATOR = ("w", "coordinator")  # its place among what lies aside; "w" is the witness, as in the simulator


def copied(sites: RealSites, site: str, part: str, into: Path) -> None:
    """A snapshot of the part of `site` in the new folder `into`."""
    with _standing_still(sites):
        for path in _paths(sites, site, part):
            target = into / path.parent.relative_to(sites.folder / site)
            target.mkdir(parents=True, exist_ok=True)
            _shell("cp", "-a", str(path), str(target))


def put_back(sites: RealSites, site: str, part: str, copy: Path, aside: Path) -> None:
    """The part goes to the new folder `aside`, and the files of `copy` to its place. The root of a DFS stays the same one."""
    with _standing_still(sites):
        for path in _paths(sites, site, part):
            target = aside / path.relative_to(sites.folder / site)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target)
        _shell("cp", "-a", f"{copy}/.", str(sites.folder / site))


def exchanged(sites: RealSites, copy: Path, aside: Path) -> None:
    """The coordinator's database goes aside, and that in `copy` to its place, with its own `-wal` if it has one."""
    place = sites.coordinator
    for suffix in ("", "-wal", "-shm"):
        present = Path(f"{place}{suffix}")
        if present.exists():
            present.rename(aside / present.name)
    for suffix in ("-wal", ""):  # the database last: with its name it is there
        other = Path(f"{copy / place.name}{suffix}")
        if other.exists():
            other.rename(f"{place}{suffix}")


def _paths(sites: RealSites, site: str, part: str) -> list[Path]:
    folder = sites.folder / site
    return sorted({path for pattern in PARTS[part] for path in folder.glob(pattern) if path.name not in (".", "..")})


@contextmanager
def _standing_still(sites: RealSites) -> Iterator[None]:
    stopped = [site for site in SITES if sites.is_running(site) and not sites.lives[site].paused]
    try:
        for site in stopped:
            sites.pause(site)
        yield
    finally:
        for site in stopped:
            sites.resume(site)


def _shell(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr.strip()}")
