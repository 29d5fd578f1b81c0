"""The footprint of a gateway's process, by the word of the machine: memory, descriptors by kind, threads, and files on disk.

What always holds: it reads `/proc` and directories and asks the process nothing; of a process that ends meanwhile nothing is
said. Files of the storage are a kind of their own: RocksDB opens and closes them as it likes. So are connections to a
database: the engine's pool makes them one by one, as work comes.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec

SOCKET, DELETED, STORAGE, LOG, OTHER = "sockets", "deleted files", "files of the storage", "files of logs", "others"
DATABASE, HDFS = "connections to the database", "connections to HDFS"
SELECTOR = "selectors"  # what a thread waits at for several sockets, and what wakes it

_NUMBER = re.compile(r":\[\d+\]$")  # of a pipe


class Footprint(msgspec.Struct, frozen=True, omit_defaults=True):
    """`pid` and `begun`, its start in clock ticks since the machine's, name one life of a gateway. `open_files`: kind -> count.
    `names`: by kind, of the kinds whose number may not grow, so that a leak can be named; without the numbers of the kernel.
    `wal_bytes`, `dfs_bytes`: of this site's WAL, and of what stands on the site's own DFS; -1: nobody looked."""

    pid: int
    begun: int
    memory_bytes: int
    threads: int
    open_files: dict[str, int]
    wal_bytes: int = -1
    dfs_bytes: int = -1
    names: dict[str, list[str]] = {}

    @property
    def descriptors(self) -> int:
        return sum(self.open_files.values())


def footprint(
    pid: int, data_dir: Path, dfs: Path, *, disks: bool = False, servers: Mapping[int, str] | None = None,
) -> Footprint | None:
    """`disks`: look at the files, too. `servers`: port -> the kind of what connects to it; all other sockets are SOCKET."""
    process = Path(f"/proc/{pid}")
    try:
        memory = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        begun = int((process / "stat").read_text().rpartition(")")[2].split()[19])
        threads = len(os.listdir(process / "task"))
        connected = _connected(process, servers) if servers else {}
        targets = [_target(process / "fd" / name) for name in os.listdir(process / "fd")]
    except (OSError, IndexError):
        return None
    kinds = [(connected.get(target) or _kind(target, data_dir, dfs), target) for target in targets if target]
    counts = dict(sorted(Counter(kind for kind, _ in kinds).items()))
    if not disks:
        return Footprint(pid, begun, memory, threads, counts)
    names = {
        each: sorted(_NUMBER.sub("", target.replace(f"{data_dir.parent}/", "")) for kind, target in kinds if kind == each)
        for each in (OTHER, DELETED)
    }
    return Footprint(pid, begun, memory, threads, counts, bytes_below(data_dir / "wal"), bytes_below(dfs), names)


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


def _connected(process: Path, servers: Mapping[int, str]) -> dict[str, str]:
    """Returns descriptor's target -> kind, for each connection to one of these ports."""
    kinds = {}
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()  # number, local and remote address, ..., the tenth: its inode
            kind = servers.get(int(fields[2].rpartition(":")[2], 16))
            if kind:
                kinds[f"socket:[{fields[9]}]"] = kind
    return kinds


def _target(descriptor: Path) -> str:
    """Empty: it was closed meanwhile."""
    try:
        return os.readlink(descriptor)
    except OSError:
        return ""


def _kind(target: str, data_dir: Path, dfs: Path) -> str:
    if target.startswith("socket:"):
        return SOCKET
    if target.startswith("anon_inode:"):
        return SELECTOR
    if target.endswith(" (deleted)"):
        return DELETED
    if target.startswith(f"{data_dir}/engine/"):
        return STORAGE
    return LOG if target.startswith(f"{data_dir}/wal/") or "/dfs/" in target else OTHER
