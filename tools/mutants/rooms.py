"""The safety-critical rooms, and the tests that stand for each file of them."""

from __future__ import annotations

from pathlib import Path

from tools.sources import repository_files

CRITICAL = (
    "gateway/epoch", "gateway/service", "gateway/site", "storage/log", "storage/disk", "storage/engines/entries",
    "storage/engines/rocks", "storage/engines/sql", "storage/engines/applying.py", "storage/engines/unshown.py",
    "storage/engines/flushing.py", "storage/engines/kept_snapshots.py",
    "storage/rows/stored.py",
    "remote_log/writing", "remote_log/fencing", "remote_log/replication", "remote_log/dfs/directory.py",
    "remote_log/dfs/directory_lease.py", "remote_log/dfs/queued_writer.py", "remote_log/dfs/retrying.py",
    "switchover/register", "switchover/activation", "switchover/operations", "switchover/plans", "switchover/roles",
    "switchover/preflight", "switchover/rejoin.py",
)
QUIET = ("metrics.py", "cluster_document.py", "documents.py", "settings.py", "port.py")  # what is shown, or only declared


def rooms(root: Path) -> list[str]:
    """Returns the files of the safety-critical rooms."""
    return [
        str(path) for path in repository_files(root, ".py")
        if any(path.is_relative_to(room) for room in CRITICAL) and path.name not in (*QUIET, "__init__.py")
    ]


def tests_of(root: Path, file: str) -> tuple[str, ...]:
    """Returns the tests that mirror `file`: its own file of tests, and the folder of tests that mirrors its folder."""
    folder = Path("tests") / Path(file).parent
    while not (root / folder).is_dir():
        folder = folder.parent
    own = folder / f"test_{Path(file).name}"
    return (str(own), str(folder)) if (root / own).is_file() else (str(folder),)
