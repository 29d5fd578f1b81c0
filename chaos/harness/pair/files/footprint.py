"""The footprint of a gateway's process, by the word of the machine: memory, descriptors by kind, threads, and files on disk.

What always holds: it reads `/proc` and directories and asks the process nothing; of a process that ends meanwhile nothing is
said. Files of the storage are a kind of their own: RocksDB opens and closes them as it likes.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import msgspec

SOCKET, DELETED, STORAGE, LOG, OTHER = "sockets", "deleted files", "files of the storage", "files of logs", "others"
SELECTOR = "selectors"  # what a thread waits at for several sockets, and what wakes it


class Footprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """`pid` and `begun`, its start in clock ticks since the machine's, name one life of a gateway. `open_files`: kind -> count.
    `wal_bytes`, `remote_bytes`: of this site's WAL, and of what stands on the site's own DFS; -1: nobody looked."""

    pid: int
    begun: int
    memory_bytes: int
    threads: int
    open_files: dict[str, int]
    wal_bytes: int = -1
    dfs_bytes: int = -1

    @property
    def descriptors(self) -> int:
        return sum(self.open_files.values())


def footprint(pid: int, data_dir: Path, dfs: Path, *, disks: bool = False) -> Footprint | None:
    """`disks`: look at the files, too."""
    process = Path(f"/proc/{pid}")
    try:
        memory = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        begun = int((process / "stat").read_text().rpartition(")")[2].split()[19])
        threads = len(os.listdir(process / "task"))
        kinds = Counter(kind for name in os.listdir(process / "fd") if (kind := _kind(process / "fd" / name, data_dir, dfs)))
    except (OSError, IndexError):
        return None
    sizes = (bytes_below(data_dir / "wal"), bytes_below(dfs)) if disks else (-1, -1)
    return Footprint(pid, begun, memory, threads, dict(sorted(kinds.items())), *sizes)


def bytes_below(folder: Path) -> int:
    """Counts what its files occupy. A file that goes meanwhile counts nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _kind(descriptor: Path, data_dir: Path, dfs: Path) -> str:
    try:
        target = os.readlink(descriptor)
    except OSError:  # closed meanwhile
        return ""
    if target.startswith("socket:"):
        return SOCKET
    if target.startswith("anon_inode:"):
        return SELECTOR
    if target.endswith(" (deleted)"):
        return DELETED
    if target.startswith(f"{data_dir}/engine/"):
        return STORAGE
    return LOG if target.startswith(f"{data_dir}/wal/") or "/dfs/" in target else OTHER
