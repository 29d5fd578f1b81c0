"""The folder of a RocksDB engine: the database, the notes beside it, and the kept snapshots, which are checkpoints. Blocking.

What always holds: a checkpoint is made of files that are on the disk: its caller flushes first, and lets nobody write between.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rocksdict import Checkpoint, DbClosedError, Rdict

from storage.engines.applied import State
from storage.engines.kept_snapshots import KeptFolder
from storage.engines.rocks.opening import Notes, RocksSettings, open_database
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import ROCKS_ERRORS, View

_FIGURES = {
    "disk_bytes": "rocksdb.live-sst-files-size",
    "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
    "pending_compaction_bytes": "rocksdb.estimate-pending-compaction-bytes",
}


class Opened(NamedTuple):
    notes: Notes
    database: Rdict
    state: State
    kept: KeptFolder


def open_folder(path: Path, settings: RocksSettings) -> Opened:
    """Raises DataDirectoryError."""
    notes = Notes(path / "notes")
    database = open_database(path / "rocksdb", settings)
    with ROCKS_ERRORS:
        return Opened(notes, database, load_state(View(database)), KeptFolder(path / "kept", "rocksdb", "rocksdb"))


def keep_checkpoint(kept: KeptFolder, database: Rdict, state: State, name: str, taken_ms: int) -> None:
    """Of `state`, which is all on the disk. Raises EngineFailed."""
    with ROCKS_ERRORS:
        make = Checkpoint(database).create_checkpoint
        kept.keep(name, state.seq, state.epoch, taken_ms, lambda path: make(str(path)))


def figures(database: Rdict) -> dict[str, int]:
    """For metrics."""
    try:
        return {name: database.property_int_value(key) or 0 for name, key in _FIGURES.items()}
    except DbClosedError:
        return {}  # it failed, and could not be opened anew yet
